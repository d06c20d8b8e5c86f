"""Inductor's adapter: a program that is still in use is not forgotten when another one is compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchstone.compiler._torch import dynamo
from torchstone.conformance.backends.adapters.inductor import Inductor


def test_programs_in_use_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    resets: list[None] = []
    monkeypatch.setattr(dynamo, "reset", lambda: resets.append(None), raising=False)
    monkeypatch.setattr(torch, "compile", lambda module, **options: module)
    backend, args = Inductor(), (torch.ones(2),)

    def double(x: torch.Tensor) -> Any:
        return x + x

    first = backend.compile(double, args)
    assert len(resets) == 1
    second = backend.compile(double, args)
    assert len(resets) == 1
    assert first(*args).tolist() == second(*args).tolist() == [2, 2]
    del first, second
    backend.compile(double, args)
    assert len(resets) == 2


def test_every_size_is_free_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(dynamo, "reset", lambda: None, raising=False)
    monkeypatch.setattr(torch, "compile", lambda module, **options: asked.append(options["dynamic"]) or module)
    backend, args = Inductor(), (torch.ones(2),)
    backend.compile(torch.neg, args)
    backend.compile_dynamic(torch.neg, args, ((0,),))
    assert asked == [False, True]

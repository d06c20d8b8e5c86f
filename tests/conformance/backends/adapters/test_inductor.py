"""Inductor's adapter: a program that is still in use is not forgotten when another one is compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchstone.compiler._torch import dynamo
from torchstone.conformance.backends.adapters.inductor import Inductor
from torchstone.conformance.program.program import Call, Program, Ref


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


@pytest.mark.parametrize("gradients", [1, 2])
def test_the_settings_hold_at_every_call(monkeypatch: pytest.MonkeyPatch, gradients: int) -> None:
    """At other sizes torch.compile compiles again: with its caches, a graph of another program could answer. A graph
    that is gone back through twice keeps its buffers."""
    seen: list[tuple[bool, bool]] = []

    def compiled(module: Any, **options: Any) -> Any:
        def run(*args: Any) -> Any:
            seen.append((dynamo.inductor_config.fx_graph_cache, dynamo.functorch_config.donated_buffer))
            return module(*args)

        return run

    monkeypatch.setattr(dynamo, "reset", lambda: None, raising=False)
    monkeypatch.setattr(torch, "compile", compiled)
    leaf = [
        Call("torch.Tensor.detach", (Ref("x"),), {}, "d"),
        Call("torch.Tensor.requires_grad_", (Ref("d"),), {}, "l"),
    ]
    steps = [Call("torch.exp", (Ref("l"),), {}, "e"), Call("torch.sum", (Ref("e"),), {}, "s")]
    taken = [Call("torch.autograd.grad", (Ref("s"), [Ref("l")]), {}, f"g{k}") for k in range(gradients)]
    program = Program(("x",), (*leaf, *steps, *taken), tuple(Ref(f"g{k}") for k in range(gradients)))
    executable = Inductor().compile(program, (torch.ones(2),))
    executable(torch.ones(2))
    executable(torch.ones(3))
    assert seen == [(False, gradients == 1)] * 3

"""An error in a model of the oracle is shown, and one of eager's ops is no such run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchstone.conformance.oracle.overflow.model import RandomOverflow
from torchstone.conformance.oracle.perturbation.rounding import RandomRounding
from torchstone.conformance.oracle.reference.runs import Referee
from torchstone.conformance.program.program import Call, Program, Ref


def program(target: str, *args: Any) -> Program:
    return Program(("x",), (Call(target, (Ref("x"), *args), {}, "y"),), Ref("y"))


def referee() -> Referee:
    return Referee(program("torch.softmax", -1), (torch.randn(3, 5),))


def test_another_signature_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RandomOverflow, "_round", lambda self, value: value)
    with pytest.raises(TypeError, match="unexpected keyword argument 'inexact'"):
        list(referee().reordered_runs)


@pytest.mark.parametrize("model, method", [(RandomRounding, "_sides"), (RandomOverflow, "_in_some_order")])
def test_a_missing_name_is_shown(model: type, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(model, method)
    asked = referee()
    with pytest.raises(AttributeError, match=method):
        _ = [*asked.rounded_runs, *asked.reordered_runs]


def test_what_eager_refuses_is_no_such_run() -> None:
    assert "RuntimeError" in Referee(program("torch.reshape", (7,)), (torch.eye(2),)).float64.problem
    assert "TypeError" in Referee(program("torch.softmax", "rows"), (torch.randn(3, 5),)).float64.problem

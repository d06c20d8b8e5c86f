"""Where eager's formula cancels in float64 too, SciPy tells who is right."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.conformance.oracle.test_compare import compare, one
from torchstone.conformance.execution.verdict import EAGER_FURTHER, Outcome
from torchstone.conformance.program.program import Call, Program, Ref

TAIL = torch.tensor([-6.0, -7.5, -8.0, -3.0], dtype=torch.float64)


def gelu(kind: str) -> Program:
    return Program(("x0",), (Call("torch.nn.functional.gelu", (Ref("x0"),), {"approximate": kind}, "y"),), Ref("y"))


def right(kind: str, x: Tensor) -> Tensor:
    """GELU by formulas that do not cancel."""
    if kind == "none":
        return 0.5 * x * torch.erfc(-x * math.sqrt(0.5))
    return x * torch.sigmoid(2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x))


@pytest.mark.parametrize("kind", ["none", "tanh"])
def test_who_has_the_digits_is_right(kind: str) -> None:
    finding = compare(gelu(kind), lambda x: right(kind, x), TAIL)
    assert finding.outcome is Outcome.PASS, finding
    assert finding.evidence["rule"] == "SciPy"
    assert finding.evidence[EAGER_FURTHER]["expected"] != finding.evidence[EAGER_FURTHER]["actual"]


def test_without_arguments_too() -> None:
    assert compare(one("nn.functional.gelu"), lambda x: right("none", x), TAIL).ok


@pytest.mark.parametrize("kind", ["none", "tanh"])
@pytest.mark.parametrize("relative", [1e-6, -0.5, 3.0])
def test_who_has_not_is_wrong_where_eager_has_them(kind: str, relative: float) -> None:
    def wrong(x: Tensor) -> Tensor:
        return right(kind, x) * torch.where(x == -3.0, 1.0 + relative, 1.0)

    assert compare(gelu(kind), wrong, TAIL).outcome is Outcome.MISMATCH


@pytest.mark.parametrize("kind", ["none", "tanh"])
def test_the_other_kind_is_wrong(kind: str) -> None:
    other = {"none": "tanh", "tanh": "none"}[kind]
    assert compare(gelu(kind), lambda x: right(other, x), TAIL).outcome is Outcome.MISMATCH

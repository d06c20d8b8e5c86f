"""The sign of zero: caught where every step of a program decides it, left open where the machine does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conformance.oracle.test_compare import X, Y, compare, one, several
from torchstone.conformance.execution.verdict import Kind, Outcome
from torchstone.conformance.program.program import Program, Ref

ZEROS = torch.tensor([0.0, -0.0, 1.0, -0.25, -3.0, -0.0])

CAUGHT: dict[str, tuple[Program, tuple[Tensor, ...]]] = {
    "neg": (one("neg"), (ZEROS,)),
    "round": (one("round"), (ZEROS,)),
    "ceil": (one("ceil"), (ZEROS,)),
    "trunc, moved": (several(("trunc", X), ("flip", Ref("r0"), [0])), (ZEROS,)),
    "copysign": (one("copysign", X, Y), (ZEROS.abs(), ZEROS)),
    "relu": (one("relu"), (ZEROS,)),
    "hardtanh": (one("nn.functional.hardtanh", X, 0.0, 1.0), (ZEROS,)),
    "a product": (one("mul", X, Y), (ZEROS, torch.tensor([-1.0, 2.0, -0.0, 0.0, 1.0, 1.0]))),
    "where": (one("where", X, Y, 1.0), (ZEROS == 0, ZEROS)),
    "half": (one("neg"), (ZEROS.half(),)),
    "gathered": (one("gather", X, 0, Y), (ZEROS, torch.tensor([1, 1, 0]))),
}


def other_zeros(program: Program) -> Callable[..., Any]:
    def run(*args: Tensor) -> Any:
        out = program(*args)
        return torch.where(out == 0, -out, out)

    return run


@pytest.mark.parametrize("name", CAUGHT)
def test_the_other_zero_is_caught(name: str) -> None:
    program, tensors = CAUGHT[name]
    assert compare(program, program, *tensors).outcome is Outcome.PASS
    finding = compare(program, other_zeros(program), *tensors)
    assert (finding.outcome, finding.kind) == (Outcome.MISMATCH, Kind.VALUE), finding


def test_one_zero_is_caught_among_many() -> None:
    x = torch.full((1000,), -0.0)
    finding = compare(one("neg"), lambda x: (-x).index_fill(0, torch.tensor([777]), -0.0), x)
    assert finding.evidence["index"] == [777] and finding.evidence["count"] == 1
    assert "expected 0.0, got -0.0" in finding.message


def test_an_input_that_is_only_read_keeps_its_zeros() -> None:
    def wrong(x: Tensor) -> Tensor:
        out = x.sum()
        x.abs_()
        return out

    finding = compare(one("sum"), wrong, torch.tensor([0.0, -0.0, 2.0]))
    assert (finding.outcome, finding.kind) == (Outcome.MISMATCH, Kind.MUTATION), finding


OPEN: dict[str, tuple[Program, tuple[Tensor, ...]]] = {
    "the larger of two zeros": (one("maximum", X, Y), (ZEROS, -ZEROS.abs())),
    "the least of a row": (one("amin", X, 0), (ZEROS.abs(),)),
    "sorted": (one("msort"), (ZEROS,)),
    "a sum": (one("sum", X, 0), (torch.zeros(3),)),
    "a product that underflows": (one("mul", X, Y), (torch.tensor([1e-30]), torch.tensor([-1e-30]))),
    "complex": (one("mul", X, Y), (torch.zeros(2, dtype=torch.complex64), torch.ones(2, dtype=torch.complex64))),
}


@pytest.mark.parametrize("name", OPEN)
def test_what_the_machine_decides_is_left_open(name: str) -> None:
    program, tensors = OPEN[name]
    finding = compare(program, other_zeros(program), *tensors)
    assert finding.ok, finding

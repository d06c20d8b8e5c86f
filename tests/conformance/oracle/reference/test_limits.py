"""A function's limit at infinity is right where eager has NaN, and nothing else is."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.conformance.oracle.test_compare import X, compare, one, several
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.program.program import Program, Ref

INF, NAN = math.inf, math.nan
NAMES = ("i0", "special.i1", "special.modified_bessel_i0", "special.modified_bessel_i1")


def check(program: Program, x: Tensor, above: float, below: float) -> None:
    def put(*values: float) -> Outcome:
        def wrong(x: Tensor) -> Tensor:
            return torch.cat([torch.tensor(values).to(x.dtype), program(x)[len(values) :]])

        return compare(program, wrong, x).outcome

    assert put(above, below) is Outcome.PASS
    assert put(NAN, NAN) is Outcome.PASS
    for values in ((-above, below), (above, -below), (3.0, below), (above, below, INF)):
        assert put(*values) is Outcome.MISMATCH


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "name, dtype",  # eager's kernels of the Bessel functions take no 16 bits
    [
        (name, dtype)
        for name in NAMES
        for dtype in (torch.float32, torch.bfloat16)
        if "bessel" not in name or dtype.itemsize == 4
    ],
)
def test_a_limit_at_infinity(name: str, dtype: torch.dtype) -> None:
    program, x = one(name), torch.tensor([INF, -INF, 1.5, NAN], dtype=dtype)
    below = INF if name.endswith("i0") else -INF
    assert torch.isnan(program(x)[:2]).all()
    check(program, x, INF, below)
    check(several((name, X), ("neg", Ref("r0"))), x, -INF, -below)  # and what follows from it

"""The sign of an infinity beside a NaN is open where it depends on what the NaN stands for, and nowhere else."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.conformance.oracle.test_compare import X, Y, compare, one, several
from tests.sampling import one_in
from torchstone.conformance.execution.verdict import Kind, Outcome
from torchstone.conformance.oracle.ambiguity.infinity_sign import OtherInfinities
from torchstone.conformance.program.program import Program, Ref

INF, NAN = math.inf, math.nan
PARTS = (-INF, -1.0, -0.0, 0.0, 1.0, INF, NAN)
NUMBERS = torch.tensor([complex(re, im) for re in PARTS for im in PARTS], dtype=torch.complex64)


def turned(values: Tensor) -> Tensor:
    """The same numbers, with the other infinity beside each NaN."""
    parts = torch.view_as_real(values)
    return torch.view_as_complex(torch.where(parts.isinf() & parts.flip(-1).isnan(), -parts, parts))


def numbers(*parts: tuple[float, float], dtype: torch.dtype = torch.complex64) -> Tensor:
    return torch.tensor([complex(*pair) for pair in (*parts, (0.5, 0.25))], dtype=dtype)


OPEN = {  # C99, annex G: "where the sign is unspecified"; of the sine and cosine it is i sinh(z / i) and cosh(iz)
    "asin": [(INF, NAN), (-INF, NAN)],
    "acos": [(INF, NAN), (-INF, NAN)],
    "asinh": [(NAN, INF), (NAN, -INF)],
    "exp": [(INF, INF), (INF, NAN)],
    "sinh": [(INF, INF), (INF, NAN), (-INF, INF)],
    "cosh": [(INF, INF), (-INF, INF)],
    "sin": [(INF, INF), (NAN, INF)],
    "cos": [(INF, INF), (INF, -INF)],
    "sqrt": [(-INF, NAN)],
}


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("op", OPEN)
def test_either_infinity_is_right_where_c99_leaves_its_sign_open(op: str, dtype: torch.dtype) -> None:
    x, program = numbers(*OPEN[op], dtype=dtype), one(op)
    assert compare(program, lambda x: turned(program(x)), x).ok
    assert compare(program, lambda x: torch.cat([turned(program(x))[:1], program(x)[1:]]), x).ok, "one by one"


@pytest.mark.torture
@pytest.mark.parametrize("op", one_in(4, OPEN))
def test_a_number_in_place_of_the_infinity_is_wrong(op: str) -> None:
    x, program = numbers(*OPEN[op]), one(op)

    def finite(x: Tensor) -> Tensor:
        out = torch.view_as_real(program(x))
        return torch.view_as_complex(torch.where(out.isinf(), 3.0, out))

    def last_is_off(x: Tensor) -> Tensor:
        out = turned(program(x))
        out[-1] *= 1.001
        return out

    for wrong in (finite, last_is_off):
        finding = compare(program, wrong, x)
        assert (finding.outcome, finding.kind) == (Outcome.MISMATCH, Kind.VALUE), finding


CLOSED = {
    "asin": [(NAN, INF), (NAN, -INF)],  # odd in the imaginary part
    "asinh": [(INF, NAN), (-INF, NAN)],
    "log": [(INF, NAN), (-INF, NAN), (NAN, INF)],
    "acosh": [(INF, NAN), (NAN, INF)],
    "sqrt": [(INF, NAN)],
    "neg": [(INF, NAN), (NAN, -INF)],
    "square": [(INF, INF), (INF, -INF)],  # 2 inf inf
}


@pytest.mark.few(3)
@pytest.mark.parametrize(("op", "at"), [(op, at) for op, places in CLOSED.items() for at in places], ids=str)
def test_an_infinity_whose_sign_the_operand_decides_has_it(op: str, at: tuple[float, float]) -> None:
    x, program = numbers(at), one(op)
    assert bool(torch.view_as_real(program(x)).isinf().any())
    finding = compare(program, lambda x: turned(program(x)), x)
    assert (finding.outcome, finding.kind) == (Outcome.MISMATCH, Kind.VALUE), finding


def test_infinities_without_a_nan_keep_their_signs() -> None:
    x = numbers((2.0, INF), (INF, 1.0))
    finding = compare(one("asin"), lambda x: torch.asin(x).conj().resolve_conj(), x)
    assert finding.outcome is Outcome.MISMATCH


IMAGINARY_PART = several(("asin", X), ("imag", Ref("r0")))
SUMS = several(("asin", X), ("imag", Ref("r0")), ("mul", Ref("r1"), -2.0), ("sub", Ref("r2"), 1.0))


@pytest.mark.few(1)
@pytest.mark.parametrize("program", [IMAGINARY_PART, SUMS], ids=str)
def test_what_follows_from_either_is_right(program: Program) -> None:
    x = numbers((INF, NAN), (-INF, NAN), (0.3, 0.2))
    assert compare(program, lambda x: torch.where(program(x).isinf(), -program(x), program(x)), x).ok
    finding = compare(program, lambda x: torch.where(program(x).isinf(), -program(x), 1.01 * program(x)), x)
    assert finding.outcome is Outcome.MISMATCH


def test_functions_of_two_numbers_and_of_real_ones_have_no_such_step() -> None:
    met: list[object] = []
    real = NUMBERS.real.contiguous()
    with OtherInfinities(met):
        torch.exp(real), torch.mul(NUMBERS, NUMBERS.flip(0)), torch.add(NUMBERS, 1.0), torch.complex(real, real.flip(0))
    assert not met
    x, y = real[:4], torch.tensor([NAN, NAN, INF, 1.0])
    program = one("complex", X, Y)
    assert compare(program, lambda x, y: turned(program(x, y)), x, y).outcome is Outcome.MISMATCH


@pytest.mark.torture
def test_it_is_asked_of_steps_that_write_in_place() -> None:
    x = numbers((INF, NAN))
    program = several(("clone", X), ("Tensor.asin_", Ref("r0")))
    assert compare(program, lambda x: turned(torch.asin(x)), x).ok
    assert compare(program, lambda x: torch.asin(x) * torch.tensor([1.0, 1.001]), x).outcome is Outcome.MISMATCH

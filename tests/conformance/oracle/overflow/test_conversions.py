"""Conversions to integers out of range: what depends on them is left open, everything beside it is compared."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.conformance.oracle.test_compare import X, Y, compare, one, several
from torchstone.conformance.execution.verdict import Kind, Outcome
from torchstone.conformance.oracle.overflow.conversions import INTEGERS, StandIns, out_of_range
from torchstone.conformance.program.program import Call, Program, Ref

INF, NAN = math.inf, math.nan
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("target", sorted(INTEGERS, key=str), ids=str)
def test_what_is_out_of_range(dtype: torch.dtype, target: torch.dtype) -> None:
    """By Python's exact integers."""
    info = torch.iinfo(target)
    near = [sign * 2.0**k * factor for k in range(-1, 70) for factor in (1.0, 1.5, 0.99) for sign in (1, -1)]
    values = torch.tensor([*near, -0.9, -1.0, 0.0, INF, -INF, NAN], dtype=torch.float64).to(dtype)
    expected = [not math.isfinite(v) or not info.min <= math.trunc(v) <= info.max for v in values.double().tolist()]
    assert out_of_range(values, target).tolist() == expected


def saturated(x: Tensor, dtype: torch.dtype) -> Tensor:
    """What an instruction that saturates gives."""
    info = torch.iinfo(dtype)
    exact = [0 if v != v else int(min(max(v, info.min), info.max)) for v in x.double().reshape(-1).tolist()]
    return torch.tensor(exact, dtype=dtype).reshape(x.shape)


@pytest.mark.few(9)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("target", sorted(INTEGERS, key=str), ids=str)
def test_another_machine_is_right_out_of_range_and_wrong_within(dtype: torch.dtype, target: torch.dtype) -> None:
    x = torch.tensor([1.75, INF, 3.0, NAN, -INF, torch.finfo(dtype).max, 100.0, 7.0], dtype=dtype)
    program = one("Tensor.to", X, target)
    found = compare(program, lambda x: saturated(x, target), x)
    assert found.outcome is Outcome.PASS, found
    for at, wrong in ((0, 2), (6, 101), (7, 0)):
        answer = saturated(x, target).tolist()
        answer[at] = wrong
        found = compare(program, lambda x, answer=answer: torch.tensor(answer, dtype=target), x)
        assert found.outcome is Outcome.MISMATCH, found
    found = compare(program, lambda x: saturated(x, torch.int64).to(torch.float32), x)
    assert (found.outcome, found.kind) == (Outcome.MISMATCH, Kind.DTYPE)


def test_a_nan_of_8_bits_is_out_of_range() -> None:
    """It becomes 0 in one loop of eager's, and the least integer in another machine's."""
    program = several(("Tensor.to", X, torch.float8_e4m3fnuz), ("Tensor.to", Ref("r0"), torch.int64))
    x = torch.tensor([300.0, 5.0])
    least = torch.iinfo(torch.int64).min
    assert compare(program, lambda x: torch.tensor([least, 5]), x).outcome is Outcome.PASS
    assert compare(program, lambda x: torch.tensor([least, 4]), x).outcome is Outcome.MISMATCH


@pytest.mark.parametrize("number", [NAN, -INF, 1e30])
def test_a_number_is_converted_as_a_tensor_is(number: float) -> None:
    program = one("Tensor.copy_", X, number)
    x = torch.zeros(2, dtype=torch.int32)
    for answer in (0, 7):
        found = compare(program, lambda x, answer=answer: x.fill_(answer), x)
        assert found.outcome is Outcome.UNTESTED, found
    assert compare(one("Tensor.copy_", X, 2.5), lambda x: x.fill_(3), x).outcome is Outcome.MISMATCH


VALUES = torch.tensor([1.5, INF, -3.0, NAN, 1e30, 12.0])
INTO = Program(
    ("x0", "x1"), (Call("torch.Tensor.copy_", (Y, X), {}, "r0"), Call("torch.add", (Y, 1), {}, "r1")), Ref("r1")
)
ROWS = torch.stack([VALUES, torch.arange(6.0)])


def clamped(x: Tensor) -> Tensor:
    return saturated(x, torch.int32)


RIGHT: dict[str, tuple[Program, Callable[..., object], tuple[Tensor, ...]]] = {
    "what follows is open too": (
        several(("Tensor.int", X), ("mul", Ref("r0"), 2)),
        lambda x: clamped(x) * 2,
        (VALUES,),
    ),
    "back in floats": (
        several(("Tensor.int", X), ("Tensor.float", Ref("r0"))),
        lambda x: clamped(x).float(),
        (VALUES,),
    ),
    "a row with such a number": (
        several(("Tensor.int", X), ("sum", Ref("r0"), 1)),
        lambda x: clamped(x).sum(1),
        (ROWS,),
    ),
    "converted by a sum": (one("sum", X, 1, dtype=torch.int32), lambda x: clamped(x).sum(1).int(), (ROWS,)),
    "converted by a running sum": (
        one("cumsum", X, 0, dtype=torch.int32),
        lambda x: clamped(x).cumsum(0).int(),
        (torch.tensor([1.0, 2.0, INF, 1.0]),),
    ),
    "written into another tensor": (
        INTO,
        lambda x, y: y.copy_(clamped(x)) + 1,
        (VALUES, torch.zeros(6, dtype=torch.int32)),
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_depends_on_it_is_left_open(name: str) -> None:
    found = compare(*RIGHT[name][:2], *RIGHT[name][2])
    assert found.outcome is Outcome.PASS, found


CAUGHT: dict[str, tuple[Program, Callable[..., object], tuple[Tensor, ...]]] = {
    "the other elements": (one("Tensor.int"), lambda x: clamped(x).index_fill(0, torch.tensor([5]), 11), (VALUES,)),
    "the other rows": (
        several(("Tensor.int", X), ("sum", Ref("r0"), 1)),
        lambda x: clamped(x).sum(1) + torch.tensor([0, 1]),
        (ROWS,),
    ),
    "before it in a running sum": (
        one("cumsum", X, 0, dtype=torch.int32),
        lambda x: torch.tensor([1, 4, 0, 0], dtype=torch.int32),
        (torch.tensor([1.0, 2.0, INF, 1.0]),),
    ),
    "a boolean, which any number is": (
        one("Tensor.bool"),
        lambda x: x.bool() & x.isfinite(),
        (VALUES,),
    ),
    "what does not depend on it": (
        several(("Tensor.byte", X), ("ge", Ref("r0"), 0)),
        lambda x: torch.zeros(6, dtype=torch.bool),
        (VALUES,),
    ),
    "integers, which wrap": (
        one("Tensor.to", X, torch.int8),
        lambda x: saturated(x, torch.int8),
        (torch.tensor([1, 300, 7]),),
    ),
    "the largest integer that a float has": (
        one("Tensor.int"),
        lambda x: torch.tensor([2147483647, 0], dtype=torch.int32),
        (torch.tensor([2147483520.0, INF]),),
    ),
}


@pytest.mark.parametrize("name", CAUGHT)
def test_everything_else_is_compared(name: str) -> None:
    found = compare(*CAUGHT[name][:2], *CAUGHT[name][2])
    assert found.outcome is Outcome.MISMATCH, found


def test_what_cannot_be_compared_is_untested() -> None:
    for program in (one("Tensor.int"), several(("Tensor.int", X), ("nonzero", Ref("r0")))):
        x = torch.tensor([INF, NAN])
        wrong = (lambda x: clamped(x)) if len(program.calls) == 1 else (lambda x: torch.zeros(0, 1, dtype=torch.int64))
        assert compare(program, wrong, x).outcome is Outcome.UNTESTED


def test_what_is_written_beside_is_compared_where_all_results_are_open() -> None:
    program = Program(
        ("x0", "x1"), (Call("torch.Tensor.int", (X,), {}, "r0"), Call("torch.Tensor.add_", (Y, 1), {}, "r1")), Ref("r0")
    )
    x, y = torch.tensor([INF, NAN]), torch.zeros(2)
    written = compare(program, lambda x, y: (clamped(x), y.add_(2))[0], x, y)
    assert (written.outcome, written.kind) == (Outcome.MISMATCH, Kind.MUTATION)
    assert compare(program, lambda x, y: (clamped(x) + 7, y.add_(1))[0], x, y).outcome is Outcome.UNTESTED


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_what_clamps_is_defined() -> None:
    """``quantize_per_tensor`` says what it gives of any finite number."""
    with StandIns("zero") as mode:
        quantized = torch.quantize_per_tensor(torch.tensor([1000.0, 2.0]), 1.0, 0, torch.quint8)
    assert quantized.int_repr().tolist() == [255, 2] and not mode.found


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "laguerre_polynomial_l"])
def test_a_degree_that_int64_does_not_hold_is_open(name: str) -> None:
    """It is the lowest number on x86, and the highest on a GPU."""
    program = one(f"special.{name}", X, Y)
    x, degree = torch.tensor([2.0, 0.5, NAN, 3.0]), torch.tensor([3.4e38, INF, -INF, 2.0])

    def put(last: float) -> Outcome:
        return compare(program, lambda x, n: torch.tensor([NAN, INF, 7.0, last]), x, degree).outcome

    right = program(x, degree)[3].item()
    assert put(right) is Outcome.PASS
    assert put(right + 1) is Outcome.MISMATCH
    held = torch.tensor([2.0, 5.0, 0.0, 2.0])
    assert (
        compare(program, lambda x, n: program(x, n) + torch.tensor([1.0, 0, 0, 0]), x, held).outcome is Outcome.MISMATCH
    )

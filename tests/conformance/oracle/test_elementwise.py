"""The comparator's properties: no number is too negative, too small, too odd or too special to be judged right."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from torchstone.conformance.oracle import tolerances
from torchstone.conformance.oracle.elementwise import (
    Reference,
    is_continuous_spread,
    within_reference,
    within_ulps,
)
from torchstone.conformance.oracle.equality import same_numbers
from torchstone.conformance.oracle.tolerances import COMPONENT, DEPARTURES, TABLE, tolerance
from torchstone.conformance.oracle.ulp import precision, representable, step, ulp, wide

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
SPECIAL = (0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, -1.0, 1e-45, -1e-40, 3.4e38)


def number(dtype: torch.dtype, value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float64).to(dtype)


def numbers(draw: st.DrawFn, dtype: torch.dtype) -> float:
    value = draw(st.sampled_from(SPECIAL) | st.floats(width=64))
    return number(dtype, value).item()


@st.composite
def dtype_and_number(draw: st.DrawFn) -> tuple[torch.dtype, float]:
    dtype = draw(st.sampled_from(DTYPES))
    return dtype, numbers(draw, dtype)


@st.composite
def dtype_and_two(draw: st.DrawFn) -> tuple[torch.dtype, float, float]:
    dtype = draw(st.sampled_from(DTYPES))
    return dtype, numbers(draw, dtype), numbers(draw, dtype)


def accepts(dtype: torch.dtype, actual: float, expected: float, truth: float, spread: float = 0.0) -> bool:
    """Whether the comparison and the referee together let a single number pass."""
    row = tolerance(dtype)
    b, e, f = (torch.tensor([value], dtype=torch.float64) for value in (actual, expected, truth))
    reference = Reference(f, torch.tensor([spread], dtype=torch.float64))
    return bool(within_ulps(b, e, dtype, row.ulps, row.tiny) | within_reference(b, e, reference, dtype, row))


@pytest.mark.parametrize(("eager_error", "right"), [(0.5, True), (6.0, False)])
def test_an_error_of_eagers_beyond_all_that_is_smooth_gives_no_room(eager_error: float, right: bool) -> None:
    """Eager has met a jump there, as a rounded floor does: 2.9 lies on neither side of it."""
    truth, actual = torch.tensor([3.75], dtype=torch.float64), torch.tensor([2.9], dtype=torch.float64)
    spread = torch.tensor([0.075], dtype=torch.float64)
    reference = Reference(truth, spread, smooth=torch.tensor([True]))
    row = tolerance(torch.bfloat16)
    assert bool(within_reference(actual, truth - eager_error, reference, torch.bfloat16, row)) is right


@given(dtype_and_number(), st.floats(width=64))
def test_eagers_own_value_always_passes(given_number: tuple[torch.dtype, float], truth: float) -> None:
    dtype, value = given_number
    assert accepts(dtype, value, value, truth)


def test_an_error_that_rounding_does_not_explain_may_be_hardly_larger_than_eagers() -> None:
    """As of a function of few digits beside its zero, where the rest of the roundings are many ULPs."""
    truth, row = torch.tensor([1.0, 6e-2], dtype=torch.float64), tolerance(torch.float64)
    off = torch.tensor([0.0, 3e-10], dtype=torch.float64)
    for times, right in ((1 + 2**-17, True), (1 + 2**-15, False), (1.5, False), (-0.5, True)):
        found = within_reference(truth + times * off, truth + off, Reference(truth, 0 * off), torch.float64, row)
        assert bool(found.all()) == right


@given(dtype_and_two())
def test_far_from_eager_and_from_float64_never_passes(drawn: tuple[torch.dtype, float, float]) -> None:
    dtype, actual, expected = drawn
    row = tolerance(dtype)
    assume(math.isfinite(expected))
    distance = abs(actual - expected)
    unit = ulp(torch.tensor(abs(expected), dtype=torch.float64), dtype).item()
    assume(not distance <= row.ulps * unit + row.tiny)
    assert not accepts(dtype, actual, expected, expected)


@given(dtype_and_number())
def test_nan_never_passes_for_a_number_nor_a_number_for_nan(drawn: tuple[torch.dtype, float]) -> None:
    dtype, value = drawn
    assume(not math.isnan(value))
    for truth in (value, 0.0, math.inf):
        assert not accepts(dtype, math.nan, value, truth, spread=1e300)
    assert not accepts(dtype, value, math.nan, math.nan, spread=1e300)


@given(dtype_and_number())
def test_infinity_never_passes_for_a_finite_number(drawn: tuple[torch.dtype, float]) -> None:
    dtype, value = drawn
    assume(math.isfinite(value))
    for infinity in (math.inf, -math.inf):
        assert not accepts(dtype, infinity, value, value, spread=1e300)
        assert not accepts(dtype, infinity, value, infinity)
        assert not accepts(dtype, value, infinity, infinity)
        assert not accepts(dtype, infinity, -infinity, infinity * -1)


@given(dtype_and_two(), st.floats(width=64))
def test_the_judgement_is_symmetric_in_sign(drawn: tuple[torch.dtype, float, float], truth: float) -> None:
    dtype, actual, expected = drawn
    assert accepts(dtype, actual, expected, truth) == accepts(dtype, -actual, -expected, -truth)


@pytest.mark.parametrize("dtype", DTYPES)
def test_zero_has_no_sign(dtype: torch.dtype) -> None:
    assert accepts(dtype, -0.0, 0.0, 0.0)
    assert accepts(dtype, 0.0, -0.0, -0.0)


@given(st.sampled_from(DTYPES), st.floats(min_value=2.0**-14, max_value=2.0**15), st.sampled_from([1, -1]))
def test_one_element_decides(dtype: torch.dtype, size: float, sign: int) -> None:
    """Right elements beside a wrong one do not help it: nothing is averaged."""
    value = number(dtype, sign * size).item()
    row = tolerance(dtype)
    expected = torch.full((1000,), value, dtype=torch.float64)
    actual = expected.clone()
    actual[617] += (row.ulps + 2) * ulp(expected[617].abs(), dtype)
    good = within_ulps(actual, expected, dtype, row.ulps, row.tiny)
    good |= within_reference(actual, expected, Reference(expected, torch.zeros(1000, dtype=torch.float64)), dtype, row)
    assert good.sum() == 999
    assert not good[617]


def test_empty_tensors_compare() -> None:
    nothing = torch.empty(0, dtype=torch.float64)
    row = tolerance(torch.float32)
    assert within_ulps(nothing, nothing, torch.float32, 1, 0).shape == (0,)
    assert within_reference(nothing, nothing, Reference(nothing, nothing), torch.float32, row).shape == (0,)


def test_the_backend_may_be_as_far_from_the_truth_as_eager_within_the_factor() -> None:
    eager, truth = 1.0 + 20 * 2.0**-23, 1.0
    assert accepts(torch.float32, 1.0 - 50 * 2.0**-23, eager, truth)
    assert not accepts(torch.float32, 1.0 - 120 * 2.0**-23, eager, truth)


def test_the_backend_may_be_right_where_eager_is_not() -> None:
    assert accepts(torch.float32, 1.0, 1.25, 1.0)
    assert accepts(torch.float32, 1.0, math.inf, 1.0)
    assert accepts(torch.float32, 1.0, math.nan, 1.0)
    assert not accepts(torch.float32, 1.5, math.inf, 1.0)
    assert accepts(torch.float16, math.inf, math.nan, 1e6)


def test_the_backend_may_overflow_where_eager_is_lost_and_the_largest_number_is_near() -> None:
    largest = torch.finfo(torch.float32).max
    for eager in (math.nan, -math.inf):
        assert accepts(torch.float32, math.inf, eager, largest)
        assert not accepts(torch.float32, math.inf, eager, 0.99 * largest)
    assert not accepts(torch.float32, -math.inf, math.nan, largest)
    assert not accepts(torch.float32, math.inf, largest, largest)


def test_a_jump_between_eager_and_float64_does_not_absolve_what_lies_beyond_it() -> None:
    for actual in (0.5, 2.0, 3.0, 100.0):
        assert not accepts(torch.float32, actual, 0.0, 1.0, spread=1.0)


def test_a_limit_taken_from_the_dtype_does_not_absolve_infinity() -> None:
    largest = torch.finfo(torch.float32).max
    assert not accepts(torch.float32, math.inf, largest, torch.finfo(torch.float64).max)


def complexes(*values: complex) -> Tensor:
    return torch.tensor(values, dtype=torch.complex128)


def test_complex_errors_are_distances_in_the_plane() -> None:
    row = tolerance(torch.complex64)
    tiny_part = complexes(1 + 1e-9j)
    assert within_ulps(complexes(1 + 2e-9j), tiny_part, torch.complex64, row.ulps, row.tiny).all()
    assert not within_ulps(complexes(1 + 1e-3j), tiny_part, torch.complex64, row.ulps, row.tiny).any()
    assert not within_ulps(complexes(1j), complexes(1), torch.complex64, row.ulps, row.tiny).any()


def test_complex_numbers_that_are_not_finite() -> None:
    inf, nan = math.inf, math.nan
    assert same_numbers(complexes(complex(inf, nan)), complexes(complex(inf, 3))).all()
    assert same_numbers(complexes(complex(nan, nan)), complexes(complex(inf, 3))).all()
    assert not same_numbers(complexes(complex(inf, 0)), complexes(complex(-inf, 0))).any()
    assert not same_numbers(complexes(complex(nan, 0)), complexes(1)).any()
    assert not same_numbers(complexes(complex(inf, 1)), complexes(complex(inf, 2))).any()


@pytest.mark.parametrize("dtype", [*TABLE, *COMPONENT])
def test_every_inexact_dtype_has_a_row(dtype: torch.dtype) -> None:
    row = tolerance(dtype)
    assert 0 < row.ulps < 2 ** (precision(dtype) - 1) or precision(dtype) <= 2
    assert row.factor >= 1
    assert 0 <= row.tiny < 1e-6


def test_the_table_covers_what_torch_has() -> None:
    inexact = {d for d in vars(torch).values() if isinstance(d, torch.dtype) and (d.is_floating_point or d.is_complex)}
    assert inexact - {torch.float4_e2m1fn_x2} == {*TABLE, *COMPONENT}


def test_departures_give_reasons() -> None:
    assert all(len(departure.trait.reason) > 20 for departure in DEPARTURES)


def held(source: str) -> list[str]:
    """The small numbers, and the numbers given to comparisons, that a module holds itself."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and type(node.value) is float and 0 < abs(node.value) < 0.01:
            found.append(repr(node.value))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and "close" in node.func.attr:
            found += [ast.unparse(a) for a in [*node.args[2:], *node.keywords] if "1e" in ast.unparse(a)]
    return found


def test_no_other_module_of_the_oracle_holds_a_tolerance() -> None:
    room = Path(tolerances.__file__).parent
    modules = [*room.rglob("*.py"), *(room.parent / "execution" / name for name in ("run_case.py", "repeatability.py"))]
    modules.remove(Path(tolerances.__file__))
    assert len(modules) > 30
    assert {module.name: held(module.read_text()) for module in modules if held(module.read_text())} == {}
    assert held("x = torch.allclose(a, b, 1e-5)") == ["1e-05", "1e-05"]


@pytest.mark.parametrize("dtype", DTYPES)
@given(size=st.floats(min_value=2.0**-24, max_value=2.0**15, width=16), sign=st.sampled_from([1, -1]))
def test_an_ulp_is_the_distance_to_the_next_number(dtype: torch.dtype, size: float, sign: int) -> None:
    tensor = torch.tensor([sign * size], dtype=torch.float64).to(dtype)
    up = step(tensor, 1)
    assert abs(wide(up) - wide(tensor)).item() == ulp(wide(tensor).abs(), dtype).item()
    assert torch.equal(step(up, -1), tensor)


def test_a_step_leaves_zeros_and_what_is_not_finite() -> None:
    for dtype in (*DTYPES, torch.complex64, torch.float8_e5m2):
        tensor = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan]).to(dtype)
        assert torch.equal(wide(step(tensor, 1)).nan_to_num(7), wide(tensor).nan_to_num(7))


def test_ulps_below_the_normal_range() -> None:
    assert ulp(torch.tensor(0.0, dtype=torch.float64), torch.float32).item() == 2.0**-149
    assert ulp(torch.tensor(2.0**-140, dtype=torch.float64), torch.float32).item() == 2.0**-149
    assert ulp(torch.tensor(1.0, dtype=torch.float64), torch.bfloat16).item() == 2.0**-7


def test_representable() -> None:
    values = torch.tensor([1.0, 0.1, math.nan, math.inf, 2.0**-149, 2.0**-150], dtype=torch.float64)
    assert representable(values, torch.float32).tolist() == [True, False, True, True, True, False]
    assert representable(torch.tensor([1 + 0.1j]), torch.complex64).tolist() == [True]
    assert representable(torch.tensor([0.1 + 0j], dtype=torch.complex128), torch.complex64).tolist() == [False]


def test_only_a_smooth_spread_may_exceed_half_the_digits() -> None:
    """Terms of about 1 cancel to 1e-8: an error of 1e-7 is rounding if the spread is smooth, perhaps a jump if not."""
    row = tolerance(torch.float32)
    actual, expected, truth = (torch.tensor([value], dtype=torch.float64) for value in (1e-7, 2e-8, 1e-8))
    spread = torch.tensor([6e-8], dtype=torch.float64)
    for smooth, passes in ((None, False), (torch.tensor([False]), False), (torch.tensor([True]), True)):
        reference = Reference(truth, spread, smooth)
        assert bool(within_reference(actual, expected, reference, torch.float32, row)) is passes
    beyond = torch.tensor([1e-5], dtype=torch.float64)
    assert not within_reference(beyond, expected, Reference(truth, spread, torch.tensor([True])), torch.float32, row)


def test_only_runs_that_leave_no_gap_are_strewn() -> None:
    """Amplified rounding is spread over its range; the two sides of a jump are not, however rough each of them is."""
    generator = torch.Generator().manual_seed(3)
    noise = torch.randn(17, 200, generator=generator, dtype=torch.float64)
    assert is_continuous_spread(list(noise)).double().mean() > 0.95
    sides = torch.randint(0, 2, noise.shape, generator=generator)
    sides[0], sides[1] = 0, 1
    assert not is_continuous_spread(list(sides + 0.05 * noise)).any()
    assert not is_continuous_spread(list(sides.double())).any()
    assert not is_continuous_spread(list(torch.zeros_like(noise))).any()
    assert not is_continuous_spread(list(noise[:4])).any()
    assert not is_continuous_spread(list(torch.complex(noise, sides.double()))).any()
    one = noise.clone()
    one[:, 7] = sides[:, 7].double()  # a jump among them is seen for itself
    assert not is_continuous_spread(list(one))[7] and is_continuous_spread(list(one)).double().mean() > 0.95
    assert not is_continuous_spread([*noise, noise[0] * torch.inf]).any()


def test_the_finite_part_of_a_complex_number_has_ulps_too() -> None:
    """6.7 - inf j: a unit in the last place of 6.7 is no other number; a digit of it is, and the other infinity."""
    inf = math.inf
    expected = torch.tensor([complex(6.7, -inf)], dtype=torch.complex128)
    given = {complex(6.7 + 2.0**-49, -inf): True, complex(6.8, -inf): False, complex(6.7, inf): False, 6.7 + 1j: False}
    for value, right in given.items():
        actual = torch.tensor([value], dtype=torch.complex128)
        assert bool(within_ulps(actual, expected, torch.complex128, 8, 0.0)) is right, value

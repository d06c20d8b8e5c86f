"""Values in combination: what the variants of numbers promise is really among the inputs."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor
from variant_cases import asked, case, own

from torchstone.conformance.program.case import Untested
from torchstone.conformance.variants.apply import apply
from torchstone.conformance.variants.dependence import groups, reach_of

VALUES = ("nan", "-nan", "inf", "-inf", "0", "-0", "1", "-1", "max", "min", "subnormal", "-subnormal", "own")
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


def kind_of(x: float, dtype: torch.dtype) -> str:
    """One of ``VALUES``."""
    info, sign = torch.finfo(dtype), "-" if math.copysign(1, x) < 0 else ""
    if math.isnan(x) or math.isinf(x) or x == 0 or abs(x) == 1:
        return sign + ("nan" if math.isnan(x) else "inf" if math.isinf(x) else str(abs(int(x))))
    if 0 < abs(x) < info.tiny:
        return f"{sign}subnormal"
    return {info.max: "max", info.min: "min"}.get(x, "own")


def kinds(tensor: Tensor) -> list[str]:
    signs = torch.where(torch.signbit(tensor), -1.0, 1.0)  # a cast may drop that of a NaN
    return [kind_of(x, tensor.dtype) for x in torch.copysign(tensor.double(), signs).flatten().tolist()]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "shapes", [[(5, 5), (5, 5)], [(5, 5), (5,)], [(3, 1), (1, 4)], [(20,), (20,)], [(2, 3, 4), (3, 4)]]
)
def test_every_pair_of_special_values_meets(dtype: torch.dtype, shapes: list[tuple[int, ...]]) -> None:
    changed = asked(case("torch.add", *(own(*shape, dtype=dtype) for shape in shapes)), "special")
    x, y = torch.broadcast_tensors(*changed.args)
    assert set(zip(kinds(x), kinds(y), strict=True)) == set(itertools.product(VALUES, VALUES))


def test_every_pair_of_three_operands_meets() -> None:
    changed = asked(case("torch.addcmul", own(5, 5), own(5, 5), own(5, 5)), "special")
    for one, other in itertools.combinations(map(kinds, changed.args), 2):
        assert set(zip(one, other, strict=True)) == set(itertools.product(VALUES, VALUES))


def test_scalars_get_every_value_by_their_samples() -> None:
    args = [asked(case("torch.add", own(), own(), index=i), "special").args for i in range(25)]
    drawn = [(xs[at], xs[at + 1]) for xs in args for at in range(0, len(xs), 2)]
    assert {kinds(x)[0] for x, _ in drawn} == set(VALUES) == {kinds(y)[0] for _, y in drawn}
    assert len({(kinds(x)[0], kinds(y)[0]) for x, y in drawn}) > 50


def test_a_sum_of_all_elements_meets_the_pairs_that_tell_in_one_program() -> None:
    rows = asked(case("torch.sum", own(20, 20)), "special").args
    assert {frozenset(kinds(row)) for row in rows} >= {
        frozenset({"own", *pair}) for pair in (("inf", "-inf"), ("0", "-0"))
    }


def test_values_meet_in_the_rows_of_a_sum() -> None:
    (x,) = asked(case("torch.sum", own(20, 20), args=(1,)), "special").args
    pairs = set()
    for row in x:
        found = [kind for kind in kinds(row) if kind != "own"]
        assert len(found) <= 2 and kinds(row).count("own") >= 18
        pairs.add(tuple(found))
    assert len(pairs) > 15
    (column,) = asked(case("torch.sum", own(20, 20), args=(0,)), "special").args
    assert all(kinds(row).count("own") >= 18 for row in column.T)


def test_special_values_meet_in_a_product_of_matrices() -> None:
    x, y = asked(case("torch.mm", own(16, 8), own(8, 16)), "special").args
    assert all(kinds(row).count("own") >= 6 for row in [*x, *y.T])
    together = {(a, b) for row in x for column in y.T for a, b in zip(kinds(row), kinds(column), strict=True)}
    assert {("nan", "own"), ("inf", "own"), ("own", "-inf"), ("own", "0")} <= together
    assert together & set(itertools.product(("inf", "-inf"), ("0", "-0")))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_both_sides_of_branch_cuts_and_infinities_with_nan(dtype: torch.dtype) -> None:
    (z,) = asked(case("torch.log", own(5, 5).to(dtype)), "special").args
    parts = {(str(re), str(im)) for re, im in torch.view_as_real(z).flatten(0, -2).tolist()}
    for size, zero in itertools.product(("2.0", "-2.0", "0.5", "-0.5", "1.0", "-1.0"), ("0.0", "-0.0")):
        assert {(size, zero), (zero, size)} <= parts
    for infinity in ("inf", "-inf"):
        assert {(infinity, "nan"), ("nan", infinity), (infinity, "-0.0"), (infinity, infinity)} <= parts


@pytest.mark.parametrize("target", ["torch.softmax", "torch.argmax", "torch.cumsum", "torch.sort", "torch.median"])
@pytest.mark.parametrize("dim", [0, 1])
def test_rows_are_wholly_one_value(target: str, dim: int) -> None:
    (x,) = asked(case(target, own(20, 20), args=(dim,)), "uniform").args
    rows = [kinds(row) for row in (x if dim else x.T)]
    whole = {row[0] for row in rows if len(set(row)) == 1}
    assert whole >= {"-inf", "nan", "inf", "0", "-0", "max", "own"}
    equal = [row for row in (x if dim else x.T) if len(set(row.tolist())) == 1 and kinds(row)[0] == "own"]
    assert equal and any(len(set(row.tolist())) > 1 for row in x.T)


def test_windows_of_a_pool_are_wholly_one_value() -> None:
    (x,) = asked(case("torch.nn.functional.max_pool1d", own(3, 4, 8), args=(2,)), "uniform").args
    windows = x.unfold(2, 2, 2).reshape(-1, 2)
    assert {kinds(window)[0] for window in windows if len(set(kinds(window))) == 1} >= {"-inf", "nan", "inf"}
    assert torch.nn.functional.max_pool1d(x, 2).isneginf().any()


def test_whole_numbers_have_equal_rows_and_indices_stay() -> None:
    (x,) = asked(case("torch.sum", torch.arange(400).reshape(20, 20), args=(1,)), "uniform").args
    values = [set(row.tolist()) for row in x]
    assert {0} in values and {torch.iinfo(torch.int64).min} in values and any(len(row) == 20 for row in values)
    index = torch.tensor([1, 0])
    for name in ("special", "extremes", "magnitudes"):
        changed = asked(case("torch.take", own(3, 4), index), name)
        assert all(set(x.tolist()) == {0, 1} for x in changed.args if x.dtype == torch.int64)
    apart = apply(case("torch.add", own(2), own(2)), "uniform")
    assert isinstance(apart, Untested) and "one element" in apart.reason


@pytest.mark.parametrize(
    "target, inputs, args, reach",
    [
        ("torch.add", [own(4, 3), own(4, 3)], (), [(1, 1), (1, 1)]),
        ("torch.sum", [own(4, 3)], (0,), [(4, 1)]),
        ("torch.sum", [own(4, 3)], (), [(4, 3)]),
        ("torch.mm", [own(4, 3), own(3, 5)], (), [(1, 3), (3, 1)]),
        ("torch.cumsum", [own(4, 3)], (1,), [(1, 3)]),
        ("torch.amax", [own(4, 3)], (1,), [(1, 3)]),
        ("torch.softmax", [own(4, 3)], (0,), [(4, 1)]),
        ("torch.nn.functional.max_pool1d", [own(2, 3, 8)], (2,), [(1, 1, 2)]),
        ("torch.nn.functional.layer_norm", [own(2, 3, 8)], ((8,),), [(1, 1, 8)]),
        ("torch.roll", [own(4, 3)], (1,), [(1, 1)]),
    ],
)
def test_eager_tells_which_elements_decide_together(
    target: str, inputs: list[Tensor], args: tuple, reach: list[tuple[int, ...]]
) -> None:
    given = case(target, *inputs, args=args)
    assert [reach_of(given, name) for name in given.inputs] == reach


def test_groups_are_blocks_of_the_reach() -> None:
    found = groups(case("torch.nn.functional.max_pool1d", own(1, 2, 5), args=(2,)), "x0")
    assert found.size == 2 and found.group.tolist() == [[[0, 0, 1, 1, 2], [3, 3, 4, 4, 5]]]
    assert found.place.tolist() == [[[0, 1, 0, 1, 0], [0, 1, 0, 1, 0]]]


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64, torch.int8, torch.int64, torch.uint8])
def test_magnitudes_are_spread_over_the_range(dtype: torch.dtype) -> None:
    (x,) = asked(case("torch.neg", own(20, 20).to(dtype)), "magnitudes").args
    parts = torch.view_as_real(x) if x.is_complex() else x
    sizes, real = parts.double().abs(), parts.is_floating_point()
    info = torch.finfo(parts.dtype) if real else torch.iinfo(parts.dtype)
    most = min(1e4, math.sqrt(info.max) if real else info.max)
    assert sizes.min() >= 1 and sizes.max() <= most * 1.01
    assert 0.35 < (sizes < math.sqrt(most)).double().mean() < 0.65
    assert bool((parts < 0).any()) == (info.min < 0) and (parts > 0).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int64])
def test_half_of_the_magnitudes_are_near_to_those_of_the_other_operand(dtype: torch.dtype) -> None:
    sides = [
        x if not x.is_complex() else torch.view_as_real(x)
        for x in asked(case("torch.add", own(20, 20).to(dtype), own(20, 20).to(dtype)), "magnitudes").args
    ]
    ratio = (sides[0].double() / sides[1].double()).abs().log().abs()
    assert 0.4 < (ratio < math.log(2)).double().mean() < 0.75 and (ratio > math.log(10)).double().mean() > 0.1


def test_a_case_is_the_same_whenever_it_is_made() -> None:
    given = case("torch.add", own(), own())
    for name in ("special", "extremes", "magnitudes"):
        assert asked(given, name).to_bytes() == asked(given, name).to_bytes()


@pytest.mark.parametrize(
    ("call", "dtype"),
    [
        (("torch.Tensor.half", ()), torch.float16),
        (("torch.Tensor.bfloat16", ()), torch.bfloat16),
        *((("torch.Tensor.to", (dtype,)), dtype) for dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.float16)),
    ],
)
def test_extremes_are_at_the_ends_of_what_a_program_converts_to(
    call: tuple[str, tuple[torch.dtype, ...]], dtype: torch.dtype
) -> None:
    (x,) = asked(case(call[0], torch.ones(30), args=call[1]), "extremes").args
    info, converted = torch.finfo(dtype), x.to(dtype).to(torch.float32)
    sizes = converted.abs()
    assert (sizes == info.max).any() and not (x.abs() == info.max).all()
    assert ((converted == 0) & (x != 0)).any()
    assert ((sizes > 0) & (sizes < info.tiny)).any(), "numbers that become subnormal"
    assert ((x.abs() > info.max) & (sizes == info.max)).any(), "numbers that round to the largest one"


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("source", [torch.float32, torch.bfloat16])
def test_conversions_to_integers_are_asked_what_narrower_ones_do_not_hold(
    source: torch.dtype, dtype: torch.dtype
) -> None:
    (x,) = asked(case("torch.Tensor.to", torch.ones(30, dtype=source), args=(dtype,)), "extremes").args
    numbers, limits = x.to(torch.float64), torch.iinfo(dtype)
    inside = numbers[(numbers.trunc() >= limits.min) & (numbers.trunc() <= limits.max)]
    assert (inside.trunc() == limits.min).any()
    for narrower in (torch.int8, torch.uint8, torch.int16, torch.int32):
        ends = torch.iinfo(narrower)
        if ends.max < limits.max:
            assert (inside > ends.max).any(), f"numbers beyond {narrower}"
            assert limits.min == 0 or (inside < min(ends.min, -1)).any()
    if dtype in (torch.int8, torch.uint8) and source is torch.float32:
        assert (inside > limits.max).any(), "numbers that are cut off to the largest one"

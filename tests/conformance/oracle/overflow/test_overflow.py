"""The oracle at the edge of the range: what the order of the steps decides is no fault, what it does not is caught."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map

from tests.conformance.oracle.test_compare import X, Y, compare, one, several
from tests.sampling import covering
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.overflow.model import RandomOverflow
from torchstone.conformance.program.program import Call, Program, Ref

INF, NAN = math.inf, math.nan
MAX = torch.finfo(torch.float32).max


def gives(*values: Any) -> Callable[..., Tensor]:
    return lambda *args: torch.tensor(values)


def gives64(*values: float) -> Callable[..., Tensor]:
    return lambda *args: torch.tensor(values, dtype=torch.float64)


def rows(*rows: list[float]) -> Tensor:
    return torch.tensor(rows)


SUM = one("sum", X, 1)
MM = one("mm", X, Y)
BOTH = rows([MAX, MAX, -MAX, -MAX, 1.0])
COLUMN = torch.ones(4, 1)
BAG = Program(
    ("x0", "x1", "x2"),
    (Call("torch.nn.functional.embedding_bag", (Y, X), {"mode": "sum", "per_sample_weights": Ref("x2")}, "r0"),),
    Ref("r0"),
)
LARGEST = one("nn.functional.embedding_bag", Y, X, mode="max")
INDICES = torch.tensor([[0, 1, 2]])


def bags(*values: float) -> Callable[..., Tensor]:
    return lambda *args: torch.tensor(values)[:, None]


FORM = Program(("x0", "x1", "x2"), (Call("torch.nn.functional.bilinear", (X, Ref("x2"), Y), {}, "r0"),), Ref("r0"))
FACTORS_OF_FORM = torch.tensor([[[1e-20, 2e-20], [3e-20, 4e-20]]])
GRADIENT = one("ops.aten._softmax_backward_data", X, Y, 1, torch.float32)
GROUP = Program(
    ("x0", "x1", "x2"), (Call("torch.nn.functional.group_norm", (X, 1, Y, Ref("x2")), {}, "r0"),), Ref("r0")
)
PUT = Program(("x0", "x1", "x2"), (Call("torch.put", (X, Y, Ref("x2"), True), {}, "r0"),), Ref("r0"))


def one_pass(x: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and the variance of rows, term by term (Welford)."""
    mean, squares = torch.zeros(len(x)), torch.zeros(len(x))
    for count, term in enumerate(x.unbind(1), 1):
        before = term - mean
        mean = mean + before / count
        squares = squares + before * (term - mean)
    return mean, squares / (x.shape[1] - 1)


SOFT: dict[str, tuple[Program, Callable[..., Any], tuple[Tensor, ...]]] = {
    "a sum that begins with the other sign": (SUM, gives(-INF), (BOTH,)),
    "a sum of halves that overflow both ways": (SUM, gives(NAN), (BOTH,)),
    "overflow where eager's order has none": (SUM, gives(INF), (rows([MAX, -MAX, MAX, -MAX, 1.0]),)),
    "an infinity met by an overflow": (SUM, gives(NAN), (rows([INF, -MAX, -MAX, 1.0]),)),
    "a contraction": (MM, lambda x, y: torch.full((1, 1), NAN), (rows([MAX, MAX, -MAX, -MAX]), COLUMN * 2)),
    "a difference of products": (
        several(("mul", X, X), ("mul", Y, Y), ("sub", Ref("r0"), Ref("r1")), inputs=("x0", "x1")),
        gives(INF),
        (torch.tensor([2e20]), torch.tensor([3e20])),
    ),
    "an embedding bag": (BAG, bags(NAN), (rows([MAX], [-MAX], [1.0]), INDICES, rows([2.0, 2.0, 1.0]))),
    "the mean of an infinity": (
        one("var_mean", X, 1),
        lambda x: (torch.tensor([NAN]), torch.tensor([INF])),
        (rows([INF, 1, 2, 3]),),
    ),
    "one of two products fused into their sum, of many elements": (
        several(("mul", X, X), ("mul", Y, Y), ("sub", Ref("r0"), Ref("r1")), inputs=("x0", "x1")),
        lambda x, y: x * x - y * y.clamp(max=1e-30),
        (torch.full((200,), 2e20), torch.full((200,), 3e20)),
    ),
    "a mean in one pass": (
        one("std_mean", X, 1),
        lambda x: (one_pass(x)[1].sqrt(), one_pass(x)[0]),
        (rows([MAX, -MAX, 1.0, 2.0]),),
    ),
    "the root of -1 in a transform of -inf": (
        one("fft.irfft", X),
        lambda x: torch.fft.irfft(x).index_fill(0, torch.tensor([0]), -INF),
        (torch.full((4,), -INF),),
    ),
    "an infinite operand of a bilinear form": (
        FORM,
        gives([NAN]),
        (rows([INF, 1.0]), FACTORS_OF_FORM, rows([1.0, -2.0])),
    ),
    "three operands that overflow by twos": (
        FORM,
        gives([NAN]),
        (rows([1e30, 1e30]), FACTORS_OF_FORM, rows([1e30, -1e30])),
    ),
    "factors that are added up first": (
        GRADIENT,
        lambda g, y: (g - (g * y).sum(1, keepdim=True)) * y,
        (rows([1.0, 2.0]), rows([INF, 1.0])),
    ),
    "a norm as documented": (
        GROUP,
        lambda x, w, b: (x + 1) * 2.00001**-0.5 * w + b,
        (torch.tensor([[[-2.0, -2.0, 1.0]]]), torch.tensor([MAX]), torch.tensor([-2e38])),
    ),
    "terms put at one place": (
        PUT,
        gives(NAN),
        (torch.tensor([MAX]), torch.tensor([0, 0, 0]), torch.tensor([MAX, -MAX, -MAX])),
    ),
    "terms added in place": (
        several(("Tensor.clone", X), ("Tensor.put_", Ref("r0"), Ref("x1"), Ref("x2"), True), inputs=("x0", "x1", "x2")),
        gives(NAN),
        (torch.tensor([MAX]), torch.tensor([0, 0, 0]), torch.tensor([MAX, -MAX, -MAX])),
    ),
    "a running mean that overflows": (one("std", X, 1), gives(NAN), (rows([MAX, -MAX, 1.0, 2.0, 3.0]),)),
    "an infinity times a root of unity": (
        one("fft.irfft", X),
        lambda x: torch.full((6,), NAN),
        (torch.tensor([1.0, 2.0, INF, 4.0]),),
    ),
}


def in_dtype(
    dtype: torch.dtype, program: Program, other: Callable[..., Any], tensors: tuple[Tensor, ...]
) -> tuple[Program, Callable[..., Any], tuple[Tensor, ...]]:
    """The case at the edge of the range of ``dtype``: whose squares overflow in float32, do in float64 too."""
    if dtype is torch.float32:
        return program, other, tensors

    def widened(value: Tensor) -> Tensor:
        if value.dtype is not torch.float32:
            return value
        wide = value.double()
        size = wide.abs()
        large = torch.where(size > 1e18, wide * size**7, torch.where(size >= 100, wide * 8, wide))
        large = torch.where(size == MAX, torch.finfo(torch.float64).max * wide.sign(), large)
        return torch.where(torch.isfinite(wide), large, wide)

    return program, lambda *args: tree_map(widened, other(*args)), tuple(map(widened, tensors))


DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


@pytest.mark.few(5)
@DTYPES
@pytest.mark.parametrize("name", SOFT)
def test_what_the_order_decides_is_ill_conditioned(name: str, dtype: torch.dtype) -> None:
    program, other, tensors = in_dtype(dtype, *SOFT[name])
    finding = compare(program, other, *tensors)
    # Eager takes some order too, on each processor its own: what it gives itself is right.
    pairs = zip(*(tree_flatten(run(*tensors))[0] for run in (program, other)), strict=True)
    as_eager = all(torch.equal(a.nan_to_num(0.125), b.nan_to_num(0.125)) for a, b in pairs)
    assert finding.outcome is (Outcome.PASS if as_eager else Outcome.ILL_CONDITIONED), finding


CAUGHT: dict[str, tuple[Program, Callable[..., Any], tuple[Tensor, ...]]] = {
    "a NaN of moments whose squares are in range": (one("std", X, 1), gives(NAN), (rows([1e18, -1e18, 1.0, 2.0]),)),
    "NaN left out of a bilinear form": (FORM, gives([INF]), (rows([NAN, 1.0]), FACTORS_OF_FORM, rows([1.0, INF]))),
    "a bilinear form of numbers in range": (
        FORM,
        gives([NAN]),
        (rows([1.0, 2.0]), FACTORS_OF_FORM, rows([1.0, -2.0])),
    ),
    "a number for an infinite gradient": (GRADIENT, gives([1.0, 1.0]), (rows([1.0, 2.0]), rows([INF, 1.0]))),
    "a neighbour of an infinite gradient": (
        GRADIENT,
        lambda g, y: ((g - (g * y).sum(1, keepdim=True)) * y).index_fill(0, torch.tensor([1]), NAN),
        (rows([1.0, 2.0], [1.0, 2.0]), rows([INF, 1.0], [0.5, 0.5])),
    ),
    "what is put alone, overflowed": (
        Program(("x0", "x1", "x2"), (Call("torch.put", (X, Y, Ref("x2"), False), {}, "r0"),), Ref("r0")),
        gives(INF),
        (torch.tensor([MAX]), torch.tensor([0, 0, 0]), torch.tensor([MAX, -MAX, -MAX])),
    ),
    "NaN of terms of one sign put at one place": (
        PUT,
        gives(NAN),
        (torch.tensor([MAX]), torch.tensor([0, 0]), torch.tensor([MAX, 1.0])),
    ),
    "NaN left out of a sum": (SUM, lambda x: x.nansum(1), (rows([MAX, NAN, -MAX, 1.0]),)),
    "NaN left out of an overflow": (SUM, gives(INF), (rows([MAX, MAX, NAN]),)),
    "the wrong infinity": (SUM, gives(-INF), (rows([INF, MAX, MAX]),)),
    "the wrong infinity, met by an overflow": (SUM, gives(-INF), (rows([INF, -MAX, -MAX]),)),
    "overflow on the side that stays in range": (SUM, gives(-INF), (rows([MAX, MAX, -1.0]),)),
    "NaN of one sign": (SUM, gives(NAN), (rows([MAX, MAX, -1.0]),)),
    "a finite number that no order gives": (SUM, gives(1e36), (BOTH,)),
    "infinity for the largest number": (SUM, gives(INF), (rows([MAX, 1.0, -1.0]),)),
    "a neighbour of what overflows": (SUM, gives(NAN, NAN), (rows([MAX, MAX, -MAX, -MAX], [1.0, 2.0, 3.0, 4.0]),)),
    "an infinity lost by a contraction": (
        MM,
        lambda x, y: torch.full((1, 1), 3.0),
        (rows([INF, 1.0, 1.0, 1.0]), COLUMN),
    ),
    "the wrong infinity in a contraction": (
        MM,
        lambda x, y: -(x @ y),
        (rows([INF, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, -INF]), COLUMN),
    ),
    "a contraction that overflows one way": (
        MM,
        lambda x, y: torch.full((1, 1), NAN),
        (rows([MAX, MAX, 1.0, 1.0]), COLUMN),
    ),
    "an embedding bag that overflows one way": (
        BAG,
        bags(NAN),
        (rows([MAX], [-1.0], [1.0]), INDICES, rows([2.0, 2, 1])),
    ),
    "the wrong infinity of an embedding bag": (
        BAG,
        bags(-INF),
        (rows([MAX], [-1.0], [1.0]), INDICES, rows([2.0, 2, 1])),
    ),
    "a neighbour of an embedding bag that overflows": (
        BAG,
        bags(NAN, NAN),
        (rows([MAX], [-MAX], [1.0]), torch.tensor([[0, 1, 2], [2, 2, 2]]), rows([2.0, 2.0, 1.0], [1.0, 2.0, 3.0])),
    ),
    "an embedding bag one part in a thousand off": (
        BAG,
        bags(14.014),
        (rows([1.0], [2.0], [3.0]), INDICES, rows([1.0, 2.0, 3.0])),
    ),
    "the largest of an embedding bag": (LARGEST, bags(INF), (rows([MAX], [-MAX], [MAX]), INDICES)),
    "an overflow that eager's steps avoid": (
        one("softmax", X, 1),
        lambda x: x.exp() / x.exp().sum(1, keepdim=True),
        (rows([300.0, 200.0, 0.0]),),
    ),
    "a sum of squares that eager scales": (
        one("hypot", X, Y),
        lambda x, y: (x * x + y * y).sqrt(),
        (rows([3e20]), rows([4e20])),
    ),
    "a product": (one("mul", X, Y), gives(NAN), (torch.tensor([MAX]), torch.tensor([2.0]))),
    "the sign of a product": (one("mul", X, Y), gives(-INF), (torch.tensor([MAX]), torch.tensor([2.0]))),
    "the largest number for infinity": (one("mul", X, Y), gives(MAX), (torch.tensor([INF]), torch.tensor([2.0]))),
    "NaN for infinity, elementwise": (one("exp"), gives(NAN), (torch.tensor([INF]),)),
    "maximum that loses NaN": (one("amax", X, 1), gives(MAX), (rows([MAX, NAN, 1.0]),)),
    "sorted with NaN first": (one("msort"), lambda x: x.sort(0)[0].flip(0), (torch.tensor([MAX, NAN, 1.0]),)),
    "the mean of an infinity, as the other": (
        one("var_mean", X, 1),
        lambda x: (torch.tensor([NAN]), torch.tensor([-INF])),
        (rows([INF, 1, 2, 3]),),
    ),
    "the mean of large numbers of one sign": (
        one("var_mean", X, 1),
        lambda x: (torch.tensor([INF]), torch.tensor([NAN])),
        (rows([MAX, 1.0, 2.0, 3.0]),),
    ),
    "the mean of numbers that are not far apart": (
        one("var_mean", X, 1),
        lambda x: (torch.tensor([INF]), torch.tensor([NAN])),
        (rows([MAX / 4, -MAX / 4, 1.0, 2.0]),),
    ),
    "NaN left out of a variance": (one("var", X, 1), lambda x: x[:, 1:].var(1), (rows([NAN, 1, 2, 3]),)),
    "NaN left out of a norm": (
        one("nn.functional.layer_norm", X, [4]),
        lambda x: torch.nn.functional.layer_norm(x.nan_to_num(0, 0, 0), [4]),
        (rows([NAN, 1, 2, 3], [INF, 1, 2, 3]),),
    ),
    "NaN left out of a transform": (
        one("fft.fft"),
        lambda x: torch.fft.fft(x.nan_to_num(0.0)),
        (torch.tensor([1.0, NAN, 3.0, 4.0]),),
    ),
    "another row of a transform": (
        one("fft.irfft"),
        lambda x: torch.full((2, 6), NAN),
        (rows([1.0, 2.0, INF, 4.0], [1.0, 2.0, 3.0, 4.0]),),
    ),
    "the count of NaN by mode": (
        one("mode", X, 1),
        lambda x: (x[:, 0], torch.tensor([1, 1])),
        (rows([NAN, 1.0], [2.0, 3.0]),),
    ),
}


# Each in one dtype, and the next one in the other: the long tests ask both of each.
@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        pytest.param(name, dtype, marks=() if (at + place) % 2 == 0 else pytest.mark.torture, id=f"{name}-{dtype}")
        for at, name in enumerate(CAUGHT)
        for place, dtype in enumerate((torch.float32, torch.float64))
    ],
)
def test_wrong_results_at_the_edge_of_the_range_are_caught(name: str, dtype: torch.dtype) -> None:
    program, wrong, tensors = in_dtype(dtype, *CAUGHT[name])
    finding = compare(program, wrong, *tensors)
    assert finding.outcome is Outcome.MISMATCH, finding


NORM = Program(
    ("x0", "x1", "x2"),
    (Call("torch.nn.functional.batch_norm", (X, None, None, Y, Ref("x2"), True), {}, "r0"),),
    Ref("r0"),
)


@pytest.mark.few(1)
@pytest.mark.parametrize("size", [1.0, 0.25])
def test_a_norm_may_overflow_where_its_documented_steps_do(size: float) -> None:
    weight, bias = torch.tensor([size * MAX]), torch.tensor([size * -2e38])  # 4.8e38 - 2e38 is in range
    x = rows([-2.0], [-2.0], [1.0])
    finding = compare(NORM, lambda x, w, b: (x + 1) * 2.00001**-0.5 * w + b, x, weight, bias)
    assert finding.outcome is (Outcome.ILL_CONDITIONED if size == 1.0 else Outcome.PASS), finding
    wrong = compare(NORM, lambda x, w, b: torch.where(x > 0, INF, (x + 1) * 2.00001**-0.5 * w + b), x, weight, bias)
    assert (wrong.outcome is Outcome.MISMATCH) == (size != 1.0), wrong


PROD = one("prod", X, 1)
MIXED = [2.0, -2.0, 0.5, 0.5]
"""Factors, as powers of these: their product is -1, and each pair of them is out of range."""
POWERS = {torch.float32: 100, torch.float64: 600}
FACTORS: dict[str, tuple[list[float], float, bool]] = {
    "large ones first": (MIXED, -INF, True),
    "small ones first": (MIXED, 0.0, True),
    "the small apart from the large": (MIXED, NAN, True),
    "all in turn": (MIXED, -1.0, True),
    "the wrong infinity": (MIXED, INF, False),
    "a number of no order": (MIXED, -1.01, False),
    "one is 0": ([2.0, 0.0, 2.0], NAN, True),
    "one is 0, and lost": ([2.0, 0.0, 2.0], INF, False),
    "NaN, and none is small": ([2.0, -2.0, 0.9], NAN, False),
    "0, and none is small": ([2.0, -2.0, 0.9], 0.0, False),
    "infinite, and none is large": ([0.5, 0.5, 1.1], INF, False),
    "NaN is lost": ([2.0, 2.0, NAN], INF, False),
    "infinity is lost": ([INF, 2.0, 1.0], 0.0, False),
}


@pytest.mark.few(1)
@pytest.mark.parametrize(("name", "dtype"), covering([*FACTORS], [torch.float32, torch.float64], strength=1))
def test_the_order_of_factors_decides_what_overflows_and_no_sign(name: str, dtype: torch.dtype) -> None:
    bases, result, right = FACTORS[name]
    base = torch.tensor([bases, [1.0] * len(bases)], dtype=torch.float64)
    x = (base.abs() ** POWERS[dtype] * base.sign()).to(dtype)
    x[0] = torch.where(base[0].isfinite(), x[0], base[0].to(dtype))
    finding = compare(PROD, lambda x: torch.tensor([result, 1.0], dtype=dtype), x)
    assert (finding.outcome is not Outcome.MISMATCH) == right, finding


@pytest.mark.torture
def test_beside_factors_that_overflow_all_is_judged_as_ever() -> None:
    x = torch.tensor([[2.0**100, -(2.0**100), 2.0**-100, 2.0**-100], [1.0, 2.0, 3.0, 4.0]])
    for wrong in (lambda x: torch.tensor([NAN, 25.0]), lambda x: torch.tensor([NAN, NAN])):
        assert compare(PROD, wrong, x).outcome is Outcome.MISMATCH
    scan = compare(one("cumprod", X, 1), lambda x: x.cumprod(1).index_fill(1, torch.tensor([0]), 7.0), x)
    assert scan.outcome is Outcome.MISMATCH, scan


def test_float64_that_overflows_only_when_rounded_is_right() -> None:
    x = torch.tensor([MAX, MAX, 1e20, -1e20], dtype=torch.float32)
    finding = compare(one("fft.fft"), lambda x: torch.fft.fft(x.double()).to(torch.complex64), x)
    assert finding.outcome is Outcome.PASS, finding


def test_two_terms_that_cancel_have_a_spread() -> None:
    # In float32 nothing of 1.5 is left beside the others, in another order all of it.
    x = torch.tensor([[MAX, -MAX, 1.5], [MAX, 1.5, -MAX]])
    finding = compare(SUM, gives(1.5, 1.5), x)
    assert finding.outcome is Outcome.PASS, finding
    small = compare(one("sum", X, 1), gives(1.5, 2.5), rows([1.0, 0.5], [1.0, 0.5]))
    assert small.outcome is Outcome.MISMATCH


def test_the_largest_numbers_of_float64_have_a_spread_too() -> None:
    # (max + max j) has no modulus in float64; what cancels beside it may come out in another order all the same.
    largest = torch.finfo(torch.float64).max
    x = torch.tensor([[largest, -largest, 1.5], [largest, 1.5, -largest], [largest, 0.0, 0.0]], dtype=torch.float64)
    x = torch.complex(x, x)
    finding = compare(SUM, lambda x: torch.tensor([1.5 + 1.5j, 1.5 + 1.5j, x[2, 0]], dtype=torch.complex128), x)
    assert finding.outcome is not Outcome.MISMATCH, finding
    wrong = compare(SUM, lambda x: torch.tensor([1e301, 0, x[2, 0]], dtype=torch.complex128), x)
    assert wrong.outcome is Outcome.MISMATCH, wrong


ROW = torch.tensor([[0.0, 1e200, 1e200], [1.0, 2.0, 3.0]], dtype=torch.float64)
OTHER = torch.tensor([[0.0, 2e200, 3e200], [4.0, 5.0, 6.0]], dtype=torch.float64)
WIDEST = torch.finfo(torch.float64).max
# One term of many that overflow in the order eager takes: the exact result is 1e308.
LONG = torch.tensor([[WIDEST, WIDEST, -WIDEST, -WIDEST, 1e308], [1.0, 2.0, 3.0, 4.0, 5.0]], dtype=torch.float64)


def first(value: float, of: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """What ``of`` gives, with another number first."""

    def wrong(*args: Tensor) -> Tensor:
        out = of(*args)
        out.view(-1)[0] = value
        return out

    return wrong


MEAN = one("var_mean", X)
CANCELLED = torch.tensor([WIDEST, 2.0, -4.0, -WIDEST, -3.25, -5.25], dtype=torch.float64)
SAMPLE = one("grid_sampler_2d", X, Y, 2, 1, True)
SAMPLED = (
    torch.tensor([[WIDEST, WIDEST], [-WIDEST, WIDEST]], dtype=torch.float64).reshape(1, 1, 2, 2),
    torch.zeros(1, 1, 1, 2, dtype=torch.float64),
)


def sample(x: Tensor, grid: Tensor) -> Tensor:
    """What eager's steps, which overflow, are of numbers of ordinary size."""
    return torch.grid_sampler_2d(x * 2.0**-600, grid, 2, 1, True) * 2.0**600


def mean_of(value: float) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    return lambda x: (torch.var_mean(x)[0], torch.tensor(value, dtype=torch.float64))


IN_FLOAT64: dict[str, tuple[Program, Callable[..., Any], tuple[Tensor, ...], bool]] = {
    "a cross product by other steps": (one("linalg.cross", X, Y), first(INF, torch.linalg.cross), (ROW, OTHER), True),
    "a cross product of ordinary numbers": (
        one("linalg.cross", X, Y),
        lambda x, y: torch.linalg.cross(x, y).index_fill(0, torch.tensor([1]), NAN),
        (ROW, OTHER),
        False,
    ),
    "a finite cross product that nothing gives": (
        one("linalg.cross", X, Y),
        first(1e300, torch.linalg.cross),
        (ROW, OTHER),
        False,
    ),
    "the exact sum": (SUM, gives64(1e308, 15.0), (LONG,), True),
    "a sum twice the exact one": (SUM, gives64(1.5e308, 15.0), (LONG,), False),
    "the exact sum, with a term left out of its neighbour": (SUM, gives64(1e308, 14.0), (LONG,), False),
    "a mean whose large terms cancel": (MEAN, mean_of(-1.75), (CANCELLED,), True),
    "a mean whose small terms were lost": (MEAN, mean_of(0.0), (CANCELLED,), True),
    "a mean beyond its small terms": (MEAN, mean_of(1e10), (CANCELLED,), False),
    "a sample of one operand, by other steps": (SAMPLE, sample, SAMPLED, True),
    "a sample of half an operand": (SAMPLE, lambda x, g: sample(x, g) / 2, SAMPLED, False),
    "a transform beside the exact one": (
        one("fft.fft"),
        lambda x: torch.fft.fft(x * 2.0**-8) * 2.0**8,
        (torch.tensor([WIDEST, WIDEST, -WIDEST, -WIDEST, 1.0, 2.0, 3.0], dtype=torch.float64),),
        True,
    ),
    "a transform of something else": (
        one("fft.fft"),
        lambda x: torch.fft.fft(x * 2.0**-9) * 2.0**8,
        (torch.tensor([WIDEST, WIDEST, -WIDEST, -WIDEST, 1.0, 2.0, 3.0], dtype=torch.float64),),
        False,
    ),
}


SEARCHED = "a sample of half an operand"
"""Six seconds of a search that finds nothing."""


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.torture if name == SEARCHED else ()) for name in IN_FLOAT64]
)
def test_what_only_float64_can_hold_is_judged_by_scaled_operands(name: str) -> None:
    program, other, tensors, right = IN_FLOAT64[name]
    finding = compare(program, other, *tensors)
    assert (finding.outcome is not Outcome.MISMATCH) == right, finding


@pytest.mark.parametrize("dtype, largest", [(torch.float16, 65504.0), (torch.bfloat16, 3.3895313892515355e38)])
def test_the_halves_are_added_up_in_float32(dtype: torch.dtype, largest: float) -> None:
    x = torch.tensor([largest, largest, -largest, -largest], dtype=torch.float64)
    with RandomOverflow(dtype, 0, "up", "never"):
        total = x.sum()
    assert math.isinf(float(total)) == (dtype is torch.bfloat16)

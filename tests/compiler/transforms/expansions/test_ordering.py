"""Sorting and searching against eager: ties, NaN, -0, empty and 0-d tensors, unordered boundaries."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim

from tests.sampling import one_in
from torchstone.compiler.driver import compile

Agrees = Callable[..., None]
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
TENSORS = {
    "ties": torch.tensor([[3, 1, 3, 0, 1], [2, 2, 2, 2, 2], [0, 1, 2, 3, 4]]),
    "nan": torch.tensor([[3, math.nan, -0.0, 0.0, 1], [math.nan] * 5, [math.inf, 1, math.nan, -math.inf, math.nan]]),
    "distinct": torch.tensor([[5, 1, 3, 9, 4], [12, 0, 32, 2, 6], [7, 8, 0, 3, 4]]),
    "0-d": torch.tensor(7),
    "empty": torch.ones(0, 3),
    "no rows": torch.ones(2, 0),
}


def _tensors(dtype: torch.dtype) -> list[torch.Tensor]:
    fits = dtype.is_floating_point
    return [x.to(dtype) for name, x in TENSORS.items() if fits or name != "nan"]


def _runs(fn: Callable[..., Any], *args: Any) -> bool:
    try:
        fn(*args)
    except (RuntimeError, IndexError):
        return False
    return True


def _points_at(agrees: Agrees, fn: Callable[[torch.Tensor], Any], x: torch.Tensor, dim: int) -> None:
    """The values are eager's, each index is where ``x`` has the value: which of equal elements, PyTorch leaves open."""
    agrees(lambda x: fn(x)[0], x)
    values, indices = compile(fn, (x,), target="evaluator")(x)
    at = torch.gather(x, dim, indices) if x.dim() else x
    torch.testing.assert_close(at, values, rtol=0, atol=0, equal_nan=True)


@pytest.mark.few(3)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool])
def test_sort_is_stable(agrees: Agrees, dtype: torch.dtype) -> None:
    for x in _tensors(dtype):
        for descending in (False, True):
            for dim in (-1, 0):
                agrees(lambda x, d=dim, s=descending: torch.sort(x, d, s), x)
                agrees(lambda x, d=dim, s=descending: torch.sort(x, dim=d, descending=s, stable=True), x)
                agrees(lambda x, d=dim, s=descending: torch.argsort(x, dim=d, descending=s, stable=True), x)


@pytest.mark.few(1)
@pytest.mark.parametrize("dtype", one_in(2, [*FLOATS, *INTEGERS]))
def test_chosen_elements_have_eagers_value_and_point_at_it(agrees: Agrees, dtype: torch.dtype) -> None:
    for x in _tensors(dtype):
        for dim in (-1, 0):
            size = x.shape[dim] if x.dim() else 1
            for k in {0, min(1, size), size // 2, size}:
                for largest in (True, False):
                    _points_at(agrees, lambda x, k=k, d=dim, g=largest: torch.topk(x, k, d, g), x, dim)
            for k in {1, (size + 1) // 2, size} - {0}:
                if _runs(torch.kthvalue, x, k, dim):
                    _points_at(agrees, lambda x, k=k, d=dim: torch.kthvalue(x, k, d, keepdim=True), x, dim)
            for op in (torch.median, torch.nanmedian):
                if _runs(op, x, dim):
                    _points_at(agrees, lambda x, d=dim, op=op: op(x, d, keepdim=True), x, dim)


def test_indices_of_distinct_elements_are_eagers(agrees: Agrees) -> None:
    x = TENSORS["distinct"].float()
    for fn in (lambda x: torch.topk(x, 3, 0), lambda x: torch.kthvalue(x, 2), lambda x: torch.median(x, 0)):
        agrees(fn, x)
    agrees(lambda x: torch.median(x, 1), TENSORS["nan"])  # the first NaN


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
def test_median_of_all(agrees: Agrees, dtype: torch.dtype) -> None:
    for x in _tensors(dtype):
        if x.numel() or dtype.is_floating_point:
            agrees(torch.median, x)
            agrees(torch.nanmedian, x)


@pytest.mark.few(7)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, torch.bool])
def test_mode_is_the_smallest_of_the_most_frequent_and_its_last_index(agrees: Agrees, dtype: torch.dtype) -> None:
    for x in _tensors(dtype):
        for dim in (-1, 0):
            if _runs(torch.mode, x, dim) and not x.isnan().any():
                agrees(lambda x, d=dim: torch.mode(x, d), x)
                agrees(lambda x, d=dim: torch.mode(x, d, keepdim=True), x)


def test_a_nan_is_as_frequent_as_any_single_value() -> None:
    x = torch.tensor([math.nan, 2.0, math.nan, 1.0, 2.0])
    value, index = compile(torch.mode, (x,), target="evaluator")(x)
    assert (value.item(), index.item()) == (2.0, 4)


@pytest.mark.few(4)
@pytest.mark.parametrize("interpolation", ["linear", "lower", "higher", "midpoint", "nearest"])
def test_quantiles(agrees: Agrees, interpolation: str) -> None:
    q = torch.tensor([0.0, 0.3, 0.5, 1.0])
    for x in (TENSORS["distinct"].float(), TENSORS["nan"]):
        for op in (torch.quantile, torch.nanquantile):
            agrees(lambda x, q, op=op: op(x, q, dim=1, interpolation=interpolation), x, q)
            agrees(lambda x, q, op=op: op(x, 0.25, interpolation=interpolation), x, q)


def test_sizes_known_at_run_time() -> None:
    def program(x: torch.Tensor) -> Any:
        return torch.sort(x, 0), torch.median(x, 0), torch.nanmedian(x, 0), torch.mode(x, 0), x.topk(2, 0)

    shapes = ({0: Dim("n", min=2)},)
    compiled = compile(program, (torch.rand(4, 3),), target="evaluator", dynamic_shapes=shapes)
    x = torch.tensor([[5.0, 1, 2], [4, math.nan, 3], [6, 1, 9], [2, 7, 9], [1, 3, 9], [0, 4, 0], [8, 1, 1]])
    torch.testing.assert_close(compiled(x), program(x), equal_nan=True)


# Searching.


@pytest.mark.few(14)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS])
@pytest.mark.parametrize("right", [False, True])
def test_searchsorted(agrees: Agrees, dtype: torch.dtype, right: bool) -> None:
    boundaries = torch.tensor([[1, 3, 3, 7, 9], [0, 0, 0, 2, 4], [9, 1, 5, 2, 3]]).to(dtype)
    x = torch.arange(12).reshape(3, 4).to(dtype)
    agrees(lambda s, x: torch.searchsorted(s, x, right=right), boundaries, x)
    agrees(lambda s, x: torch.searchsorted(s, x, right=right, out_int32=True), boundaries[0], x)
    agrees(lambda s, x: torch.searchsorted(s, 3, right=right), boundaries[0], x)
    agrees(lambda s, x: torch.bucketize(x, s, right=right), boundaries[2], x)
    agrees(lambda s, x: torch.searchsorted(s[:0], x, right=right), boundaries[0], x)
    order = boundaries.argsort(stable=True)
    agrees(lambda s, x, o: torch.searchsorted(s, x, side="right" if right else "left", sorter=o), boundaries, x, order)


def test_searchsorted_with_nan_and_mixed_dtypes(agrees: Agrees) -> None:
    x = torch.tensor([0.5, math.nan, math.inf, -math.inf, 3.0])
    for boundaries in (torch.tensor([1.0, 3, math.nan, math.nan]), torch.tensor([-math.inf, 0, 3, math.inf])):
        for right in (False, True):
            agrees(lambda s, x, r=right: torch.searchsorted(s, x, right=r), boundaries, x)
    agrees(lambda s, x: torch.searchsorted(s, x), torch.tensor([1, 2, 3]), x)
    agrees(lambda s, x: torch.bucketize(x, s), torch.tensor([0.5, 1.5]), torch.tensor([[0, 1], [2, 3]]))


def test_a_sorter_out_of_range_is_an_error() -> None:
    program = compile(
        lambda s, x, o: torch.searchsorted(s, x, sorter=o), (torch.rand(3), torch.rand(2), torch.arange(3)),
        target="evaluator",
    )  # fmt: skip
    with pytest.raises(RuntimeError, match="sorter index out of range"):
        program(torch.rand(3), torch.rand(2), torch.tensor([0, 1, 3]))


def test_boundaries_known_at_run_time() -> None:
    shapes = ({0: Dim("n", min=2)}, None)
    x = torch.arange(5.0)
    compiled = compile(torch.searchsorted, (torch.arange(3.0), x), target="evaluator", dynamic_shapes=shapes)
    for size in (2, 5, 33):
        boundaries = torch.linspace(-1, 4, size)
        assert compiled(boundaries, x).equal(torch.searchsorted(boundaries, x))


# Histograms: exactly eager's, on the edges too.


@pytest.mark.few(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bins", [1, 3, 10, 47])
def test_histograms(agrees: Agrees, dtype: torch.dtype, bins: int) -> None:
    generator = torch.Generator().manual_seed(bins)
    for divisor in (1, 3, 7):
        x = torch.randint(-50, 50, (20, 30), generator=generator).to(dtype) / divisor
        weight = torch.rand(20, 30, generator=generator, dtype=dtype)
        counts = compile(lambda x: torch.histc(x, bins), (x,), target="evaluator")(x)
        assert counts.equal(torch.histc(x, bins))
        for range_ in (None, (-3.3, 4.7), (1.0, 1.0)):
            counts, edges = compile(lambda x, r=range_: torch.histogram(x, bins, range=r), (x,), target="evaluator")(x)
            expected = torch.histogram(x, bins, range=range_)
            assert edges.equal(expected.bin_edges) and counts.equal(expected.hist)
        agrees(lambda x, w: torch.histogram(x, bins, weight=w, density=True), x, weight)
        agrees(lambda x: torch.histc(x, bins, min=-1, max=2), x)


def test_histograms_over_given_edges(agrees: Agrees) -> None:
    x = torch.tensor([0.0, 0.5, 1.0, 2.0, 2.5, math.nan, -1.0, math.inf])
    for edges in (torch.tensor([0.0, 0.5, 2.0]), torch.tensor([0.0, 1.0, 0.5, 2.5]), torch.tensor([0.5, 0.5])):
        agrees(torch.histogram, x, edges)
    agrees(lambda x: torch.histc(x, 4, min=0, max=2), x)
    points = torch.rand(40, 2, generator=torch.Generator().manual_seed(0))
    agrees(lambda p: torch.histogramdd(p, [3, 4]), points)
    agrees(lambda p: torch.histogramdd(p, [3, 2], range=[0.1, 0.9, 0.2, 0.5], density=True), points)
    agrees(lambda p, e: torch.histogramdd(p, (e, e)), points, torch.tensor([0.0, 0.2, 0.7]))


def test_histograms_of_one_value_and_of_none(agrees: Agrees) -> None:
    for x in (torch.ones(3), torch.ones(0), torch.tensor(2.5)):
        agrees(lambda x: torch.histc(x, 5), x)
        agrees(lambda x: torch.histogram(x, 5), x)


def test_a_range_that_is_not_finite_is_an_error() -> None:
    for fn in (lambda x: torch.histc(x, 3), lambda x: torch.histogram(x, 3)):
        compiled = compile(fn, (torch.rand(4),), target="evaluator")
        for bad in (math.nan, math.inf):
            with pytest.raises(RuntimeError, match="not finite"):
                compiled(torch.tensor([1.0, 2, bad, 3]))

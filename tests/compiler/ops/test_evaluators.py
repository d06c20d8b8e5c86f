"""The evaluators of the primitives that are no one function of PyTorch, against definitions written out in Python."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from functools import cmp_to_key
from typing import Any

import pytest
import torch

from torchstone.compiler.diagnostics import VerifyError
from torchstone.compiler.ir import TensorType
from torchstone.compiler.ir.dtypes import BY_NAME
from torchstone.compiler.ops import PRIMITIVES
from torchstone.compiler.ops.elementwise import BINARY, COMPARE, UNARY
from torchstone.conformance.program.literals import dtype_name

Shape = tuple[int, ...]
NUMBERS = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8)


def evaluate(name: str, *tensors: torch.Tensor, **attributes: Any) -> Any:
    return PRIMITIVES[f"flat.{name}"].evaluate(*tensors, **attributes)


def every(shape: Shape) -> Iterator[Shape]:
    """Yield each index of a tensor of this shape, in row-major order."""
    return itertools.product(*(range(size) for size in shape))


def numbers(shape: Shape, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Return small numbers, some equal, some negative where the dtype has those."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randint(-4, 5, shape, generator=generator).abs_() if dtype in (torch.uint8, torch.bool)
            else torch.randint(-4, 5, shape, generator=generator)).to(dtype)  # fmt: skip


PLACES: list[tuple[Shape, Shape, Shape]] = [
    ((5,), (3,), (0,)), ((5, 4, 3), (2, 3), (0, 2)), ((5, 4), (), (1,)), ((3, 4), (6,), (0, 1)), ((3, 4), (0,), (1,)),
]  # fmt: skip


def places(x: Shape, index: Shape, dims: Shape) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(-2, x[d] + 2, index, generator=generator) for d in dims]


def joined(rank: int, dims: Shape, chosen: list[int], rest: Shape) -> Shape:
    """Return the index whose components along ``dims`` are chosen, and the others ``rest``."""
    others = iter(rest)
    return tuple(chosen[dims.index(d)] if d in dims else next(others) for d in range(rank))


@pytest.mark.parametrize(("shape", "index", "dims"), PLACES)
def test_gather(shape: Shape, index: Shape, dims: Shape) -> None:
    x, at = numbers(shape, torch.float32), places(shape, index, dims)
    out = evaluate("gather", x, *at, dims=dims)
    assert out.shape == (*index, *(s for d, s in enumerate(shape) if d not in dims))
    for place in every(tuple(out.shape)):
        chosen = [min(max(int(i[place[: len(index)]]), 0), shape[d] - 1) for i, d in zip(at, dims, strict=True)]
        assert out[place] == x[joined(len(shape), dims, chosen, place[len(index) :])]


COMBINE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "set": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": lambda old, new: old if math.isnan(old) or old >= new else new,
    "min": lambda old, new: old if math.isnan(old) or old <= new else new,
}


@pytest.mark.parametrize("kind", COMBINE)
@pytest.mark.parametrize(("shape", "index", "dims"), PLACES)
def test_scatter(shape: Shape, index: Shape, dims: Shape, kind: str) -> None:
    for dtype in NUMBERS:
        x, at = numbers(shape, dtype), places(shape, index, dims)
        updates = numbers((*index, *(s for d, s in enumerate(shape) if d not in dims)), dtype, seed=1)
        if dtype.is_floating_point and updates.numel():
            updates.view(-1)[0] = math.nan
        want = x.clone()
        for place in every(tuple(updates.shape)):
            chosen = [int(i[place[: len(index)]]) for i in at]
            if all(0 <= i < shape[d] for i, d in zip(chosen, dims, strict=True)):
                target = joined(len(shape), dims, chosen, place[len(index) :])
                want[target] = COMBINE[kind](want[target], updates[place])
        got = evaluate("scatter", x, updates, *at, dims=dims, kind=kind)
        assert got.dtype == dtype
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("shape", "dims", "kernel", "stride", "dilation"),
    [
        ((9,), (0,), (3,), (2,), (2,)),
        ((2, 7, 8), (1, 2), (3, 2), (2, 3), (1, 2)),
        ((6, 3, 5), (0, 2), (2, 5), (2, 1), (1, 1)),
        ((4,), (), (), (), ()),
    ],
)
def test_windows(shape: Shape, dims: Shape, kernel: Shape, stride: Shape, dilation: Shape) -> None:
    x = torch.arange(math.prod(shape)).reshape(shape)
    out = evaluate("windows", x, dims=dims, kernel=kernel, stride=stride, dilation=dilation)
    counts = list(shape)
    for d, size, step, apart in zip(dims, kernel, stride, dilation, strict=True):
        counts[d] = sum(1 for at in range(0, shape[d], step) if at + (size - 1) * apart < shape[d])
    assert out.shape == (*counts, *kernel)
    for place in every(tuple(out.shape)):
        source = list(place[: len(shape)])
        for d, inside, step, apart in zip(dims, place[len(shape) :], stride, dilation, strict=True):
            source[d] = source[d] * step + inside * apart
        assert out[place] == x[tuple(source)]


STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    "max": lambda a, b: a if math.isnan(a) or (a > b and not math.isnan(b)) else b,
    "min": lambda a, b: a if math.isnan(a) or (a < b and not math.isnan(b)) else b,
}


@pytest.mark.parametrize("kind", STEPS)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_scan(kind: str, dim: int) -> None:
    shape = (3, 4, 2)
    for dtype in (*NUMBERS, torch.int8):
        x = numbers(shape, dtype)
        if dtype.is_floating_point:
            x[1, 2, 0] = math.nan
        out = evaluate("scan", x, kind=kind, dim=dim)
        assert out.dtype == dtype and out.shape == shape
        for place in every(shape):
            along = [x[(*place[:dim], i, *place[dim + 1 :])].item() for i in range(place[dim] + 1)]
            want = along[0]
            for value in along[1:]:
                want = STEPS[kind](want, value)
            # What wraps round wraps as the dtype does; the floats here are exact.
            want = torch.tensor(want).to(dtype)
            torch.testing.assert_close(out[place], want, rtol=0, atol=0, equal_nan=True)


def test_scan_accumulates_16_bit_floats_in_float32() -> None:
    x = torch.full((3000,), 0.1, dtype=torch.bfloat16)
    total = torch.tensor(0.0)
    for value in x:
        total = total + value.float()
    assert evaluate("scan", x, kind="sum", dim=0)[-1] == total.bfloat16()


def before(a: float, b: float) -> int:
    """Compare numbers; NaN is equal to NaN and above all others."""
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) - math.isnan(b)
    return (a > b) - (a < b)


@pytest.mark.parametrize("descending", [False, True])
def test_sort(descending: bool) -> None:
    draw = random.Random(0)
    for dtype in (*NUMBERS, torch.bool):
        pool = [0, 1] if dtype is torch.bool else [0, 1, 2, 3]
        if dtype.is_floating_point:
            pool = [0.0, -0.0, 1.5, -2.0, math.inf, -math.inf, math.nan]
        for size in (1, 2, 7, 40):
            rows = [[draw.choice(pool) for _ in range(size)] for _ in range(3)]
            x = torch.tensor(rows).to(dtype)
            values, indices = evaluate("sort", x, dim=1, descending=descending)
            assert values.dtype == dtype and indices.dtype == torch.int64
            for row, order in zip(rows, indices.tolist(), strict=True):
                key = cmp_to_key(lambda i, j, row=row: before(row[i], row[j]))
                assert order == sorted(range(size), key=key, reverse=descending)
            picked = x.take_along_dim(indices, 1)
            torch.testing.assert_close(values, picked, rtol=0, atol=0, equal_nan=True)
            if dtype.is_floating_point:
                assert torch.equal(values.signbit(), picked.signbit())


BITS = {torch.uint16: 16, torch.uint32: 32, torch.uint64: 64}
OF_INTEGERS: dict[str, Callable[..., int]] = {
    "neg": lambda a: -a, "abs": abs, "sign": lambda a: min(a, 1), "not": lambda a: ~a,
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "max": max, "min": min,
    "div": lambda a, b: a // b if b else 0, "rem": lambda a, b: a % b if b else 0,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "shift_left": lambda a, b: a << b if b < 64 else 0, "shift_right": lambda a, b: a >> b,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip


@pytest.mark.parametrize("dtype", BITS)
@pytest.mark.parametrize("name", OF_INTEGERS)
def test_wide_unsigned_integers_are_whole_numbers_that_wrap(name: str, dtype: torch.dtype) -> None:
    """PyTorch has no kernels for most."""
    most, primitive = 1 << BITS[dtype], PRIMITIVES[f"flat.{name}"]
    some = [0, 1, 2, 3, 15, BITS[dtype], most // 2 - 1, most // 2, most - 2, most - 1]
    rows = list(itertools.product(some, repeat=primitive.arity))
    out = primitive.evaluate(*(torch.tensor(column, dtype=dtype) for column in zip(*rows, strict=True)))
    given = TensorType((len(rows),), BY_NAME[dtype_name(dtype)])
    (promised,) = primitive.infer(*[given] * primitive.arity)
    assert dtype_name(out.dtype) == promised.dtype.name
    for row, got in zip(rows, out.tolist(), strict=True):
        if name not in ("div", "rem") or row[1]:
            assert got == OF_INTEGERS[name](*row) % most, (name, row)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_complex32_is_computed_in_complex64_and_rounded_once() -> None:
    values = torch.tensor([0.5 + 0.25j, -2 + 3j, 0.1 - 7j])
    narrow = values.to(torch.complex32)
    for primitive in (*UNARY, *BINARY, *COMPARE):
        try:
            (promised,) = primitive.infer(*[TensorType((3,), BY_NAME["complex32"])] * primitive.arity)
        except VerifyError:
            continue
        out = primitive.evaluate(*[narrow] * primitive.arity)
        want = primitive.evaluate(*[narrow.to(torch.complex64)] * primitive.arity)
        assert dtype_name(out.dtype) == promised.dtype.name, primitive.name
        assert torch.equal(out.to(want.dtype), want.to(out.dtype).to(want.dtype)), primitive.name

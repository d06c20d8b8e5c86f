"""Contractions in register tiles: every shape and layout, as accurate as eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from torchstone.compiler.driver import compile
from torchstone.compiler.lowering.linalg import contraction


@pytest.fixture(autouse=True)
def _all_in_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contraction, "LEAST_WORK", 1)
    torch.manual_seed(7)


def check(fn: Callable[..., Tensor], *args: Tensor, tiles: bool = True) -> None:
    executable = compile(fn, args)
    assert ("vector.fma" in executable.ir["linalg"]) == tiles
    out, eager, exact = executable(*args), fn(*args), fn(*(a.double() for a in args))
    assert out.dtype == eager.dtype and out.shape == eager.shape
    bound = 2 * (eager - exact).abs().max() + 1e-6 * exact.abs().max()
    assert ((out - exact).abs() <= bound).all()


# Around the sizes of a tile (8 or 4 rows, panels of 12 to 48 columns), of a block (192 columns, 128 or 256 summed).
SIZES = [(8, 48, 16), (1, 5, 3), (7, 17, 9), (9, 49, 257), (33, 100, 300), (17, 64, 1000), (64, 4, 70), (5, 47, 128)]


# From 48 rows on, operands are packed.
PACKED = [(48, 64, 128), (50, 99, 300), (61, 17, 193), (49, 4, 18), (64, 130, 16)]


@pytest.mark.parametrize("sizes", [*SIZES, *PACKED, (4, 193, 129), (3, 385, 2)], ids=str)
def test_sizes_that_fill_tiles_and_do_not(sizes: tuple[int, int, int]) -> None:
    rows, columns, summed = sizes
    check(torch.matmul, torch.randn(rows, summed), torch.randn(summed, columns))


# Squares of 16 or 8 are transposed: sizes that are made of them, and those that leave a rest of either dim.
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [(3, 32, 16), (49, 33, 17), (5, 15, 300), (2, 100, 191), (1, 7, 64)], ids=str)
def test_vectors_along_a_summed_dim(sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
    rows, columns, summed = sizes
    a, b = torch.randn(rows, summed, dtype=dtype), torch.randn(columns, summed, dtype=dtype)
    check(lambda a, b: a @ b.t(), a, b)
    assert "vector.shuffle" in compile(lambda a, b: a @ b.t(), (a, b)).ir["linalg"]


@pytest.mark.parametrize("transposed", [False, True])
def test_a_nan_past_the_last_column_or_summed_place_is_not_seen(transposed: bool) -> None:
    """The operand is part of a larger one whose rest is NaN."""
    b = torch.full((80, 80), float("nan"))
    b[5:42, 3:40] = torch.randn(37, 37)
    fn = (lambda a, b: a @ b[5:42, 3:40].t()) if transposed else (lambda a, b: a @ b[5:42, 3:40])
    a = torch.randn(50, 37)
    torch.testing.assert_close(compile(fn, (a, b))(a, b), fn(a, b))


def heads(x: Tensor, w: Tensor) -> Tensor:
    """Queries and transposed keys of two heads, which are parts of one product."""
    q, k, v = (x @ w).reshape(20, 3, 2, 17).permute(1, 2, 0, 3)
    return q @ k.transpose(-1, -2) @ v


PRODUCTS: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "b transposed": (lambda a, b: a @ b.t(), [(20, 30), (50, 30)]),
    "a transposed": (lambda a, b: a.t() @ b, [(30, 20), (30, 50)]),
    "both transposed": (lambda a, b: a.t() @ b.t(), [(30, 20), (50, 30)]),
    "batched": (torch.bmm, [(5, 20, 30), (5, 30, 50)]),
    "batched and transposed": (lambda a, b: a @ b.transpose(-1, -2), [(2, 5, 20, 30), (2, 5, 50, 30)]),
    "a vector and a matrix": (lambda a, b: a @ b, [(30,), (30, 50)]),
    "every second column": (lambda a, b: a[:, ::2] @ b[:, ::2], [(20, 60), (30, 100)]),
    "a part": (lambda a, b: a[:, 5:25] @ b[3:23, 7:47], [(20, 60), (30, 50)]),
    "part of a view": (lambda a, b: a @ b.reshape(30, 25, 4)[:, :, 1], [(20, 30), (30, 100)]),
    "parts of what was stored": (heads, [(20, 33), (33, 102)]),
    "every second of what was stored": (lambda a, b: a @ (b.exp() + b)[:, ::2].t(), [(20, 17), (50, 34)]),
    "two summed dims": (lambda a, b: torch.einsum("abcd,bdef->acef", a, b), [(3, 4, 5, 6), (4, 6, 7, 8)]),
    "two summed dims, across": (lambda a, b: torch.einsum("abc,dbc->ad", a, b), [(5, 20, 19), (33, 20, 19)]),
    "the first summed dim across": (lambda a, b: torch.einsum("abc,dcb->ad", a, b), [(5, 37, 9), (33, 9, 37)]),
    "many summed dims": (lambda a, b: torch.tensordot(a, b, dims=3), [(3, 10, 9, 8), (10, 9, 8, 20)]),
    "expanded": (lambda a, b: a @ b.expand(5, 30, 50), [(5, 20, 30), (30, 50)]),
    "reversed": (lambda a, b: a.flip(1) @ b.flip(1), [(20, 30), (30, 50)]),
    "into parts of a result": (lambda a, b: torch.cat([a @ b, a @ b + 1], 1), [(20, 30), (30, 50)]),
    "of computed operands": (lambda a, b: a.exp() @ b.relu(), [(20, 30), (30, 50)]),
    "convolution": (lambda x, w: functional.conv2d(x, w, padding=1), [(2, 8, 14, 15), (16, 8, 3, 3)]),
    "strided": (lambda x, w: functional.conv2d(x, w, None, 2, 1, 2), [(2, 8, 24, 25), (16, 8, 3, 3)]),
    "wide windows two apart": (lambda x, w: functional.conv2d(x, w, None, 2, 9), [(1, 3, 30, 31), (5, 3, 18, 18)]),
    "grouped": (lambda x, w: functional.conv2d(x, w, groups=2), [(2, 8, 14, 15), (16, 4, 3, 3)]),
    "transposed convolution": (functional.conv_transpose2d, [(2, 4, 6, 7), (4, 8, 3, 3)]),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_operands_of_any_layout(name: str) -> None:
    fn, shapes = PRODUCTS[name]
    check(fn, *(torch.randn(shape) for shape in shapes))


def test_strided_arguments() -> None:
    check(torch.matmul, torch.randn(30, 20).t(), torch.randn(50, 60)[:, ::2].t())


def test_float64_and_what_has_no_tiles() -> None:
    a, b = torch.randn(20, 30), torch.randn(30, 50)
    check(torch.matmul, a.double(), b.double())
    for dtype in (torch.bfloat16, torch.complex64, torch.int64):
        out = compile(torch.matmul, (a.to(dtype), b.to(dtype)))(a.to(dtype), b.to(dtype))
        torch.testing.assert_close(out, a.to(dtype) @ b.to(dtype))
    check(torch.mv, a, torch.randn(30), tiles=False)


def test_nan_and_infinities_stay_in_their_rows_and_columns() -> None:
    a, b = torch.randn(20, 30), torch.randn(30, 50)
    a[3, 4], a[5, 6], b[7, 8] = float("inf"), float("nan"), -float("inf")
    out, eager = compile(torch.matmul, (a, b))(a, b), a @ b
    assert torch.equal(out.isnan(), eager.isnan()) and torch.equal(out.isinf(), eager.isinf())

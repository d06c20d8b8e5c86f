"""Integers that TensorRT has not are carried by wider ones: every op gives the values that the graph's dtype has."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.compiler.flat import pairs, special
from torchstone.compiler.diagnostics import Unsupported, VerifyError
from torchstone.compiler.driver import compile
from torchstone.compiler.ops import PRIMITIVES
from torchstone.compiler.runtime.interpreter import evaluate_graph
from torchstone.compiler.runtime.tensorrt.rules import CARRIERS

from .graphs import dtype_of, kernel, static

NARROW = [getattr(torch, name) for name in CARRIERS]
COMPUTED = [torch.int8, torch.uint8, torch.int16]  # eager has no arithmetic of the others
OTHERS = [torch.bool, torch.int32, torch.int64, torch.float32, torch.bfloat16]


def same(build: Any, *tensors: torch.Tensor) -> bool:
    """Compare with the evaluator; False where TensorRT, or the primitive, does not take the dtype."""
    try:
        graph = static(build, *tensors)
        run = kernel(graph)
    except (Unsupported, VerifyError):
        return False
    for got, want in zip(run(tensors), evaluate_graph(graph, tensors), strict=True):
        assert got.dtype == want.dtype
        assert torch.equal(got.long(), want.long()), graph
    return True


@pytest.mark.parametrize("dtype", COMPUTED)
def test_arithmetic_wraps(dtype: torch.dtype) -> None:
    taken = set()
    x, y = pairs(dtype)
    for row in PRIMITIVES.values():
        if not row.elementwise or row.attributes or row.arity not in (1, 2):
            continue
        operands = (x, torch.where(y == 0, 3, y)) if row.name in ("div", "rem") else (x, y)  # by zero unspecified
        if same(lambda b, *v, row=row: b.emit(row.name, *v)[0], *operands[: row.arity]):
            taken.add(row.name)
    assert {"add", "sub", "mul", "div", "rem", "max", "min", "eq", "ne", "lt", "le", "gt", "ge"} <= taken
    assert not dtype.is_signed or {"neg", "abs", "sign", "not"} <= taken


@pytest.mark.parametrize("dtype", [*COMPUTED, torch.int32, torch.int64])
def test_bits_are_counted(dtype: torch.dtype) -> None:
    for name in ("and", "or", "xor", "shift_left", "shift_right"):
        assert same(lambda b, *v, name=name: b.emit(name, *v)[0], *pairs(dtype)), name


@pytest.mark.parametrize("dtype", NARROW)
def test_casts(dtype: torch.dtype) -> None:
    for other in (*NARROW, *OTHERS):
        there, back = special(dtype), special(other)
        if other.is_floating_point:  # out of range is unspecified
            back = torch.tensor([0.0, -0.0, 0.9, 1.5, 99.9, 126.0], dtype=other)
        for x, to in ((there, other), (back, dtype)):
            kind = dtype_of(torch.empty(0, dtype=to))
            assert same(lambda b, x, kind=kind: b.cast(x, kind), x), (x.dtype, to)


@pytest.mark.parametrize("dtype", COMPUTED)
def test_sums_products_and_moves(dtype: torch.dtype) -> None:
    x = special(dtype)[:12].reshape(3, 4)
    for kind in ("sum", "prod", "max", "min"):
        assert same(lambda b, x, kind=kind: b.reduce(x, kind, (1,)), x)
    product = {"a_batch": (0,), "b_batch": (0,), "a_sum": (2,), "b_sum": (1,)}
    assert same(lambda b, x, y: b.contract(x, y, **product), x.reshape(1, 3, 4), x.reshape(1, 4, 3))
    assert same(lambda b, x: b.concat(b.transpose(b.reverse(x, dims=(0,)), (1, 0)), b.reshape(x, (4, 3)), dim=0), x)
    assert same(lambda b, x: b.select(b.gt(x, b.full_like(x, 1)), x, b.full_like(x, 7)), x)


def test_arguments_constants_and_frozen_weights() -> None:
    class Weight(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", special(torch.int8)[:4])

        def forward(self, x: torch.Tensor, n: torch.Tensor) -> Any:
            return self.weight * x, x + torch.tensor([200, 1, 2, 3], dtype=torch.uint8).to(torch.int8), n, n[:2].float()

    args = torch.tensor([100, -100, 3, 127], dtype=torch.int8), torch.tensor([1, 65535, 3], dtype=torch.uint16)
    for freeze in (False, True):
        found = compile(Weight(), args, "tensorrt", freeze=freeze)(*args)
        for got, want in zip(found, Weight()(*args), strict=True):
            assert got.dtype == want.dtype and torch.equal(got, want)

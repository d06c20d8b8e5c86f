"""Arithmetic on 16-bit floats: each step of a chain is rounded, on every target, as the primitives say."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.compiler.flat import graph, pairs, run
from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.lowering.registry import find_target
from torchstone.compiler.runtime.interpreter import evaluate_graph
from torchstone.compiler.transforms.builder import Builder


def chain(b: Builder, x: Value, y: Value, n: Value) -> tuple[Value, ...]:
    product = b.mul(x, y)
    total = b.add(product, b.full_like(x, 0.5))
    whole = b.cast(n, x.dtype)
    rest = b.sub(b.sub(whole, b.full_like(x, 1.0)), y)
    return total, b.sub(total, product), b.neg(rest), b.lt(product, total), b.cast(b.add(b.abs(rest), y), dt.float32)


@pytest.mark.parametrize("target", ["linalg", "tosa", "stablehlo", "tensorrt"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_each_step_is_rounded(dtype: torch.dtype, target: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.cat([v, torch.randn(2000, generator=generator).to(dtype)]) for v in pairs(dtype))
    n = torch.randint(-(2**15), 2**15, x.shape, generator=generator, dtype=torch.int32)
    program: Any = graph(chain, x, y, n)
    want = evaluate_graph(program, (x, y, n))
    for got, expected in zip(run(find_target(target), program, (x, y, n)), want, strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)

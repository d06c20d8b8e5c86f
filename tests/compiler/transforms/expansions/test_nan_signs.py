"""The sign of NaN is a bit: what looks at it or sets it gives eager's, or declines the values."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from torchstone import compile
from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir import Graph, parse_graph, print_graph
from torchstone.compiler.ir.dtypes import float32
from torchstone.compiler.transforms.builder import Builder

FLOATS = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
}
NUMBERS = (0.0, -0.0, 1.5, -1.5, math.inf, -math.inf)
PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "signbit": torch.signbit,
    "copysign of one": lambda x: torch.copysign(torch.ones_like(x), x),
    "copysign of NaN": lambda x: torch.copysign(x, x.flip(0)),
    "copysign of an int": lambda x: torch.copysign(torch.ones(x.shape, dtype=torch.int32), x),
    "moved": lambda x: torch.signbit(torch.where(torch.signbit(x), x.flip(0), x.roll(1))),
}


def floats(dtype: torch.dtype) -> Tensor:
    """NaN of both signs among numbers, made by their bits: a cast may drop the sign."""
    nan = torch.copysign(torch.full((2,), math.nan, dtype=dtype), torch.tensor([1.0, -1.0], dtype=dtype))
    return torch.cat([torch.tensor(NUMBERS, dtype=dtype), nan, nan.flip(0)])


def bits(x: Tensor) -> Tensor:
    return x.view(FLOATS[x.dtype]) if x.dtype in FLOATS else x


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("target", ["linalg", "evaluator"])
def test_bits(target: str, dtype: torch.dtype, program: str) -> None:
    x, fn = floats(dtype), PROGRAMS[program]
    assert torch.equal(bits(compile(fn, (x,), target=target)(x)), bits(fn(x)))


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("target", ["tosa", "tensorrt"])
def test_without_bits_nan_is_declined_and_numbers_are_not(target: str, dtype: torch.dtype, program: str) -> None:
    x, fn = torch.tensor(NUMBERS, dtype=dtype), PROGRAMS[program]
    executable = compile(fn, (x,), target=target)
    assert torch.equal(bits(executable(x)), bits(fn(x)))
    with pytest.raises(Unsupported, match="of NaN"):
        executable(torch.full_like(x, math.nan))


@pytest.mark.parametrize("flip", [torch.neg, torch.abs])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_neg_and_abs_are_of_bits(dtype: torch.dtype, flip: Callable[[Tensor], Tensor]) -> None:
    x = floats(dtype)
    assert torch.equal(bits(compile(flip, (x,), target="linalg")(x)), bits(flip(x)))


@pytest.mark.parametrize("value", [math.nan, -math.nan])
def test_literals(value: float) -> None:
    x = torch.ones(3)

    def fn(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        full = torch.full_like(x, value)
        return torch.signbit(full), torch.copysign(x, value), torch.signbit(torch.full_like(x, -value))

    for got, wanted in zip(compile(fn, (x,), target="linalg")(x), fn(x), strict=True):
        assert torch.equal(got, wanted)


@pytest.mark.parametrize("value", [math.nan, -math.nan])
def test_the_text_of_a_graph_keeps_the_sign(value: float) -> None:
    graph = Graph("main", [], [], ())
    Builder(graph.ops).constant(value=value, shape=(), dtype=float32)
    (op,) = parse_graph(print_graph(graph)).ops
    assert math.copysign(1, op.attributes["value"]) == math.copysign(1, value)


def test_a_scatter_moves_bits() -> None:
    x = floats(torch.bfloat16)
    got = compile(lambda x: torch.signbit(x.scatter(0, torch.tensor([0, 1]), x[7:9])), (x,), target="linalg")(x)
    assert torch.equal(got, torch.cat([x[7:9], x[2:]]).signbit())

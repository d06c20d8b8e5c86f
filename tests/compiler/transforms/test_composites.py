"""Composites: the body is what the row says, and what a target takes whole is its body, special values included."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.compiler.flat import primitive, signs_of_zero_differ, special
from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir import Graph, Operation
from torchstone.compiler.lowering.registry import find_target
from torchstone.compiler.lowering.target import Target
from torchstone.compiler.ops import PRIMITIVES
from torchstone.compiler.runtime.interpreter import evaluate_graph
from torchstone.compiler.transforms.bodies import BODIES
from torchstone.compiler.transforms.expand import expand
from torchstone.compiler.transforms.legalizations import LEGALIZATIONS

COMPOSITES = [name for name, row in PRIMITIVES.items() if row.composite]

Case = tuple[str, tuple[torch.Tensor, ...], dict[str, Any]]


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def marked(x: torch.Tensor) -> torch.Tensor:
    """Put a NaN, infinities and a number near the largest among some numbers."""
    x = x.clone()
    flat = x.view(-1)
    flat[:: max(flat.numel() // 4, 1)][:4] = torch.tensor([math.nan, math.inf, -math.inf, 3e38])[: flat.numel()]
    return x


def convolutions() -> Iterator[Case]:
    """(input, weight, bias), window, groups: strides that end early, one-sided padding, groups, no elements."""
    shapes = [
        ((2, 3, 9), (4, 3, 3), (2,), (1,), (0,), (1,), 1),
        ((2, 3, 8, 9), (4, 3, 3, 2), (2, 3), (1, 0), (1, 2), (1, 2), 1),
        ((1, 4, 7, 7), (4, 1, 3, 3), (2, 2), (1, 1), (1, 1), (1, 1), 4),
        ((2, 2, 6, 5), (6, 1, 2, 3), (1, 1), (0, 0), (0, 0), (2, 1), 2),
        ((1, 4, 6), (6, 2, 3), (1,), (0,), (2,), (1,), 2),
        ((1, 3, 7), (3, 1, 2), (3,), (1,), (0,), (1,), 3),
        ((1, 2, 4, 5, 6), (3, 2, 2, 3, 1), (1, 2, 4), (0, 1, 0), (1, 0, 0), (1, 1, 1), 1),
        ((1, 1, 5, 6), (1, 1, 1, 1), (4, 4), (0, 0), (0, 0), (1, 1), 1),
        ((0, 3, 5), (4, 3, 3), (1,), (0,), (0,), (1,), 1),
        ((2, 0, 5), (4, 0, 3), (1,), (0,), (0,), (1,), 1),
    ]
    for x, w, stride, low, high, dilation, groups in shapes:
        window = {"stride": stride, "low": low, "high": high, "dilation": dilation, "groups": groups}
        for bias, last, special_values in itertools.product((False, True), (False, True), (False, True)):
            operands = [numbers(*x), numbers(*w, seed=1)]
            if special_values:
                operands[0] = marked(operands[0])
            if last:
                operands = [v.movedim(1, -1).contiguous() for v in operands]
            operands += [numbers(w[0], seed=2)] * bias
            yield "convolution", tuple(operands), {**window, "channels": "last" if last else "first"}


def clamps() -> Iterator[Case]:
    bounds = [(0.0, math.inf), (-1.0, 1.0), (-math.inf, 6.0), (-0.0, 0.0), (2.5, 2.5), (-math.inf, math.inf)]
    for dtype, (low, high) in itertools.product((torch.float32, torch.float16, torch.bfloat16), bounds):
        yield "clamp", (special(dtype),), {"low": low, "high": high}
    yield "clamp", (torch.empty(0, 3),), {"low": 0.0, "high": 1.0}
    yield "clamp", (torch.tensor(-0.0),), {"low": 0.0, "high": 1.0}


def pools(name: str) -> Iterator[Case]:
    """Windows that end early, one-sided padding, dilation, one and three dims, no elements."""
    shapes = [
        ((2, 3, 9), (3,), (2,), (1,), (0,), (1,)),
        ((2, 3, 8, 9), (3, 2), (2, 3), (1, 0), (1, 1), (1, 1)),
        ((1, 2, 7, 7), (3, 3), (2, 2), (1, 1), (1, 1), (1, 1)),
        ((1, 2, 6, 6), (2, 2), (4, 4), (0, 0), (0, 0), (1, 1)),
        ((1, 1, 5, 6), (1, 1), (1, 2), (0, 0), (0, 1), (1, 1)),
        ((1, 2, 7, 8), (2, 3), (1, 1), (0, 1), (1, 0), (2, 1)),
        ((1, 2, 4, 5, 6), (2, 3, 1), (1, 2, 4), (0, 1, 0), (1, 0, 0), (1, 1, 1)),
        ((0, 3, 5, 5), (2, 2), (1, 1), (0, 0), (0, 0), (1, 1)),
    ]
    dtypes = (torch.float32, torch.float16, torch.bfloat16) if name == "max_pool" else (torch.float32,)
    for x, kernel, stride, low, high, dilation in shapes:
        window = {"kernel": kernel, "stride": stride, "low": low, "high": high}
        if name == "max_pool":
            window["dilation"] = dilation
        for dtype, last in itertools.product(dtypes, (False, True)):
            inputs = [numbers(*x), marked(numbers(*x)), torch.full(x, -math.inf)]
            for value in inputs:
                value = value.movedim(1, -1).contiguous() if last else value
                yield name, (value.to(dtype),), {**window, "channels": "last" if last else "first"}


def sigmoids() -> Iterator[Case]:
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        yield "sigmoid", (special(dtype),), {}
    yield "sigmoid", (torch.empty(0),), {}


def gelus() -> Iterator[Case]:
    for dtype, approximate in itertools.product((torch.float32, torch.float64), ("none", "tanh")):
        yield "gelu", (special(dtype),), {"approximate": approximate}
        yield "gelu", (numbers(7, 9).mul(3).to(dtype),), {"approximate": approximate}
    yield "gelu", (torch.empty(0, 3),), {"approximate": "none"}


def softmaxes() -> Iterator[Case]:
    """Rows with a NaN, infinities, nothing but one of these; numbers that overflow by themselves; no elements."""
    rows = torch.tensor([math.nan, math.inf, -math.inf, 3e38, -3e38, 0.0, 200.0])
    pairs = torch.cartesian_prod(rows, rows, rows)
    for x in (numbers(3, 5, 4), numbers(6, 1, 2) * 100, pairs, marked(numbers(2, 3, 7)), torch.empty(0, 3, 2)):
        for dim, dtype in itertools.product(range(x.dim()), (torch.float32, torch.float64)):
            if x.shape[dim]:
                yield "softmax", (x.to(dtype),), {"dim": dim}


def batch_norms() -> Iterator[Case]:
    """Channels in the second dim and in the last; values and parameters that are no numbers; no elements."""
    for shape, dim, special_values in itertools.product(((2, 4, 3, 5), (3, 4), (0, 4, 2)), (1, -1), (False, True)):
        dim %= len(shape)
        x, channels = numbers(*shape), [numbers(shape[dim], seed=seed) for seed in range(1, 5)]
        channels[3] = channels[3].abs()
        if special_values:
            x, channels[0] = marked(x), marked(channels[0])
        for dtype in (torch.float32, torch.float64):
            yield "batch_norm", tuple(v.to(dtype) for v in (x, *channels)), {"eps": 1e-5, "dim": dim}


def normalizations() -> Iterator[Case]:
    """Over the last dims and one in the middle, with parameters or without; values that are no numbers; no elements."""
    wholes = (((3, 5), (1,)), ((2, 3, 4), (1, 2)), ((2, 3, 4), (1,)), ((4, 6), (0, 1)), ((0, 3), (1,)), ((2, 1), (1,)))
    for (shape, dims), count, special_values in itertools.product(wholes, range(3), (False, True)):
        params = [numbers(*(shape[d] for d in dims), seed=seed) for seed in (1, 2)][:count]
        x = marked(numbers(*shape)) if special_values else numbers(*shape) * 3 + 1
        for dtype in (torch.float32, torch.float64):
            yield "normalize", tuple(v.to(dtype) for v in (x, *params)), {"dims": dims, "eps": 1e-5}
    yield "normalize", (torch.tensor([[-0.0, 1.0, -1.0]]),), {"dims": (1,), "eps": 1e-5}


CASES = {
    "batch_norm": [*batch_norms()], "gelu": [*gelus()], "softmax": [*softmaxes()],
    "normalize": [*normalizations()],
    "convolution": [*convolutions()], "clamp": [*clamps()], "sigmoid": [*sigmoids()],
    "max_pool": [*pools("max_pool")], "average_pool": [*pools("average_pool")],
}  # fmt: skip
# Exact, zeros' signs too: nothing is rounded.
EXACT = ("clamp", "max_pool")


def no_composites(target: Target) -> Any:
    def takes(op: Operation) -> str | None:
        return "its body is wanted" if PRIMITIVES[op.name].composite else target.takes(op)

    return takes


def same(got: torch.Tensor, want: torch.Tensor, message: object) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape, message
    torch.testing.assert_close(got, want, rtol=2e-6, atol=2e-6, equal_nan=True, msg=lambda m: f"{message}: {m}")


def test_every_composite_has_a_body_and_cases_here() -> None:
    assert {*COMPOSITES} == {*BODIES} == {f"flat.{name}" for name in CASES}
    assert not {*BODIES} & {*LEGALIZATIONS}


@pytest.mark.few(7)
@pytest.mark.parametrize("name", CASES)
def test_the_body_is_what_the_row_says(name: str) -> None:
    evaluator = find_target("evaluator")
    for _, operands, attributes in CASES[name]:
        program = primitive(name, *operands, **attributes)
        body = expand(program, evaluator.takes)
        assert not {op.name for op in body.ops} & {*COMPOSITES}
        (want,), (got,) = evaluate_graph(program, operands), evaluate_graph(body, operands)
        same(got, want, program)
        if name in EXACT:
            assert torch.equal(got.nan_to_num(nan=7), want.nan_to_num(nan=7)) and not signs_of_zero_differ(got, want)


# A number that divides the count of no factor of a product meets each window, layout and kind of values.
@pytest.mark.few(3)
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.torture)])
@pytest.mark.parametrize(("target", "name"), [*itertools.product(("linalg", "tosa", "stablehlo", "tensorrt"), CASES)])
def test_native_is_the_body(target: str, name: str, every: int) -> None:
    row = find_target(target)
    native = 0
    for _, operands, attributes in CASES[name][:: every if len(CASES[name]) > 4 * every else 1]:
        program = primitive(name, *operands, **attributes)
        if row.takes(program.ops[0]) is not None:
            continue
        native += 1
        if name == "batch_norm":  # TensorRT's scale layer wants the numbers
            for arg, operand in zip(program.args[1:], operands[1:], strict=True):
                arg.known = operand
        got, want = (run(row, expand(program, takes), operands) for takes in (row.takes, no_composites(row)))
        same(got, want, program)
        if name in EXACT:
            assert torch.equal(got.nan_to_num(nan=7), want.nan_to_num(nan=7)) and not signs_of_zero_differ(got, want)
    assert bool(native) == (name in NATIVE.get(target, ()))
    print(f"native equals body, {target} {name}: {native} of {len(CASES[name])}")


# What each target has whole.
NATIVE = {
    "tosa": ("convolution", "clamp", "sigmoid", "max_pool", "average_pool"),
    "stablehlo": ("convolution", "clamp", "sigmoid", "max_pool", "average_pool", "batch_norm"),
    "tensorrt": ("convolution", "sigmoid", "max_pool", "average_pool", "batch_norm", "gelu", "softmax", "normalize"),
}


def run(target: Target, graph: Graph, operands: tuple[torch.Tensor, ...]) -> torch.Tensor:
    (out,) = target.lower(graph).load()(operands)
    return out


def test_a_composite_nobody_takes_is_refused_for_what_its_body_needs() -> None:
    program = primitive("clamp", torch.ones(2), low=0.0, high=1.0)
    with pytest.raises(Unsupported, match=r"^flat.clamp: no select"):
        expand(program, lambda op: f"no {op.name[5:]}" if op.name in ("flat.clamp", "flat.select") else None)

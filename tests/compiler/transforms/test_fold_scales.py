"""What follows a convolution channel by channel becomes part of it, where that changes nothing but roundings."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from torchstone.compiler.driver import compile
from torchstone.compiler.ir import Graph
from torchstone.compiler.ir.parser import parse_graph
from torchstone.compiler.transforms.fold_scales import fold_scales

CONVOLUTION = '{stride=[1], low=[0], high=[0], dilation=[1], groups=1, channels="first"}'


def graph(*ops: str, bias: str = "") -> Graph:
    """A convolution, %0, of two known weights, then ``ops``; %r is known, a number for each channel, %q is not."""
    lines = (
        "graph @f(%x: f32[1, 1, 4], %s: f32[1, 2, 1], %w: f32[2, 1, 3], %k: f32[1, 2, 1], %b: f32[2]) {",
        f"  %0: f32[1, 2, 2] = flat.convolution(%x, %w{bias}) {CONVOLUTION}",
        "  %r: f32[1, 2, 2] = flat.broadcast(%k) {shape=[1, 2, 2], dims=[0, 1, 2]}",
        "  %q: f32[1, 2, 2] = flat.broadcast(%s) {shape=[1, 2, 2], dims=[0, 1, 2]}",
        *(f"  {op}" for op in ops),
        "}\n",
    )
    made = parse_graph("\n".join(lines))
    weight, factor, bias_ = [[[1.0, 2.0, 0.0]], [[3.0, -4.0, 5.0]]], [[[2.0], [-0.5]]], [7.0, 8.0]
    for arg, numbers in zip(made.args[2:], (weight, factor, bias_), strict=True):
        arg.known = torch.tensor(numbers)
    return made


def known(made: Graph) -> list[list[float]]:
    (op,) = made.ops
    return [v.known.flatten().tolist() for v in [*op.values][1:]]


@pytest.mark.parametrize(
    ("op", "weight", "bias"),
    [
        ("flat.mul(%0, %r)", [2.0, 4.0, 0.0, -1.5, 2.0, -2.5], [14.0, -4.0]),
        ("flat.mul(%r, %0)", [2.0, 4.0, 0.0, -1.5, 2.0, -2.5], [14.0, -4.0]),
        ("flat.add(%r, %0)", [1.0, 2.0, 0.0, 3.0, -4.0, 5.0], [9.0, 7.5]),
        ("flat.sub(%0, %r)", [1.0, 2.0, 0.0, 3.0, -4.0, 5.0], [5.0, 8.5]),
    ],
)
def test_weights_and_biases(op: str, weight: list[float], bias: list[float]) -> None:
    folded = fold_scales(graph(f"%1: f32[1, 2, 2] = {op}", "return %1", bias=", %b"))
    assert known(folded) == [weight, bias]
    assert [arg.known is None for arg in folded.args] == [True, True, False, False]


def test_one_after_the_other_and_no_bias_before() -> None:
    steps = "%1: f32[1, 2, 2] = flat.mul(%0, %r)", "%2: f32[1, 2, 2] = flat.add(%1, %r)", "return %2"
    assert known(fold_scales(graph(*steps))) == [[2.0, 4.0, 0.0, -1.5, 2.0, -2.5], [2.0, -0.5]]


@pytest.mark.parametrize(
    "ops",
    [
        ("%1: f32[1, 2, 2] = flat.sub(%r, %0)", "return %1"),
        ("%1: f32[1, 2, 2] = flat.mul(%0, %q)", "return %1"),
        ("%1: f32[1, 2, 2] = flat.mul(%0, %0)", "return %1"),
        ("%1: f32[1, 2, 2] = flat.mul(%0, %r)", "return %1, %0"),
        ("%1: f32[1, 2, 2] = flat.max(%0, %r)", "return %1"),
    ],
    ids=["the other way round", "a number that is not known", "a square", "read by others", "no product or sum"],
)
def test_what_is_left_alone(ops: tuple[str, ...]) -> None:
    before = graph(*ops)
    assert fold_scales(before) is before


@pytest.mark.parametrize("number", [0.0, math.inf, math.nan, 1e-40, 1e38])
def test_a_factor_that_would_change_infinities_or_zeros(number: float) -> None:
    """Of an infinity, 0 * inf is NaN; a weight of 5 times 1e38 is infinite, one of 3 times 1e-40 loses bits."""
    before = graph("%1: f32[1, 2, 2] = flat.mul(%0, %r)", "return %1")
    before.args[3].known = torch.tensor([2.0, number]).reshape(1, 2, 1)
    assert fold_scales(before) is before


def normalized(convolution: nn.Module, norm: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    with torch.no_grad():
        for tensor in (norm.running_mean, norm.weight, norm.bias):
            tensor.normal_()
        norm.running_var.uniform_(0.5, 1.5)
    return nn.Sequential(convolution, norm, nn.ReLU()).eval()


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "one dim": (lambda: normalized(nn.Conv1d(4, 6, 3), nn.BatchNorm1d(6)), (2, 4, 9)),
    "two dims": (lambda: normalized(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)), (2, 3, 8, 8)),
    "depthwise": (lambda: normalized(nn.Conv2d(4, 4, 3, groups=4), nn.BatchNorm2d(4)), (1, 4, 5, 6)),
}


@pytest.mark.parametrize("target", ["tosa", "stablehlo", "tensorrt"])
@pytest.mark.parametrize("name", MODELS)
def test_models(name: str, target: str) -> None:
    make, shape = MODELS[name]
    model, x = make(), torch.randn(shape)
    x[0, 0].view(-1)[:3] = torch.tensor([math.inf, -math.inf, math.nan])
    exe = compile(model, (x,), target, freeze=True)
    torch.testing.assert_close(exe(x), model(x), equal_nan=True)
    arithmetic = {"flat.mul", "flat.sub", "flat.add", "flat.batch_norm"} & {*exe.compiled_ops}
    assert "flat.convolution" in exe.compiled_ops and not arithmetic

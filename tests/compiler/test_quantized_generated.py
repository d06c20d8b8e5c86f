"""Quantized programs drawn at random: every target gives eager's integers bit for bit.

Scales are powers of two and sums are short, so that no order of a sum rounds: the integers decide.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the ops
from torch.nn import functional

from torchstone.compiler.driver import compile

q = torch.ops.quantized_decomposed
Tensor = torch.Tensor
Step = Callable[[Tensor], Tensor]
TARGETS = ("linalg", "tosa", "stablehlo", "tensorrt")
RANGES = {
    torch.int8: [(-128, 127), (-127, 127), (-8, 7)], torch.uint8: [(0, 255), (0, 15)],
    torch.int16: [(-300, 300)],
}  # fmt: skip
STEPS = ("relu", "hardtanh", "add", "mul", "conv", "depthwise", "linear", "pool", "move", "cat")


class Draw:
    """Steps from an image [2, 4, 6, 6] to one of the same rank, whose numbers are known to be few bits long."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high + 1, shape, generator=self.generator)

    def scale(self) -> float:
        return 2.0 ** self.random.randint(-5, 0)

    def quantized(self) -> Step:
        """Quantize and dequantize: by numbers or by tensors, for the whole or for each place along a dim."""
        dtype = self.random.choice([*RANGES])
        low, high = self.random.choice(RANGES[dtype])
        zero = self.random.randint(low // 4, high // 4)
        kind, scale, axis = self.random.choice(("number", "tensor", "channel")), self.scale(), self.random.randrange(4)

        def step(x: Tensor) -> Tensor:
            given: tuple[Any, ...] = (scale, zero)
            rest: tuple[Any, ...] = (low, high, dtype)
            there, back = q.quantize_per_tensor.default, q.dequantize_per_tensor.default
            if kind == "tensor":
                given = torch.tensor(scale), torch.tensor(zero)
                there, back = q.quantize_per_tensor.tensor, q.dequantize_per_tensor.tensor
            elif kind == "channel":
                places = torch.arange(x.shape[axis])
                given, rest = (scale * 2.0 ** -(places % 3), zero + places % 2), (axis, low, high, dtype)
                there, back = q.quantize_per_channel.default, q.dequantize_per_channel.default
            return back(there(x, *given, *rest), *given, *rest)

        return step

    def weight(self, *shape: int) -> Callable[[], Tensor]:
        """What dequantizes int8, by one scale or one for each output; or int4, two in a byte."""
        kind, scale = self.random.choice(("int4", "number", "channel")), self.scale()
        scales = 2.0 ** -self.integers(0, 4, shape[0])
        packed = self.integers(0, 255, *shape[:-1], (shape[-1] + 1) // 2).to(torch.uint8)
        whole = self.integers(-127, 127, *shape).to(torch.int8)

        def halves() -> Tensor:
            both = torch.stack([(packed & 15).to(torch.int8) - 8, (packed >> 4).to(torch.int8) - 8], -1)
            return both.flatten(-2)[..., : shape[-1]].float() * scale

        def channels() -> Tensor:
            zeros = torch.zeros(shape[0], dtype=torch.int64)
            return q.dequantize_per_channel.default(whole, scales, zeros, 0, -127, 127, torch.int8)

        def one() -> Tensor:
            return q.dequantize_per_tensor.default(whole, scale, 0, -127, 127, torch.int8)

        return {"int4": halves, "channel": channels, "number": one}[kind]

    def step(self) -> Step:
        kind = self.random.choice(STEPS)
        if kind in ("conv", "depthwise"):
            groups = 4 if kind == "depthwise" else 1
            shape, stride = (4, 4 // groups, 3, 3), self.random.choice((1, 2))
            weight = self.weight(*shape)
            return lambda x: functional.conv2d(x, weight(), stride=stride, padding=1, groups=groups)
        if kind == "linear":
            weights = {size: self.weight(size, size) for size in (1, 2, 3, 6)}
            return lambda x: functional.linear(x, weights[x.shape[-1]]())
        return {
            "relu": torch.relu,
            "hardtanh": lambda x: functional.hardtanh(x, -2.0, 3.0),
            "add": lambda x: x + x.flip(-1),
            "mul": lambda x: x * x.flip(-2),
            "pool": lambda x: functional.max_pool2d(x, 3, stride=1, padding=1),
            "move": lambda x: x.transpose(-1, -2).contiguous(),
            "cat": lambda x: torch.cat([x, x * 0.5], 0)[:2],
        }[kind]

    def program(self) -> Step:
        """A few steps, each of numbers that were just quantized; the last result is, too."""
        steps = [self.quantized()]
        for _ in range(self.random.randint(1, 4)):
            steps += [self.step(), self.quantized()]

        def run(x: Tensor) -> Tensor:
            for step in steps:
                x = step(x)
            return x

        return run


def check(seed: int, target: str) -> None:
    draw = Draw(seed)
    program, x = draw.program(), draw.integers(-900, 900, 2, 4, 6, 6) / 128
    got, want = compile(program, (x,), target)(x), program(x)
    assert got.dtype == want.dtype and torch.equal(got, want), (seed, target, (got != want).sum())


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", range(1))
def test_a_few(seed: int, target: str) -> None:
    check(seed, target)


@pytest.mark.torture
@pytest.mark.parametrize("target", TARGETS)
def test_many(target: str) -> None:
    for seed in range(1, 120):
        check(seed, target)

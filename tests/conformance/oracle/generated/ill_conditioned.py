"""Ill-conditioned functions: what rounding is amplified by, cancels to, or decides."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.conformance.oracle.generated.building import CHAOTIC, DTYPES, Builder
from torchstone.conformance.program.program import Program, Ref

X = Ref("x")


@dataclass(frozen=True)
class IllConditioned:
    """A program and its inputs."""

    family: str
    program: Program
    inputs: tuple[Tensor, ...]


def _chaos(b: Builder) -> Ref:
    chaos = b.rng.choice([0.01, 0.1, 1.0]) * CHAOTIC[b.dtype]
    angle = b.angle(b(b.rng.choice(["exp", "cosh"]), X), chaos)
    return b(b.rng.choice(["sin", "cos"]), angle)


def _steep(b: Builder) -> Ref:
    """Differences that amplify what they are given, again and again."""
    out = b("exp", X)
    for _ in range(b.rng.randint(2, 5)):
        centred = b("sub", out, b("mean", out))
        out = b("exp", b("div", centred, b("std", out)))
    return out


def _pole(b: Builder) -> Ref:
    """One over what is left of a difference."""
    y = b("exp", b("mul", X, 0.01))
    left = b("sub", y, b("mean", y))
    return b(b.rng.choice(["reciprocal", "rsqrt", "log"]), b("abs", left) if b.rng.random() < 0.7 else left)


def _tangent(b: Builder) -> Ref:
    return b("tan", b("mul", b("exp", X), b.rng.choice([0.1, 0.01]) * CHAOTIC[b.dtype]))


def _cancelled_sum(b: Builder) -> Ref:
    y = b("exp", X)
    total = b("sum", b("sub", y, b("mean", y)))
    return b("mul", total, b.rng.choice([1.0, 1e3]))


def _edge(b: Builder) -> Ref:
    """Beside the end of a domain."""
    y = b("mul", b("exp", X), b("exp", b("neg", X)))
    return b(b.rng.choice(["acos", "asin", "atanh", "acosh"]), y)


def _normed(b: Builder) -> Ref:
    """What a normalization makes of rows whose spread is nothing but rounding."""
    y = b("add", b("mul", X, 1e-3 if torch.finfo(b.dtype).bits > 16 else 1e-2), 3.0)
    size = 16
    out = b("nn.functional.layer_norm", b("exp", y), (size,))
    return b(b.rng.choice(["exp", "sin", "tanh"]), b("mul", out, b.rng.choice([1.0, 5.0])))


def _decided(b: Builder) -> Ref:
    chaotic = _chaos(b)
    jump = b(b.rng.choice(["sign", "round", "floor"]), b("mul", chaotic, 2.4))
    return b("add", jump, b("mul", chaotic, 0.3))


def _softmax(b: Builder) -> Ref:
    scores = b("mul", b("exp", X), 0.01 * CHAOTIC[b.dtype])
    out = b(b.rng.choice(["softmax", "log_softmax"]), scores, -1)
    return b("sub", out, b("mean", out))


def _product(b: Builder) -> Ref:
    square = b("reshape", b("exp", X), (4, 4))
    return b("sub", b("matmul", square, square), b("matmul", square, b("add", square, 1e-3)))


def _solve(b: Builder) -> Ref:
    square = b("add", b("reshape", b("mul", X, 1e-4), (4, 4)), 1.0)
    return b(b.rng.choice(["linalg.inv", "linalg.det", "linalg.svdvals", "linalg.cond"]), square)


def _eigen(b: Builder) -> Ref:
    square = b("reshape", b("mul", X, 1e-4), (4, 4))
    symmetric = b("add", b("matmul", square, b("t", square)), b.rng.choice([0.0, 1.0]))
    return b("linalg.eigvalsh", symmetric)


def _power(b: Builder) -> Ref:
    return b("pow", b("exp", X), b.rng.choice([50.0, 100.0, -80.0]) if b.dtype is not torch.float16 else 12.0)


def _iterated(b: Builder) -> Ref:
    """The logistic map, which doubles an error in each step."""
    out = b("sigmoid", X)
    for _ in range(b.rng.choice([8, 16, 30])):
        out = b("mul", b("mul", out, b("rsub", out, 1.0)), 3.97)
    return out


FAMILIES: dict[str, Callable[[Builder], Ref]] = {
    "chaos": _chaos,
    "steep": _steep,
    "pole": _pole,
    "tangent": _tangent,
    "cancelled sum": _cancelled_sum,
    "edge": _edge,
    "normed": _normed,
    "decided": _decided,
    "softmax": _softmax,
    "product": _product,
    "solve": _solve,
    "eigen": _eigen,
    "power": _power,
    "iterated": _iterated,
}
_FULL_PRECISION = ("solve", "eigen")
"""LAPACK has no 16-bit numbers."""


def ill_conditioned(seed: int) -> IllConditioned:
    """The ill-conditioned function of a seed: families and dtypes in turn, all else at random."""
    rng = random.Random(seed)
    dtype = DTYPES[seed % len(DTYPES)]
    family = list(FAMILIES)[seed // len(DTYPES) % len(FAMILIES)]
    if family in _FULL_PRECISION and torch.finfo(dtype).bits == 16:
        dtype = torch.float32
    b = Builder(rng, dtype)
    out = FAMILIES[family](b)
    x = torch.rand(16, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return IllConditioned(family, b.program(out), ((0.1 + 0.4 * x).to(dtype),))

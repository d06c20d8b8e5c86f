"""Six more ops with a bug each, written after the fuzzer was: bugs that it was not developed on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.new_ops import Replacing
from torchstone.fuzz import register

LIBRARY = torch.library.Library("heldout", "DEF")


def define(schema: str, function: Any) -> Any:
    """Define an op that PyTorch takes apart, and return its overload."""
    name = schema.partition("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, function, "CompositeImplicitAutograd")
    return getattr(torch.ops.heldout, name).default


# 1. A 0-d input gives a result of one dim.


def _clip_norm(x: Tensor, max_norm: float = 1.0, p: float = 2.0) -> Tensor:
    norm = torch.linalg.vector_norm(x.flatten(), p)
    return x * torch.clamp(max_norm / (norm + 1e-6), max=1.0)


CLIP_NORM = define("clip_norm(Tensor x, float max_norm=1.0, float p=2.0) -> Tensor", _clip_norm)
adds_a_dim = Replacing(
    "adds-a-dim", CLIP_NORM, lambda x, *args, **more: _clip_norm(x, *args, **more).reshape(x.shape or (1,))
)

# 2. A copy where the schema promises a view.

EVERY_OTHER = define("every_other(Tensor(a) x, int step=2) -> Tensor(a)", lambda x, step=2: x[..., ::step])
copies = Replacing("copies", EVERY_OTHER, lambda x, step=2: x[..., ::step].clone())

# 3. A gradient that loses its sign beyond a bound.


def _huber(x: Tensor, y: Tensor, delta: float = 1.0) -> Tensor:
    apart = x - y
    return torch.where(apart.abs() <= delta, 0.5 * apart * apart, delta * (apart.abs() - 0.5 * delta)).sum()


class _LosesTheSign(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, delta: float) -> Tensor:
        ctx.save_for_backward(x, y)
        ctx.delta = delta
        return _huber(x, y, delta)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        x, y = ctx.saved_tensors
        of_x = torch.where((x - y).abs() <= ctx.delta, x - y, torch.full_like(x, ctx.delta)) * gradient
        return of_x, -of_x, None


HUBER = define("huber(Tensor x, Tensor y, float delta=1.0) -> Tensor", _huber)
loses_the_sign = Replacing("loses-the-sign", HUBER, lambda x, y, delta=1.0: _LosesTheSign.apply(x, y, delta))
register(
    HUBER,
    sample=lambda dtype: [
        (torch.randn(4, 3).to(dtype) * 2, torch.randn(4, 3).to(dtype)),
        (torch.randn(6).to(dtype), torch.randn(6).to(dtype), 0.5),
    ],
)

# 4. Code for sizes that vary keeps the first size that it meets.


def _windows(x: Tensor, size: int) -> Tensor:
    return x.unfold(0, size, 1).sum(-1)


class _KeepsTheFirstSize:
    first = -1

    def __call__(self, x: Tensor, size: int) -> Tensor:
        self.first = x.shape[0] if self.first < 0 else self.first
        return _windows(x[: self.first], size)


class _ForEachCompilation(Replacing):
    def compile_dynamic(self, fn: Any, args: tuple[Tensor, ...], dims: Any) -> Any:
        return self._with(fn, _KeepsTheFirstSize())


WINDOWS = define("windows(Tensor x, int size) -> Tensor", _windows)
keeps_the_size = _ForEachCompilation("keeps-the-size", WINDOWS, _windows)
register(WINDOWS, sample=lambda dtype: [(torch.randn(7).to(dtype), 3), (torch.randn(5, 2).to(dtype), 2)])

# 5. Narrow integers are multiplied in their own width.


def _dot_last(a: Tensor, b: Tensor) -> Tensor:
    floating = any(tensor.is_floating_point() or tensor.is_complex() for tensor in (a, b))
    return (a * b).sum(-1) if floating else (a.to(torch.int64) * b.to(torch.int64)).sum(-1)


DOT_LAST = define("dot_last(Tensor a, Tensor b) -> Tensor", _dot_last)
wraps = Replacing("wraps", DOT_LAST, lambda a, b: (a * b).sum(-1))

# 6. One call in five loses a contribution.


class _LosesOneInFive:
    calls = 0

    def __call__(self, x: Tensor, index: Tensor, rows: int) -> Tensor:
        self.calls += 1
        lossy = self.calls % 5 == 0 and index.numel() > 1
        return _scatter_mean(x, torch.cat([index[:-1], index[:1]]) if lossy else index, rows)


def _scatter_mean(x: Tensor, index: Tensor, rows: int) -> Tensor:
    total = x.new_zeros((rows, *x.shape[1:])).index_add(0, index, x)
    count = torch.zeros(rows, dtype=x.dtype).index_add(0, index, torch.ones_like(index).to(x.dtype))
    return total / count.clamp(min=1).reshape(-1, *(1 for _ in x.shape[1:]))


SCATTER_MEAN = define("scatter_mean(Tensor x, Tensor index, int rows) -> Tensor", _scatter_mean)
races = Replacing("races", SCATTER_MEAN, _LosesOneInFive())

"""Twelve more ops with a bug each in a function that ``torch.compile`` takes for a backend, by what they take and give.

Optional tensors, lists of tensors, lists of numbers, words, several results, views, writes to two arguments, complex
numbers, results counted in whole numbers: none of the other ops has these. Half of them have no sample function.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from torchstone.fuzz import register

LIBRARY = torch.library.Library("signatures", "DEF")


def define(schema: str, function: Callable[..., Any]) -> str:
    """Define an op that PyTorch takes apart, and return its name."""
    name = schema.partition("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, function, "CompositeImplicitAutograd")
    return f"signatures::{name}"


def replacing(name: str, wrong: Callable[..., Any]) -> Callable[..., Any]:
    """A backend that computes an op otherwise."""

    def backend(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        op = getattr(torch.ops.signatures, name)
        for node in gm.graph.nodes:
            if node.target in (op, op.default):
                node.target = wrong
        gm.recompile()
        return gm.forward

    return backend


def right(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """A backend without a bug."""
    return gm.forward


# 1. An optional tensor; its dtype has no say in that of the result.


def _weighted(x: Tensor, weight: Tensor | None = None) -> Tensor:
    return x.clone() if weight is None else x * weight


def _weighted_in_its_own_dtype(x: Tensor, weight: Tensor | None = None) -> Tensor:
    out = _weighted(x, weight)
    return out.to(x.dtype) if x.is_floating_point() and out.is_floating_point() else out


define("weighted(Tensor x, Tensor? weight=None) -> Tensor", _weighted)
keeps_the_dtype = replacing("weighted", _weighted_in_its_own_dtype)

# 2. A list of tensors; of three or more, the last element is another's.


@torch.library.custom_op("signatures::interleave", mutates_args=())
def interleave(xs: list[Tensor], dim: int = 0) -> Tensor:
    at = dim % xs[0].dim()
    return torch.stack([x.to(xs[0].dtype) for x in xs], at + 1).flatten(at, at + 1)


@interleave.register_fake
def _(xs: list[Tensor], dim: int = 0) -> Tensor:
    shape = list(xs[0].shape)
    shape[dim % xs[0].dim()] *= len(xs)
    return xs[0].new_empty(shape)


def _interleave_but_the_last(xs: list[Tensor], dim: int = 0) -> Tensor:
    out = torch.ops.signatures.interleave(xs, dim)
    if len(xs) > 2 and out.numel():
        out.view(-1)[-1] = xs[0].reshape(-1)[-1]
    return out


takes_the_first = replacing("interleave", _interleave_but_the_last)

# 3. A list of numbers; elements are read in the order of memory.


def _tile_sum(x: Tensor, sizes: Sequence[int]) -> Tensor:
    for dim, size in enumerate(sizes, x.dim() - len(sizes)):
        if x.shape[dim] % size:
            raise ValueError(f"dim {dim} of size {x.shape[dim]} is no multiple of {size}")
        x = x.unflatten(dim, (-1, size)).sum(dim + 1)
    return x


def _tile_sum_in_memory_order(x: Tensor, sizes: Sequence[int]) -> Tensor:
    reach = (x.storage_offset() + x.numel()) * x.itemsize
    if x.numel() and not x.is_contiguous() and reach <= x.untyped_storage().nbytes():
        x = x.as_strided(x.shape, torch.empty(x.shape).stride())
    return _tile_sum(x, sizes)


register(
    define("tile_sum(Tensor x, int[] sizes) -> Tensor", _tile_sum),
    sample=lambda dtype: [(torch.randn(4, 6).to(dtype), [2, 3]), (torch.randn(2, 8).to(dtype), [4])],
)
reads_in_a_row = replacing("tile_sum", _tile_sum_in_memory_order)

# 4. Several results; the second has a dim where the input has none.


@torch.library.custom_op("signatures::bounds", mutates_args=())
def bounds(x: Tensor, margin: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    return x.amin(-1) - margin, x.amax(-1) + margin, x.argmax(-1)


@bounds.register_fake
def _(x: Tensor, margin: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    dtype = x.dtype if x.is_floating_point() else torch.float32
    low, high = (x.new_empty(x.shape[:-1], dtype=dtype) for _ in range(2))
    return low, high, x.new_empty(x.shape[:-1], dtype=torch.int64)


def _bounds_of_one_dim(x: Tensor, margin: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    low, high, place = torch.ops.signatures.bounds(x, margin)
    return low, high.reshape(high.shape or (1,)) if not x.dim() else high, place


adds_a_dim = replacing("bounds", _bounds_of_one_dim)

# 5. A reduction; of nothing it is zero.


def _log_mean_exp(x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    dims = list(range(x.dim())) if dim is None else list(dim)
    count = math.prod(x.shape[at] for at in dims) if x.dim() else 1
    return torch.logsumexp(x, dims, keepdim) - torch.log(torch.tensor(float(count)))


def _log_mean_exp_of_nothing(x: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False) -> Tensor:
    out = _log_mean_exp(x, dim, keepdim)
    return out if x.numel() else torch.zeros_like(out)


register(
    define("log_mean_exp(Tensor x, int[]? dim=None, bool keepdim=False) -> Tensor", _log_mean_exp),
    sample=lambda dtype: [
        (torch.randn(3, 4).to(dtype),),
        ((torch.randn(3, 4).to(dtype), [1]), {"keepdim": True}),
        ((torch.randn(2, 3, 4).to(dtype), [0, 2]), {}),
    ],
)
is_zero_of_nothing = replacing("log_mean_exp", _log_mean_exp_of_nothing)

# 6. A word, which eager names without quotes; in one of them NaN is lost.


def _edge(x: Tensor, left: int, right: int, mode: str = "repeat") -> Tensor:
    if mode == "repeat":
        before, after = (x[..., at].unsqueeze(-1) for at in (0, -1))
        return torch.cat([before.expand(*x.shape[:-1], left), x, after.expand(*x.shape[:-1], right)], -1)
    if mode == "zero":
        before, after = (x.new_zeros((*x.shape[:-1], size)) for size in (left, right))
        return torch.cat([before, x, after], -1)
    if mode == "wrap":
        return torch.cat([x[..., x.shape[-1] - left :], x, x[..., :right]], -1)
    raise ValueError(f"unknown mode {mode!r}: repeat, zero or wrap")


def _edge_without_nan(x: Tensor, left: int, right: int, mode: str = "repeat") -> Tensor:
    out = _edge(x, left, right, mode)
    return torch.where(out.isnan(), 0, out) if mode == "wrap" and x.is_floating_point() else out


define('edge(Tensor x, int left, int right, str mode="repeat") -> Tensor', _edge)
loses_nan = replacing("edge", _edge_without_nan)

# 7. Two views; the second is a copy.


def _halves(x: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    middle = x.shape[dim] // 2
    return x.narrow(dim, 0, middle), x.narrow(dim, middle, x.shape[dim] - middle)


def _half_a_copy(x: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    first, second = _halves(x, dim)
    return first, second.clone()


register(
    define("halves(Tensor(a) x, int dim=0) -> (Tensor(a), Tensor(a))", _halves),
    sample=lambda dtype: [(torch.randn(4, 3).to(dtype),), (torch.randn(2, 5).to(dtype), 1)],
)
copies_one = replacing("halves", _half_a_copy)

# 8. Writes to two arguments, one of them optional: that one is missed.


def _step(param: Tensor, grad: Tensor, velocity: Tensor | None = None, lr: float = 0.1) -> Tensor:
    if velocity is not None:
        grad = velocity.mul_(0.5).add_(grad)
    return param.sub_(grad * lr)


def _step_without_velocity(param: Tensor, grad: Tensor, velocity: Tensor | None = None, lr: float = 0.1) -> Tensor:
    return _step(param, grad, None if velocity is None else velocity.clone(), lr)


define("step_(Tensor(a!) param, Tensor grad, Tensor(b!)? velocity=None, *, float lr=0.1) -> Tensor(a!)", _step)
misses_one_write = replacing("step_", _step_without_velocity)

# 9. Complex numbers; the gradient is not conjugated.


def _rotate(x: Tensor, angle: Tensor) -> Tensor:
    return x * torch.polar(torch.ones_like(angle), angle)


class _NotConjugated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, angle: Tensor) -> Tensor:
        turn = torch.polar(torch.ones_like(angle), angle)
        ctx.save_for_backward(x, angle, turn)
        return x * turn

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        x, angle, turn = ctx.saved_tensors
        of_x, of_angle = gradient * turn, (gradient.conj() * x * turn * 1j).real
        return (of_x if x.is_complex() else of_x.real).sum_to_size(x.shape), of_angle.sum_to_size(angle.shape)


def _rotations(dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor]]:
    real = dtype.to_real() if dtype.is_complex else dtype
    yield torch.randn(3, 4).to(dtype), torch.randn(3, 4).to(real)
    yield torch.randn(5, dtype=torch.complex64), torch.randn(1).to(real)


register(define("rotate(Tensor x, Tensor angle) -> Tensor", _rotate), sample=_rotations)
does_not_conjugate = replacing("rotate", lambda x, angle: _NotConjugated.apply(x, angle))

# 10. Code for sizes that vary divides by the first one.


def _centered(x: Tensor, dim: int = -1) -> Tensor:
    return x - x.mean(dim, keepdim=True)


def divides_by_the_first(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    first: list[int] = []

    def centered(x: Tensor, dim: int = -1) -> Tensor:
        first.append(x.shape[dim])
        return x - x.sum(dim, keepdim=True) / first[0]

    symbolic = any(isinstance(given, torch.SymInt) for given in example_inputs)
    return replacing("centered", centered if symbolic else _centered)(gm, example_inputs)


register(
    define("centered(Tensor x, int dim=-1) -> Tensor", _centered),
    sample=lambda dtype: [(torch.randn(4, 6).to(dtype),), (torch.randn(3, 2, 5).to(dtype), 1)],
)

# 11. A number of any kind; narrow integers are squared in their own width.


def _energy(x: Tensor, scale: float = 1, dim: int = -1) -> Tensor:
    wide = x if x.is_floating_point() or x.is_complex() else x.to(torch.int64)
    return (wide * wide).sum(dim) * scale


define("energy(Tensor x, Scalar scale=1, int dim=-1) -> Tensor", _energy)
wraps = replacing("energy", lambda x, scale=1, dim=-1: (x * x).sum(dim) * scale)

# 12. Counts; one call in five loses an element.


def _histogram(x: Tensor, edges: Tensor, density: bool = False) -> Tensor:
    place = torch.bucketize(x.flatten(), edges)
    count = torch.zeros(edges.numel() + 1, dtype=torch.int64).index_add(0, place, torch.ones_like(place))
    return count / max(x.numel(), 1) if density else count


def _histogram_with_a_race(x: Tensor, edges: Tensor, density: bool = False) -> Tensor:
    lossy = x.numel() > 4 and random.random() < 0.2
    return _histogram(x.flatten()[1:] if lossy else x, edges, density)


register(
    define("histogram(Tensor x, Tensor edges, bool density=False) -> Tensor", _histogram),
    sample=lambda dtype: [
        (torch.randn(4, 6).to(dtype), torch.tensor([-1.0, 0.0, 1.0]).to(dtype)),
        ((torch.randn(9).to(dtype), torch.tensor([0.0]).to(dtype)), {"density": True}),
    ],
    gradient=False,
)
loses_one_in_five = replacing("histogram", _histogram_with_a_race)

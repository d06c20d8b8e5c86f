"""Steps of programs by class. A step is one call or a few, on the result of the step before.

Each class has what compilers treat alike. A step says nothing of dtypes and little of shapes: eager refuses it where it
does not fit, and it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torchstone.conformance.program.literals import Ref
from torchstone.conformance.sources.programs.draft import Draft

Step = Callable[[Draft, Ref], Ref]


def _of(target: str, *args: Any, **kwargs: Any) -> Step:
    """One call on the result, with literals behind it."""
    return lambda d, x: d.call(f"torch.{target}", x, *args, **kwargs)


def _with(target: str, *args: Any, **kwargs: Any) -> Step:
    """One call on the result and an input like it."""
    return lambda d, x: d.call(f"torch.{target}", x, d.like(x), *args, **kwargs)


def _twice(target: str) -> Step:
    return lambda d, x: d.call(f"torch.{target}", x, x)


def _first(step: Step) -> Step:
    """The first of several results."""
    return lambda d, x: Ref(step(d, x).name, (0,))


def _made(target: str, *args: Any, **kwargs: Any) -> Step:
    """A tensor made of numbers alone."""
    return lambda d, x: d.call(f"torch.{target}", *args, **kwargs, dtype=d.dtype)


def _to(dtype: torch.dtype, *, back: bool = False) -> Step:
    def cast(d: Draft, x: Ref) -> Ref:
        there = d.call("torch.Tensor.to", x, dtype)
        return d.call("torch.Tensor.to", there, d[x].dtype) if back else there

    return cast


def _meeting(dtype: torch.dtype) -> Step:
    """A sum with an input of another dtype."""
    return lambda d, x: d.call("torch.add", x, d.input(*d[x].shape, dtype=dtype))


def _row(target: str, *args: Any) -> Step:
    """A row of a wider tensor, which is as wide as the result: read with a stride."""

    def view(d: Draft, x: Ref) -> Ref:
        return d.call(f"torch.{target}", d.call("torch.Tensor.transpose", x, 0, -1), *args)

    return view


def _expanded(d: Draft, x: Ref) -> Ref:
    return d.call("torch.Tensor.expand", x, 3, *d[x].shape)


def _expanded_behind(d: Draft, x: Ref) -> Ref:
    return d.call("torch.Tensor.expand", d.call("torch.unsqueeze", x, -1), *d[x].shape, 3)


def _matrix(d: Draft, x: Ref) -> Ref:
    return d.call("torch.matmul", x, d.input(d[x].shape[-1], 3, dtype=d[x].dtype))


def _left(d: Draft, x: Ref) -> Ref:
    return d.call("torch.matmul", d.input(3, d[x].shape[-2], dtype=d[x].dtype), x)


def _linear(d: Draft, x: Ref) -> Ref:
    size, dtype = d[x].shape[-1], d[x].dtype
    return d.call("torch.nn.functional.linear", x, d.input(3, size, dtype=dtype), d.input(3, dtype=dtype))


def _gram(d: Draft, x: Ref) -> Ref:
    return d.call("torch.matmul", x, d.call("torch.Tensor.transpose", x, -1, -2))


def _selected(d: Draft, x: Ref) -> Ref:
    return d.call("torch.index_select", x, 0, d.indices(x, 0, 5))


def _gathered(d: Draft, x: Ref) -> Ref:
    return d.call("torch.gather", x, -1, d.input(*d[x].shape, dtype=torch.int64, below=d[x].shape[-1]))


def _taken(d: Draft, x: Ref) -> Ref:
    return d.call("torch.take", x, d.input(5, dtype=torch.int64, below=d[x].numel()))


def _at_mask(d: Draft, x: Ref) -> Ref:
    return d.call("torch.Tensor.__getitem__", x, d.mask(x))


def _beside_mask(d: Draft, x: Ref) -> Ref:
    """A mask of all dims but the last, and a row of places along the last."""
    mask = d.call("torch.ones", list(d[x].shape[:-1]), dtype=torch.bool)
    places = d.input(d[x][..., 0].numel(), dtype=torch.int64, below=d[x].shape[-1])
    return d.call("torch.Tensor.__getitem__", x, (mask, places))


def _at_pairs(d: Draft, x: Ref) -> Ref:
    return d.call("torch.Tensor.__getitem__", x, (d.indices(x, 0, 5), slice(None), d.indices(x, 2, 5)))


def _at_rows(d: Draft, x: Ref) -> Ref:
    return d.call("torch.Tensor.__getitem__", x, (slice(None), d.indices(x, 1, 5)))


def _argmax_taken(d: Draft, x: Ref) -> Ref:
    return d.call("torch.take_along_dim", x, d.call("torch.argmax", x, -1, keepdim=True), -1)


def _written(view: Sequence[Any], write: Sequence[Any]) -> Step:
    """A copy of the result after a write to a view of it; the view's own numbers go into the result, too."""

    def step(d: Draft, x: Ref) -> Ref:
        base = d.call("torch.clone", x)
        part = d.call(f"torch.Tensor.{view[0]}", base, *view[1:])
        operands = [d.like(part)] if len(write) == 1 else write[1:]
        d.call(f"torch.Tensor.{write[0]}", part, *operands)
        return base

    return step


def _of_itself(d: Draft, x: Ref) -> Ref:
    """A copy of the result to which its own transposed is added: read and written at once, through a copy."""
    base = d.call("torch.clone", x)
    turned = d.call("torch.clone", d.call("torch.flip", base, [0]))
    d.call("torch.Tensor.add_", base, turned)
    return base


def _as_bits(dtype: torch.dtype) -> Step:
    """The same memory as another dtype; of real numbers, as few compilers know what complex ones are made of."""

    def view(d: Draft, x: Ref) -> Ref:
        if d[x].is_complex() or d[x].dtype == torch.bool:
            raise TypeError("not a real number")
        return d.call("torch.Tensor.view", x, dtype)

    return view


def _written_beside_mask(d: Draft, x: Ref) -> Ref:
    """A copy of the result, written to where a mask of all dims but the last holds, at one place along the last."""
    base, mask = d.call("torch.clone", x), d.mask(d.call("torch.select", x, -1, 0))
    place = d.input(1, dtype=torch.int64, below=d[x].shape[-1])
    d.call("torch.Tensor.__setitem__", base, (mask, place), 1)
    return base


def _rows_beside_mask(*, one_place: bool) -> Step:
    """A copy of the result, written to where a mask of all dims but the last holds: one value for each such place.

    Along the last dim they are in one place, or each in its own.
    """

    def step(d: Draft, x: Ref) -> Ref:
        base, mask = d.call("torch.clone", x), d.call("torch.ones", list(d[x].shape[:-1]), dtype=torch.bool)
        count = d[x][..., 0].numel()
        places = d.input(1 if one_place else count, dtype=torch.int64, below=d[x].shape[-1])
        d.call("torch.Tensor.__setitem__", base, (mask, places), d.input(count, dtype=d[x].dtype))
        return base

    return step


def _quantized(dtype: torch.dtype) -> Step:
    """Rounded to what integers hold, by a scale that is a tensor of some dtype."""

    def step(d: Draft, x: Ref) -> Ref:
        scale = d.call("torch.full", [], 0.11, dtype=dtype)
        zero = d.call("torch.full", [], 3, dtype=torch.int32)
        return d.call("torch.fake_quantize_per_tensor_affine", x, scale, zero, -8, 17)

    return step


def _masked_write(d: Draft, x: Ref) -> Ref:
    base = d.call("torch.clone", x)
    d.call("torch.Tensor.__setitem__", base, d.mask(x), 1)
    return base


def _accumulated(d: Draft, x: Ref) -> Ref:
    base, index = d.call("torch.clone", x), d.indices(x, 0, 5)
    rows = d.input(5, *d[x].shape[1:], dtype=d[x].dtype)
    d.call("torch.Tensor.index_add_", base, 0, index, rows)
    return base


def _scattered(d: Draft, x: Ref) -> Ref:
    index = d.input(*d[x].shape, dtype=torch.int64, below=d[x].shape[0])
    return d.call("torch.scatter_add", d.call("torch.zeros_like", x), 0, index, x)


def _joined_turned(d: Draft, x: Ref) -> Ref:
    return d.call("torch.cat", [x, d.call("torch.flip", x, [0])], 0)


def _times_item(d: Draft, x: Ref) -> Ref:
    return d.call("torch.mul", x, d.call("torch.Tensor.item", d.call("torch.sum", d.input(3))))


def _sum_fed_back(d: Draft, x: Ref) -> Ref:
    return d.call("torch.sub", x, d.call("torch.Tensor.item", d.call("torch.amax", x)))


def _selected_at_item(d: Draft, x: Ref) -> Ref:
    return d.call("torch.select", x, 0, d.call("torch.Tensor.item", d.call("torch.argmax", d.input(d[x].shape[0]))))


_NUMBERS = ("exp", "log", "sqrt", "square", "neg", "abs", "reciprocal", "rsqrt", "sin", "tanh", "sigmoid", "relu")
_JUMPS = ("floor", "ceil", "round", "sign", "logical_not", "isnan")
_SUMS = ("add", "sub", "mul", "div", "maximum", "minimum", "atan2", "fmod", "lt", "eq")
_CASTS = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool", "complex64")
_RARE = (
    "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float8_e8m0fnu",
)  # fmt: skip

STEPS: Mapping[str, Sequence[Step]] = {
    "create": (
        _made("ones", [4, 3, 2]), _made("zeros", [3, 4, 2]), _made("full", [4, 3, 2], 3), _made("eye", 4, 3),
        _made("arange", 12), _made("full", [], 2), _made("linspace", 0, 3, 4), _of("ones_like"), _of("full_like", 2),
        lambda d, x: d.call("torch.Tensor.expand", d.call("torch.ones", [1, 3, 1], dtype=d.dtype), 4, 3, 2),
        _made("fft.fftfreq", 9), _made("fft.rfftfreq", 8, 0.5),
    ),
    "compute": (
        *map(_of, (*_NUMBERS, *_JUMPS)), _of("clamp", -1, 1), _of("clamp", 0), _of("pow", 2), _of("mul", 0),
        _of("mul", 2), _of("add", 0), _of("div", 1), _of("rsub", 1),
        _of("fake_quantize_per_tensor_affine", 0.1, 3, -8, 17), _quantized(torch.float32), _quantized(torch.float64),
        _quantized(torch.bfloat16),
    ),
    "combine": (
        _twice("add"), _twice("sub"), _twice("mul"), _twice("div"), *map(_with, _SUMS),
        lambda d, x: d.call("torch.where", d.call("torch.gt", x, 0), x, d.like(x)),
        lambda d, x: d.call("torch.addcmul", x, d.like(x), d.like(x)),
        lambda d, x: d.call("torch.add", x, d.input(dtype=d[x].dtype)),
        lambda d, x: d.call("torch.mul", x, d.input(d[x].shape[-1], dtype=d[x].dtype)),
    ),
    "cast": (
        *(_to(getattr(torch, name)) for name in _CASTS), *(_meeting(getattr(torch, name)) for name in _CASTS),
        *(_to(getattr(torch, name), back=True) for name in (*_CASTS, *_RARE) if hasattr(torch, name)),
        *(_meeting(getattr(torch, name)) for name in _RARE if hasattr(torch, name)),
        *map(_as_bits, (torch.int16, torch.int32, torch.float32, torch.int64)),
    ),
    "expand": (
        _expanded, _expanded_behind, _of("Tensor.repeat", 2, 1, 1), _of("repeat_interleave", 2, 0), _of("tile", [2]),
        _of("broadcast_to", [2, 4, 3, 2]), _of("unsqueeze", 1), _of("Tensor.expand", 2, -1, -1, -1),
    ),
    "view": (
        _of("transpose", 0, -1), _of("Tensor.__getitem__", slice(None, None, 2)), _of("flip", [0]), _of("flip", [-1]),
        _of("narrow", 0, 1, 2), _of("select", -1, 1), _of("diagonal"), _of("Tensor.unfold", 0, 2, 1),
        _of("reshape", [-1]),
        _of("permute", [2, 0, 1]), _of("Tensor.__getitem__", (Ellipsis, slice(1, None))), _of("roll", 1, 0),
        _row("reshape", [-1]), _row("reshape", [2, -1]), _row("Tensor.contiguous"),
    ),
    "reduce": (
        *(_of(name, dim) for name in ("sum", "mean", "amax", "argmax", "logsumexp", "var") for dim in (0, -1)),
        _of("sum"), _of("prod", 1), _of("any", 0), _of("all"), _of("norm"), _of("count_nonzero"), _of("amin", [0, 2]),
        _of("sum", [0, 1], keepdim=True), _of("std", 1), _first(_of("max", 1)),
    ),
    "scan": (
        _of("cumsum", 0), _of("cumsum", -1), _of("cumprod", -1), _of("logcumsumexp", 0), _of("softmax", -1),
        _of("softmax", 0), _of("log_softmax", 1), _first(_of("cummax", 0)), _first(_of("sort", 0)), _of("argsort", -1),
        _first(_of("topk", 2)), _first(_of("sort", -1, True)), _first(_of("kthvalue", 2)),
    ),
    "contract": (
        _matrix, _left, _linear, _gram, _twice("outer"), _with("dot"),
        lambda d, x: d.call("torch.einsum", "...ij,...kj->...ik", x, d.like(x)),
        lambda d, x: d.call("torch.tensordot", x, d.like(x), 1),
        lambda d, x: d.call("torch.nn.functional.conv1d", x, d.input(2, d[x].shape[1], 2, dtype=d[x].dtype)),
        lambda d, x: d.call("torch.baddbmm", d.input(1, dtype=d[x].dtype), x, d.call("torch.transpose", x, 1, 2)),
    ),
    "index": (
        _selected, _gathered, _taken, _at_mask, _beside_mask, _at_pairs, _at_rows, _argmax_taken,
        lambda d, x: d.call("torch.masked_fill", x, d.mask(x), 1),
        lambda d, x: d.call("torch.nn.functional.embedding", d.input(3, 2, dtype=torch.int64, below=2), x),
        lambda d, x: d.call("torch.masked_select", x, d.mask(x)),
    ),
    "write": (
        _written(("select", 0, 1), ("add_",)), _written(("transpose", 0, -1), ("mul_",)),
        _written(("narrow", 0, 1, 2), ("copy_",)), _written(("diagonal",), ("fill_", 1)),
        _written(("select", -1, 0), ("zero_",)), _written(("flatten",), ("mul_", 2)),
        _written(("__getitem__", slice(None, None, 2)), ("sub_",)), _written(("unsqueeze", 0), ("clamp_", 0)),
        _masked_write, _accumulated, _scattered, _of_itself, _written_beside_mask,
        _rows_beside_mask(one_place=True), _rows_beside_mask(one_place=False),
    ),
    "join": (
        _joined_turned, lambda d, x: d.call("torch.stack", [x, d.like(x), x], 1),
        lambda d, x: d.call("torch.cat", [x, x, d.like(x)], -1), _first(_of("chunk", 2)), _first(_of("split", [1, 3])),
        _first(_of("unbind", -1)), lambda d, x: d.call("torch.hstack", [d.like(x), x]),
    ),
    "host": (_times_item, _sum_fed_back, _selected_at_item),
}  # fmt: skip
"""Steps by class."""

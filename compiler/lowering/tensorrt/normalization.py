"""Normalization layers; and batch normalization as a scale layer, where statistics and parameters are known."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.ir import Operation
from torchstone.compiler.lowering.tensorrt.held import Held
from torchstone.compiler.lowering.tensorrt.layer_table import lowers
from torchstone.compiler.lowering.tensorrt.network import Network
from torchstone.compiler.transforms.fold_scales import known_scale


def _scale(op: Operation) -> tuple[Any, Any] | None:
    """Return what x is multiplied by and what is added; None unless both are known numbers."""
    affine = known_scale(op)
    return affine if affine is not None and all(bool(v.isfinite().all()) for v in affine) else None


def unknown(op: Operation) -> str | None:
    """Return why a batch normalization is not one layer here, None for one that is, and for other ops."""
    if op.name != "flat.batch_norm" or _scale(op) is not None:
        return None
    return "flat.batch_norm: TensorRT wants numbers that are known at build time, and finite"


def _takes(op: Operation) -> str | None:
    x = next(op.values)
    if op.attributes["dim"] != 1:
        return "TensorRT has the channels in the second dim"
    return None if x.rank >= 4 else f"TensorRT scales tensors of 4 dims or more, got {x.type}"


@lowers("batch_norm", "scale", frozenset({"FLOAT"}), _takes, holds=True)
def batch_norm(n: Network, op: Operation, x: Held, *_: Held) -> Held:
    known, value = _scale(op), next(op.values)
    if known is None:
        raise AssertionError("its body comes before")
    tensor = x.read(n)
    if x.shape != value.shape:
        tensor = n.expand(tensor, x.shape, value.shape)
    return Held(value.shape, n.scale(n.told(tensor, value.shape), *known))


def _not_taken(op: Operation) -> str | None:
    x, dims = next(op.values), op.attributes["dims"]
    if 0 in dims:
        return "TensorRT has the batch in the first dim"
    known = all(isinstance(x.shape[d], int) and x.shape[d] for d in dims)
    return None if known else f"TensorRT normalizes over elements of a known number, got {x.type} over {list(dims)}"


@lowers("normalize", "normalization", frozenset({"FLOAT"}), _not_taken, holds=True)
def normalize(n: Network, op: Operation, x: Held, *affine: Held) -> Held:
    """A weight of 1 and a bias of -0 leave each number as it is, zeros of both signs too."""
    (value, *params), dims = op.values, op.attributes["dims"]
    shape = tuple(size if d in dims else 1 for d, size in enumerate(value.shape))
    given = [held.reshaped(n, op, param.shape, shape).read(n) for held, param in zip(affine, params, strict=True)]
    given += [n.constant(number, shape, "FLOAT") for number in (1.0, -0.0)[len(given) :]]
    tensor = n.expand(x.read(n), x.shape, value.shape)
    axes = sum(1 << d for d in dims)
    return Held(value.shape, n.add("normalization", tensor, *given, axes, epsilon=op.attributes["eps"]))

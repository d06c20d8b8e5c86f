"""The pass ``fold-scales``: what a convolution's result is multiplied by, or what is added, joins its weight and bias.

For weights and numbers that are the same at every run, the numbers one for each channel. So a batch normalization that
follows a convolution is no op. A factor is rounded into each weight, as eager rounds each product: of 16-bit weights,
whose products eager does not round, nothing is folded.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from torchstone.compiler.ir import Graph, Operation, TensorType, Value, values_in
from torchstone.compiler.ops.composite import FIRST
from torchstone.compiler.transforms.dce import eliminate_dead_code


def fold_scales(graph: Graph) -> Graph:
    """Return the graph, or a new one, in which such ops are part of the convolution that they follow.

    New weights and biases are its last arguments, and ``known``, as were those in whose place they are.
    """
    users = Counter(id(v) for op in graph.ops for v in op.values)
    users.update(id(v) for v in values_in(graph.outputs))
    makers = {id(r): op for op in graph.ops for r in op.results}
    ops: list[Operation] = []
    places: dict[int, int] = {}  # of convolutions of known weights, by their results
    for op in graph.ops:
        x = next((v for v in op.values if id(v) in places and users[id(v)] == 1), None)
        whole = None if x is None else _folded(ops[places[id(x)]], op, x, makers)
        if x is not None and whole is not None:
            places[id(op.result)] = places[id(x)]
            ops[places[id(x)]] = whole
            continue
        if _takes_part(op):
            places[id(op.result)] = len(ops)
        ops.append(op)
    return graph if len(ops) == len(graph.ops) else _with_arguments(Graph(graph.name, graph.args, ops, graph.outputs))


def _takes_part(op: Operation) -> bool:
    return (
        op.name == "flat.convolution"
        and not op.result.dtype.is_half
        and all(v.known is not None for v in [*op.values][1:])
    )


def _with_arguments(graph: Graph) -> Graph:
    """Give the graph the known values that it reads as its last arguments, and no others that are known."""
    graph = eliminate_dead_code(graph)
    values = [*(v for op in graph.ops for v in op.values), *values_in(graph.outputs)]
    known = {id(v): v for v in values if v.known is not None}
    return replace(graph, args=[*(arg for arg in graph.args if arg.known is None), *known.values()])


def _folded(convolution: Operation, op: Operation, x: Value, makers: dict[int, Operation]) -> Operation | None:
    """Return the convolution that gives what ``op`` makes of ``x``, its result; None where there is none."""
    dim = 1 if convolution.attributes["channels"] == FIRST else x.rank - 1
    affine = _batch_norm(op, x, dim) if op.name == "flat.batch_norm" else _arithmetic(op, x, dim, makers)
    if affine is None:
        return None
    scale, shift = affine
    image, weight, *bias = convolution.values
    scaled = weight.known * scale.reshape(-1, *[1] * (weight.rank - 1))
    moved = bias[0].known * scale + shift if bias else shift
    # A factor, or a weight, that is no number, or came near to 0, would make other infinities and zeros.
    whole = scaled.isfinite() & ((scaled.abs() >= _least(scaled)) | (weight.known == 0))
    if not bool(whole.all() and scale.isfinite().all() and (scale != 0).all() and moved.isfinite().all()):
        return None
    operands = image, _known(scaled, weight), _known(moved, weight)
    return Operation(convolution.name, operands, op.results, convolution.attributes, convolution.location)


def _least(x: Any) -> float:
    import torch

    return torch.finfo(x.dtype).tiny


def _known(tensor: Any, like: Value) -> Value:
    value = Value(TensorType(tuple(tensor.shape), like.dtype), like.name)
    value.known = tensor.contiguous()
    return value


def known_scale(op: Operation) -> tuple[Any, Any] | None:
    """Return what a ``batch_norm`` multiplies by and what it adds, as eager works them out; None if not known."""
    weight, bias, mean, variance = ([*op.values][i].known for i in range(1, 5))
    if any(v is None for v in (weight, bias, mean, variance)):
        return None
    scale = weight * (variance + op.attributes["eps"]).rsqrt()
    return scale, bias - mean * scale


def _batch_norm(op: Operation, x: Value, dim: int) -> tuple[Any, Any] | None:
    return known_scale(op) if next(op.values) is x and op.attributes["dim"] == dim else None


def _arithmetic(op: Operation, x: Value, dim: int, makers: dict[int, Operation]) -> tuple[Any, Any] | None:
    """(scale, shift) of a product, a sum or a difference of ``x`` and a number for each channel."""
    if op.name not in ("flat.mul", "flat.add", "flat.sub"):
        return None
    first, second = op.values
    if op.name == "flat.sub" and first is not x:
        return None
    numbers = _channels(second if first is x else first, dim, makers)
    if numbers is None:
        return None
    if op.name == "flat.mul":
        return numbers, numbers.new_zeros(numbers.shape)
    return numbers.new_ones(numbers.shape), -numbers if op.name == "flat.sub" else numbers


def _channels(value: Value, dim: int, makers: dict[int, Operation]) -> Any:
    """Return the known numbers along ``dim`` of a value that is the same along all others; None for another."""
    source, shape, op = value, value.shape, makers.get(id(value))
    sizes: list[Any] = list(shape)
    if op is not None and op.name == "flat.broadcast":
        (source,), sizes = op.values, [1] * len(shape)
        for size, at in zip(source.shape, op.attributes["dims"], strict=True):
            sizes[at] = size
    if source.known is None or any(size != 1 for at, size in enumerate(sizes) if at != dim):
        return None
    return source.known.reshape(-1).expand(shape[dim])

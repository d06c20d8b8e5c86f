"""Which ops accumulate, and how many terms go into one of their results."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.operators import schema_of
from torchstone.conformance.oracle.op_traits.order_of_terms import TRANSFORMS
from torchstone.conformance.oracle.op_traits.rounding import ACCUMULATES, SUMS_BAGS
from torchstone.conformance.oracle.pytree import leaves_of

_MAXIMUM_OF_BAGS = 2


def accumulates(func: Any) -> bool:
    """Whether one result of an operator depends on many elements of an operand."""
    if func.namespace == "prims":  # they carry no tags
        return ACCUMULATES.holds(func)
    return torch.Tag.pointwise not in func.tags


def results_of(func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> list[Tensor]:
    """The tensors that an operator gave; of an embedding bag's sums, not the integers beside them."""
    tensors = [result for result in leaves_of(out) if isinstance(result, Tensor)]
    if not SUMS_BAGS.holds(func):
        return tensors
    mode = args[4] if len(args) > 4 else kwargs.get("mode", 0)
    return tensors if mode == _MAXIMUM_OF_BAGS else [result for result in tensors if movable(result)]


def movable(value: Any) -> bool:
    """Whether a value is a plain tensor of float64 or complex128: what runs of the float64 twin can move."""
    return (
        isinstance(value, Tensor) and value.dtype in (torch.float64, torch.complex128) and value.layout is torch.strided
    )


def as_scatter(func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any, dict[str, Any]]:
    """A call of ``index_reduce`` as one of ``scatter_reduce``, which adds up, too, and not only takes a mean; any other
    as it is."""
    if func is not torch.ops.aten.index_reduce.default:
        return func, args, kwargs
    given = arguments_of(func, args, kwargs)
    source, dim = given["source"], given["dim"] % max(given["source"].dim(), 1)
    index = given["index"].reshape([-1 if d == dim else 1 for d in range(source.dim())]).expand(source.shape)
    own = {"include_self": given.get("include_self", True)}
    return torch.ops.aten.scatter_reduce.two, (given["self"], dim, index, source, given["reduce"]), own


def arguments_of(func: Any, args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, those that are given."""
    return {argument.name: value for argument, value in zip(schema_of(func).arguments, args, strict=False)} | kwargs


def transform_length(func: Any, args: Any, kwargs: dict[str, Any]) -> float:
    """How many terms go into one result of a Fourier transform, of all its dims together; 1 for any other op."""
    return float(math.prod(_transformed_sizes(func, args, kwargs)))


def adds_only(func: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether an accumulation of whole numbers adds up nothing else: the roots of unity of other lengths than 1, 2 and
    4 are no whole numbers, even where a transform's results are."""
    return all(4 % size == 0 for size in _transformed_sizes(func, args, kwargs) if size)


def _transformed_sizes(func: Any, args: Any, kwargs: dict[str, Any]) -> list[int]:
    """The lengths of the dims that a Fourier transform is of; none for any other op."""
    if not TRANSFORMS.holds(func):
        return []
    given = arguments_of(func, args, kwargs)
    sizes = [args[0].shape[dim] for dim in given["dim"]]
    return [*sizes[:-1], given.get("last_dim_size", sizes[-1])] if sizes else []


def length_of(operands: list[Tensor], results: list[Tensor]) -> float:
    """About how many terms go into one result: exact for reductions and matrix products, a guess for the rest."""
    sizes = sorted((operand.numel() for operand in operands), reverse=True)
    produced = max([result.numel() for result in results] + [1])
    if not sizes or not sizes[0]:
        return 1.0
    product = math.sqrt(sizes[0] * sizes[1] / produced) if len(sizes) > 1 else 1.0
    longest = max(max([*operand.shape, 1]) for operand in operands)
    return max(sizes[0] / produced, product, longest, 1.0)


def error_growth(length: float) -> float:
    """Operands moved independently by this many ULP disturb a sum of ``length`` terms as much as a running sum's own
    rounding does: by ``eps * sum(|terms|)`` for short ones, and ``eps * sqrt(length) / 8`` times that for long ones."""
    root = math.sqrt(length)
    return root * max(1.0, root / 8.0)

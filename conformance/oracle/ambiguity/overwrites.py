"""Eager with another of the values that are written to one place, where PyTorch leaves open which of them stays.

``scatter``, ``index_copy``, ``index_put`` and ``put`` without ``accumulate``, and ``max_unpool2d`` write values to the
places that an index names, ``as_strided_scatter`` to those of its strides. Of places named twice PyTorch's
documentation says that the result is undefined, or nondeterministic: eager's kernels for the CPU leave the last of the
values, those of a GPU whichever comes last. So eager is run
again, and leaves what the backend's results show where they show one of the values; in a second run it leaves the
first everywhere, for what follows from it.

    zeros(3).scatter(0, [1, 1], [5., 6.]):    [0, 6, 0] in eager, and [0, 5, 0] is right
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.compiler._torch.operators import schema_of
from torchstone.conformance.oracle.ambiguity.otherwise import otherwise_if_made
from torchstone.conformance.oracle.equality import same_bits, same_values
from torchstone.conformance.oracle.op_traits.right_answers import OVERWRITES
from torchstone.conformance.oracle.op_traits.trait import Implementations
from torchstone.conformance.oracle.pytree import dense, flatten

if TYPE_CHECKING:
    from torchstone.conformance.oracle.reference.runs import Referee

Writes = tuple[Tensor, Tensor]
"""The flat place in the result that each value goes to, and the values, as many."""
_WRITES: Implementations[Callable[[Mapping[str, Any], Tensor], Writes | None]] = Implementations(OVERWRITES)
"""From an operator's arguments by name, and its result, to what it writes; None for a call that adds up."""


def _places(result: Tensor) -> Tensor:
    return torch.arange(result.numel()).view(result.shape)


@_WRITES.register("scatter.src", "scatter.src_out")
def _scatter(given: Mapping[str, Any], result: Tensor) -> Writes:
    index, source = given["index"], given["src"]
    part = source[tuple(slice(size) for size in index.shape)]
    return _places(result).gather(given["dim"], index).reshape(-1), part.reshape(-1)


@_WRITES.register("as_strided_scatter")
def _as_strided(given: Mapping[str, Any], result: Tensor) -> Writes | None:
    if not result.is_contiguous():
        return None
    places = _places(result).as_strided(given["size"], given["stride"], given["storage_offset"] or 0)
    return places.reshape(-1), given["src"].reshape(-1)


@_WRITES.register("index_copy")
def _index_copy(given: Mapping[str, Any], result: Tensor) -> Writes:
    return _places(result).index_select(given["dim"], given["index"]).reshape(-1), given["source"].reshape(-1)


@_WRITES.register("index_put", "_unsafe_index_put", "_index_put_impl")
def _index_put(given: Mapping[str, Any], result: Tensor) -> Writes | None:
    if given["accumulate"]:
        return None
    places = torch.ops.aten.index(_places(result), given["indices"])
    return places.reshape(-1), given["values"].expand(places.shape).reshape(-1)


@_WRITES.register("put")
def _put(given: Mapping[str, Any], result: Tensor) -> Writes | None:
    if given["accumulate"]:
        return None
    return _places(result).take(given["index"]).reshape(-1), given["source"].reshape(-1)


@_WRITES.register("max_unpool2d", "max_unpool3d")
def _max_unpool(given: Mapping[str, Any], result: Tensor) -> Writes:
    dims = len(given["output_size"])
    indices, size = given["indices"], math.prod(result.shape[-dims:])
    planes = torch.arange(math.prod(indices.shape[:-dims])).view(-1, 1)
    return (planes * size + indices.reshape(len(planes), -1)).reshape(-1), given["self"].reshape(-1)


class OtherWrites(ComputingMode):
    """Runs eager with the value that ``shown`` results have in a place, where it is one of those written there.

    Where it is none, or nothing is shown, the first stays. ``made``: whether a value differs from the one that eager
    leaves.
    """

    def __init__(self, shown: Sequence[Any] = ()) -> None:
        super().__init__()
        self._shown = [leaf for leaf in shown if isinstance(leaf, Tensor) and leaf.layout is torch.strided]
        self.made = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        written = _WRITES.of(func)
        if written is None:
            return out
        schema = schema_of(func).arguments
        given = {a.name: a.default_value for a in schema} | {a.name: v for a, v in zip(schema, args, strict=False)}
        writes = written(given | (kwargs or {}), out)
        if writes is None or not writes[0].numel():
            return out
        other = out.clone(memory_format=torch.contiguous_format)
        places, values = writes[0], writes[1].to(out.dtype)
        staying = self._staying(out, places, values)
        other.view(-1)[places[staying]] = values[staying]
        if same_bits(other, out):
            return out
        self.made = True
        return out.copy_(other)

    def _staying(self, out: Tensor, places: Tensor, values: Tensor) -> Tensor:
        """Which of the writes stay: one for each place."""
        count = len(places)
        rank = torch.arange(count, 0, -1)  # the first
        for leaf in self._shown:
            if leaf.shape == out.shape and leaf.dtype == out.dtype:
                shown = same_values(dense(leaf).reshape(-1)[places], values)
                rank = torch.where(shown, rank + count, rank)
                break
        best = torch.zeros(out.numel(), dtype=torch.int64).scatter_reduce(0, places, rank, "amax")
        return best[places] == rank


def overwrite_ambiguity(referee: Referee, expected: Any, actual: Any) -> Iterator[tuple[Referee, Any, Any]]:
    """Eager with other values left in places that are written to twice, if the program has such: the referee, eager's
    run and the backend's, as flat lists."""
    shown = [*flatten(actual.outputs), *actual.inputs]
    for mode in (partial(OtherWrites, shown), OtherWrites):
        yield from otherwise_if_made(mode, referee, expected, actual)

"""Results that share memory with each other: views of one tensor, which is computed once and laid out as eager has it.

Its views are then made by the ops that the program made them with, so that they lie in it as eager's do, and are copies
where eager's are. What eager's memory says of the results, and the graph does not, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from torchstone.compiler._torch.functionalization import FunctionalTensor
from torchstone.compiler._torch.tensors import storage_key
from torchstone.compiler.capture.leaves import Aliased, Computed, Result, Shared, View
from torchstone.compiler.capture.memory.layouts import Copying, Strides, overlaps, strides_of
from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir import Value
from torchstone.compiler.ir.dims import Dim, evaluate, substitute, symbol, symbols


@dataclass(frozen=True, slots=True)
class Base:
    """A tensor that is no result of its own, and whose views are: its value, and how it lies in memory."""

    value: Value
    strides: Strides


@dataclass(frozen=True, slots=True)
class Viewed:
    """A result of a functionalized program that is a view of ``base``, which lies in memory like this."""

    base: torch.Tensor
    strides: Strides
    view: View | None


def grouped(
    flat: Sequence[Any], bases: Mapping[int, FunctionalTensor], view_of: Callable[[Any], View | None]
) -> list[Viewed | None]:
    """Return what those of functional tensors are that share memory with another one; None for all other leaves.

    ``bases`` has the functional tensors that are no views, by their storage.
    """
    storages = [storage_key(t) if isinstance(t, FunctionalTensor) else None for t in flat]
    out: list[Viewed | None] = []
    for leaf, storage in zip(flat, storages, strict=True):
        alone = storages.count(storage) == 1 and not overlaps(leaf.shape, leaf.stride())
        if storage is None or alone:
            out.append(None)
            continue
        base = bases.get(storage)
        if base is None:
            raise Unsupported("results that are views of one tensor, which the program did not make", stage="capture")
        out.append(Viewed(base.from_functional(), strides_of(base), None if leaf is base else view_of(leaf)))
    return out


@dataclass(frozen=True, slots=True)
class Copied:
    """A guard: that what is a copy here, of a tensor like this, is none that eager spares for the sizes of a call.

    With ``spared``, that what is none here is none in eager.
    """

    what: str
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    copying: Copying
    spared: bool = False

    def under(self, renamed: Mapping[str, str]) -> Copied:
        """Return the guard under new names of the symbols. Unsupported where there are others: values tell them."""
        shape, strides, into = self.shape, self.strides, self.copying.into
        if not set().union(*map(symbols, (*shape, *strides, *(into or ())))) <= renamed.keys():
            raise Unsupported(f"{self.what} of a tensor whose sizes values tell, and who shares it", stage="capture")
        names = {old: symbol(new) for old, new in renamed.items()}
        shape, strides, into = (d and tuple(substitute(s, names) for s in d) for d in (shape, strides, into))
        return replace(self, shape=shape, strides=strides, copying=replace(self.copying, into=into))

    def __call__(self, sizes: Mapping[str, int]) -> str | None:
        shape, strides = ([evaluate(d, sizes) for d in dims] for dims in (self.shape, self.strides))
        tensor = torch.empty_strided(shape, strides, device="meta")
        if self.copying.spares(tensor, sizes) != self.spared:
            was, now = ("view", "copy") if self.spared else ("copy", "view")
            return f"{self.what} was a {was} when compiled, and is a {now} for these sizes"
        return None


def held_as_in_eager(
    flat: Sequence[torch.Tensor], results: Sequence[Result], arguments: Sequence[torch.Tensor]
) -> None:
    """Unsupported where results that share memory in eager, with each other or an argument, do not here."""
    places: dict[int, list[int]] = {}
    owned = {storage_key(t) for t in arguments}
    for index, leaf in enumerate(flat):
        places.setdefault(storage_key(leaf), []).append(index)
    for storage, indices in places.items():
        told = {_root(results[i]) for i in indices}
        argued = all(isinstance(results[i], Aliased) for i in indices)
        if len(told) > 1 or (storage in owned and not argued):
            raise Unsupported("results that share memory in a way that the graph does not tell", stage="capture")


def _root(result: Result) -> Any:
    match result:
        case Aliased(arg):
            return "argument", arg
        case Shared(base):
            return "output", base
        case Computed(index):
            return "output", index
    return None

"""Writes to memory that the same op reads: whether the order of an op's elements decides what it gives."""

from __future__ import annotations

from typing import Any

import torch

from torchstone.compiler._torch.modes import DisableTorchFunction, no_dispatch_modes
from torchstone.compiler._torch.operators import base_name, schema_of
from torchstone.compiler._torch.pytrees import tree_leaves
from torchstone.compiler._torch.tensors import storage_key

_READ_OUTLINES = frozenset({"set_", "resize_as_"})
"""Ops that read the sizes of a tensor, and take over its memory, and read no element of it."""

FIRST_EXAMPLE = 5
"""What the first symbol among the sizes stands for; the next ones follow."""


def order_decides(func: Any, args: Any, kwargs: Any) -> bool:
    """Say whether an op writes to an element that it reads for another element: ``x[:, 1:] += x[:, :-1]``.

    PyTorch refuses that where it sees it, and otherwise leaves open in which order its kernels go through the elements.
    A size that is a symbol counts as one that is like no other.
    """
    arguments = schema_of(func).arguments
    named = {argument.name: value for argument, value in zip(arguments, args, strict=False)} | kwargs
    if base_name(func) in _READ_OUTLINES:
        return False
    written, read = [], []
    for argument in arguments:
        leaves = tree_leaves(named.get(argument.name))
        to = written if argument.alias_info is not None and argument.alias_info.is_write else read
        to += [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided]
    pairs = [(to, of) for to in written for of in read if to is not of and storage_key(to) == storage_key(of)]
    return any(_meet_elsewhere(to, of) for to, of in pairs)


def _meet_elsewhere(written: torch.Tensor, read: torch.Tensor) -> bool:
    outlines = [(tuple(t.shape), tuple(t.stride()), (t.storage_offset(),)) for t in (written, read)]
    plain = _without_symbols(outlines)  # to compare symbols would be to guard on them
    if plain[0] == plain[1] and written.itemsize == read.itemsize:
        return False
    (shape, strides, offset), (size, steps, first) = plain
    if len(size) <= len(shape) and all(n in (1, m) for n, m in zip(size[::-1], shape[::-1], strict=False)):
        # Element by element, each operand as large as the result.
        steps = (*[0] * (len(shape) - len(size)), *(0 if n == 1 else step for n, step in zip(size, steps, strict=True)))
        size = shape
    # Elements of two dtypes (``x.view(torch.int16)``, ``x.real``) are counted in pieces of the smaller one.
    piece = min(written.itemsize, read.itemsize)
    pieces, parts = written.itemsize // piece, read.itemsize // piece
    with DisableTorchFunction(), no_dispatch_modes():
        places, others = _addresses(shape, strides, *offset) * pieces, _addresses(size, steps, *first) * parts
        written_pieces, read_parts = (
            at.unsqueeze(-1) + torch.arange(n) for at, n in ((places, pieces), (others, parts))
        )
        if others.shape == places.shape:
            own = (read_parts >= places.unsqueeze(-1)) & (read_parts < places.unsqueeze(-1) + pieces)
            read_parts = read_parts[~own]
        return bool(torch.isin(read_parts, written_pieces).any())


def _without_symbols(outlines: list[tuple[tuple[Any, ...], ...]]) -> list[tuple[tuple[int, ...], ...]]:
    """Sizes, strides and offsets with a number for each symbol, as an example."""
    exprs = [[[n.node.expr if isinstance(n, torch.SymInt) else n for n in part] for part in each] for each in outlines]
    numbers = [n for each in exprs for part in each for n in part if not isinstance(n, int)]
    symbols = {symbol.name: symbol for n in numbers for symbol in n.free_symbols}
    values = {symbols[name]: at for at, name in enumerate(sorted(symbols), FIRST_EXAMPLE)}
    return [
        tuple(tuple(n if isinstance(n, int) else int(n.xreplace(values)) for n in part) for part in each)
        for each in exprs
    ]


def _addresses(shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> torch.Tensor:
    places = torch.tensor(offset)
    for size, step in zip(shape, strides, strict=True):
        places = places.unsqueeze(-1) + torch.arange(size) * step
    return places

"""Sizes under names of our own: ints among a program's arguments and results, and what a symbol is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torchstone.compiler.capture.leaves import Integer, Plain, Size
from torchstone.compiler.capture.symbolic.sizes import to_dim
from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir import Graph, Operation, PrimType, TensorType, Value
from torchstone.compiler.ir.dims import Dim, Expr, substitute, symbol, symbols
from torchstone.compiler.ir.sizes import BIND, substitute_symbols


def bind_integers(graph: Graph, leaves: Sequence[Any], dynamic: Mapping[int, Any]) -> tuple[list[Any], list[int]]:
    """Make Integers of the leaves that are ``dynamic``, by position the SymInt that PyTorch traced with.

    Return the leaves, and the positions of those that have become arguments of the graph: no tensor has that size.
    """
    known = {name for arg in graph.args if isinstance(arg.type, TensorType) for name in lone_symbols(arg.type)}
    found, positions = list(leaves), []
    for position, size in dynamic.items():
        dim = to_dim(size)
        found[position] = Integer(dim) if isinstance(dim, Expr) else dim
        name = str(dim)
        if isinstance(dim, Expr) and name.isidentifier() and name not in known:
            known.add(name)
            value = Value(PrimType("int"), f"n{len(positions)}")
            graph.args.append(value)
            graph.ops.insert(len(positions), Operation(BIND, (value,), (), {"size": dim}))
            positions.append(position)
    return found, positions


def lone_symbols(kind: TensorType) -> list[str]:
    """Return the symbols that are a whole size of a tensor."""
    return [str(dim) for dim in kind.shape if isinstance(dim, Expr) and str(dim).isidentifier()]


def rename_symbols(graph: Graph) -> dict[str, str]:
    """Rename the graph's symbols to s0, s1, … in order of appearance; return old name -> new name."""
    renamed: dict[str, str] = {}
    dims = [dim for arg in graph.args if isinstance(arg.type, TensorType) for dim in arg.type.shape]
    dims += [op.attributes["size"] for op in graph.ops if op.name == BIND]
    for dim in dims:
        for name in sorted(symbols(dim) if dim is not None else ()):
            renamed.setdefault(name, f"s{len(renamed)}")

    substitute_symbols(graph, {old: symbol(new) for old, new in renamed.items()})
    return renamed


def under(dim: Dim, renamed: Mapping[str, str]) -> Dim:
    """Return a size under new names of its symbols."""
    return substitute(dim, {old: symbol(new) for old, new in renamed.items()})


def rename_leaves(leaves: Sequence[Any], renamed: Mapping[str, str]) -> list[Any]:
    """Return the leaves with Integers under new names."""
    return [Integer(under(leaf.dim, renamed)) if isinstance(leaf, Integer) else leaf for leaf in leaves]


def plain_result(leaf: Any, renamed: Mapping[str, str]) -> Plain | Size:
    """Return what a result is that is no tensor: a size, or the same at every call."""
    if isinstance(leaf, torch.SymInt):
        return Size(under(to_dim(leaf), renamed))
    if isinstance(leaf, torch.SymFloat | torch.SymBool):
        raise Unsupported(f"a number among the results that depends on sizes: {leaf}", stage="capture")
    return Plain(leaf)

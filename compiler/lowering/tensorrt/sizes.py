"""Sizes known at run time: each symbol is read off an input's shape, and expressions become shape-tensor arithmetic.

A shape tensor is a small INT64 tensor that TensorRT keeps on the host (``IShapeLayer``, developer guide "Working with
Dynamic Shapes"). Here a size is one of one element, and a shape the concatenation of its sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir.dims import Atom, Dim, Expr

if TYPE_CHECKING:
    from torchstone.compiler.lowering.tensorrt.network import Network

_OPERATIONS = {"floordiv": "FLOOR_DIV", "max": "MAX", "min": "MIN"}


class Sizes:
    """Shape tensors of one network, each built once."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._places: dict[str, tuple[Any, int]] = {}
        self._symbols: dict[str, Any] = {}
        self._built: dict[Dim, Any] = {}

    def bind(self, tensor: Any, shape: Sequence[Dim | None]) -> None:
        """Note where each symbol can be read: the sizes of a network input."""
        for d, dim in enumerate(shape):
            if isinstance(dim, Expr) and str(dim).isidentifier():
                self._places.setdefault(str(dim), (tensor, d))

    def _symbol(self, name: str) -> Any:
        if name not in self._places:
            raise Unsupported(f"size {name} is not the size of an input", stage="lower")
        if name not in self._symbols:
            tensor, d = self._places[name]
            sizes = self._network.add("shape", tensor)
            self._symbols[name] = self._network.slice(sizes, (d,), (1,), (1,))
        return self._symbols[name]

    def vector(self, shape: Sequence[Dim]) -> Any:
        """Return a 1-D shape tensor of a whole shape, or None when every size is known."""
        if all(isinstance(d, int) for d in shape):
            return None
        parts = [self.size(d) for d in shape]
        return parts[0] if len(parts) == 1 else self._network.concat(parts, 0)

    def size(self, dim: Dim) -> Any:
        """Return one size as a shape tensor of one element."""
        if dim not in self._built:
            if isinstance(dim, int):
                self._built[dim] = self._network.constant(dim, (1,), "INT64")
            else:
                self._built[dim] = self._sum(dim)
        return self._built[dim]

    def _sum(self, dim: Expr) -> Any:
        total = None
        for atoms, coefficient in dim.terms:
            term = None if coefficient == 1 and atoms else self.size(coefficient)
            for atom in atoms:
                factor = self._atom(atom)
                term = factor if term is None else self._network.binary("PROD", term, factor)
            total = term if total is None else self._network.binary("SUM", total, term)
        return total

    def _atom(self, atom: Atom) -> Any:
        if not atom.args:
            return self._symbol(atom.name)
        a, b = (self.size(arg) for arg in atom.args)
        if atom.name == "mod":
            return self._network.binary(
                "SUB", a, self._network.binary("PROD", b, self._network.binary("FLOOR_DIV", a, b))
            )
        return self._network.binary(_OPERATIONS[atom.name], a, b)

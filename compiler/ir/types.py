"""Types of IR values, and the literals that may stand in place of a value."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from torchstone.compiler.ir.dims import Dim, Expr, Shape, symbols
from torchstone.compiler.ir.dtypes import DType


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor of known rank. ``shape`` holds ints, symbolic sizes, or None for a size nobody knows yet."""

    shape: tuple[Dim | None, ...]
    dtype: DType

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return all(isinstance(d, int) for d in self.shape)

    @property
    def dims(self) -> Shape:
        """The shape, when every size is known or symbolic; ValueError otherwise."""
        if None in self.shape:
            raise ValueError(f"{self} has an unknown size")
        return self.shape  # type: ignore[return-value]

    @property
    def symbols(self) -> set[str]:
        return {name for d in self.shape if isinstance(d, Expr) for name in symbols(d)}

    def __str__(self) -> str:
        return _text(self)


@lru_cache(maxsize=4096)  # checks put a message together before they know whether anybody will read it
def _text(kind: TensorType) -> str:
    return f"{kind.dtype.short}[{', '.join('?' if d is None else str(d) for d in kind.shape)}]"


@dataclass(frozen=True, slots=True)
class PrimType:
    """The type of a PrimValue: ``int``, ``float``, ``bool``, ``complex``, ``str``, ``dtype`` or ``none``."""

    name: str

    def __str__(self) -> str:
        return self.name


PRIM_TYPES = ("int", "float", "bool", "complex", "str", "dtype", "none")

Type: TypeAlias = TensorType | PrimType


@dataclass(frozen=True, slots=True)
class Named:
    """A literal that PyTorch spells as an object of its own: ``device``, ``layout``, ``memory_format``."""

    kind: str
    value: str

    def __str__(self) -> str:
        return f'{self.kind}("{self.value}")'


# A constant PrimValue is written in place: one of LITERAL_CLASSES, or a tuple of them.
Literal: TypeAlias = Any
LITERAL_CLASSES = (type(None), bool, int, float, complex, str, DType, Expr, Named)

"""The leaves of a captured program's arguments and results: what each is, and where it comes from at a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from torchstone.compiler.capture.state.effects import Existing
from torchstone.compiler.ir.dims import Dim

Sizes: TypeAlias = Mapping[str, int]
# Makes the view of a tensor that a result of the program was.
View = Callable[[torch.Tensor, Sizes], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Plain:
    """A leaf of the result that is no tensor and the same at every call."""

    value: Any


@dataclass(frozen=True, slots=True)
class Size:
    """A leaf of the result that is a run-time size."""

    dim: Dim


@dataclass(frozen=True, slots=True)
class Integer:
    """A leaf of the arguments that is an int of any value: a run-time size, though no tensor may have it."""

    dim: Dim


@dataclass(frozen=True, slots=True)
class Computed:
    """A leaf of the result: output number ``index`` of the graph, in row-major order unless ``strides`` are given."""

    index: int
    strides: tuple[Dim, ...] | None = None


@dataclass(frozen=True, slots=True)
class Aliased:
    """A leaf of the result that is argument number ``arg`` of the graph, or a view of it.

    Output number ``index`` of the graph has its elements too, unless they were dropped.
    """

    arg: int
    view: View | None
    index: int


@dataclass(frozen=True, slots=True)
class Shared:
    """A leaf of the result that is the one computed as output number ``base`` of the graph, or a view of it.

    Output number ``index`` of the graph has its elements too, unless they were dropped.
    """

    base: int
    view: View | None
    index: int


@dataclass(frozen=True, slots=True)
class Number:
    """A leaf of the result that is a Python number: output number ``index`` of the graph, which is 0-d."""

    index: int


@dataclass(frozen=True, slots=True)
class Scalar:
    """A leaf of the arguments that is a number of any value, of this class; a 0-d tensor for the graph."""

    kind: type
    dtype: torch.dtype


Result: TypeAlias = Plain | Size | Computed | Aliased | Shared | Number | Existing

"""Backends that take exported programs: what they are handed over, and what has been decomposed before."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchstone.conformance.backends.export_support import Exported, capture
from torchstone.conformance.backends.packaged import Packaged
from torchstone.conformance.backends.protocol import Availability

if TYPE_CHECKING:
    from torch import Tensor

DECOMPOSED, UNDECOMPOSED = "decomposed", "undecomposed"


@dataclass(frozen=True)
class Layer:
    """A backend: what a compiler has made of the program at some point, run by somebody else than the compiler itself.

    ``name`` is the stage that comes to this point, ``what`` says for people what is run by whom. Where ``cheap``, it
    takes no longer than the compiler itself, and verdicts on a wrong result tell what it gives.
    """

    name: str
    what: str
    compile: Callable[[Callable[..., Any], tuple[Tensor, ...]], Callable[..., Any]]
    cheap: bool = False
    uses_eager_kernels: bool = True

    def available(self) -> Availability:
        """Say that it is there: it is asked where the compiler is."""
        return Availability(True)

    def versions(self) -> dict[str, str]:
        """Return nothing: they are the compiler's."""
        return {}


class Exporting(Packaged):
    """The part of a backend that begins with torch.export.

    It is handed over what its documented entry point gives it. With the option ``decomposed`` it is handed over
    PyTorch's core ATen decompositions of that, with ``undecomposed`` nothing is decomposed that need not be.
    """

    begins_with = "torch.export"
    options: tuple[str, ...] = (DECOMPOSED,)
    asked = ""
    decomposes_itself = True
    """Whether the compiler has PyTorch decompose what it is handed over. If not, it is decomposed before."""

    def configured(self, options: Sequence[str]) -> Exporting:
        """Return this backend with one of its options on."""
        out = copy.copy(self)
        out.name = "+".join([self.name, *options])
        out.asked = options[-1]
        return out

    def decompositions(self) -> Mapping[Any, Any] | None:
        """Return the table that the compiler has PyTorch decompose by; None where it is not known."""
        return None

    def tables(self) -> list[Mapping[Any, Any]]:
        """Return what the program is decomposed by, in order, up to where the compiler goes on alone."""
        import torch

        whole: Any = torch.export.default_decompositions  # its table is a mapping, and not known as one
        before = [whole()] if self.asked == DECOMPOSED else []
        own = None if self.asked == UNDECOMPOSED else self.decompositions()
        return before if own is None else [*before, own]

    def layers(self) -> Sequence[Layer]:
        """Return what else of the compiler's own can be run, from the frontend on."""
        return ()

    def captured(self, fn: Callable[..., Any], args: tuple[Tensor, ...], dims: Sequence[Any] = ()) -> Exported:
        """Return the program as it is handed over."""
        tables = self.tables()
        if self.decomposes_itself and self.decompositions() is not None and self.asked != UNDECOMPOSED:
            tables.pop()
        exported = capture(fn, args, None, dims)
        for table in tables:
            exported = exported.decomposed(table)
        if self.decomposes_itself and exported.takes_functions:
            exported.decomposed({})  # as PyTorch does for the compiler, whose failure it is not where PyTorch declines
        return exported

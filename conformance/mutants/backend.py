"""The built-in compiler with a mutant applied, as a backend."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torchstone.conformance.backends.adapters.builtin import Linalg
from torchstone.conformance.mutants.mutant import Mutant, combined

if TYPE_CHECKING:
    from torch import Tensor


class MutatedLinalg(Linalg):
    """``linalg``; with the name of a mutant as its option, it has that mistake whenever it compiles or runs.

    Only then: two of them in one process do not see each other's mistakes, and neither does eager.
    """

    def __init__(self, table: dict[str, Mutant]) -> None:
        self.table = table
        self.options = tuple(table)
        self.mutants: tuple[Mutant, ...] = ()

    def configured(self, options: Sequence[str]) -> MutatedLinalg:
        out = copy.copy(self)
        out.name = "+".join([self.name, *options])
        out.mutants = tuple(self.table[option] for option in options)
        return out

    @contextmanager
    def mutated(self) -> Iterator[None]:
        with combined(*(mutant.patch for mutant in self.mutants))():
            yield

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        with self.mutated():
            return self._running(super().compile(fn, args))

    def compile_optimized(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        with self.mutated():
            return self._running(super().compile_optimized(fn, args))

    def compile_dynamic(
        self, fn: Callable[..., Any], args: tuple[Tensor, ...], dims: tuple[tuple[int, ...], ...]
    ) -> Callable[..., Any]:
        with self.mutated():
            return self._running(super().compile_dynamic(fn, args, dims))

    def compile_many(
        self, programs: Iterable[tuple[Callable[..., Any], tuple[Tensor, ...]]]
    ) -> list[Callable[..., Any] | Exception]:
        with self.mutated():
            compiled = super().compile_many(programs)
        return [one if isinstance(one, Exception) else self._running(one) for one in compiled]

    def _running(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        def run(*tensors: Tensor) -> Any:
            with self.mutated():
                return compiled(*tensors)

        run.__dict__.update(compiled.__dict__)
        return run

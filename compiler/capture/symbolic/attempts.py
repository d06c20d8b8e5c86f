"""A program is recorded with symbols for its numbers, and again with constants for those that symbols cannot be."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchstone.compiler.capture.program import Captured
from torchstone.compiler.capture.state.effects import Existing
from torchstone.compiler.capture.symbolic.same_program import same_program
from torchstone.compiler.capture.trace.builtin_calls import Again
from torchstone.compiler.diagnostics import Unsupported, describe
from torchstone.compiler.ir import Graph, Operation
from torchstone.compiler.ir.dims import evaluate, symbols
from torchstone.compiler.ops.control import HOLDS

# How often a program is recorded again: with other numbers as constants each time, and leaving one of them out.
_MOST_BAKED, _MOST_TRIED = 8, 4


class Bake(BaseException):
    """Numbers have to be constants that are not: ``arguments`` by the leaf, ``reads`` by the order of reading.

    A BaseException: the program must not catch it.
    """

    def __init__(self, names: set[str], places: Mapping[str, tuple[str, int]]) -> None:
        found = [places[name] for name in names if name in places]
        self.arguments, self.reads = (frozenset(i for k, i in found if k == kind) for kind in ("argument", "read"))


class ExampleRefused(Unsupported):
    """What was taken for granted of ``names``, sizes that values tell, does not hold for the example."""

    def __init__(self, op: Operation) -> None:
        super().__init__("what is taken for granted of a size is not so for the example", where=describe(op))
        self.names = symbols_of(op)


class Example:
    """What the numbers and sizes that values tell were when the program was run on its example.

    ``reads`` are the numbers that Python read, ``sizes`` the shapes of the tensors whose size values decide, both in
    the program's order. A program that is recorded again has them in the same order, or is another program.
    The numbers at the places ``baked`` have to be constants. ``modules`` are the global names of the code that makes
    numbers of tensors.
    """

    def __init__(
        self, reads: Sequence[Any], sizes: Sequence[Any], baked: frozenset[int], modules: list[dict[str, Any]]
    ) -> None:
        self._reads, self._sizes, self._baked, self.modules = reads, sizes, baked, modules
        self.place = self._sized = -1

    def again(self) -> Example:
        """Return the same from the start."""
        return Example(self._reads, self._sizes, self._baked, self.modules)

    def read(self) -> tuple[Any, bool]:
        """Return the next number that Python reads, and whether it has to be a constant."""
        self.place += 1
        if self.place >= len(self._reads):
            raise Unsupported("the program reads other numbers when they are symbols", stage="capture")
        return self._reads[self.place], self.place in self._baked

    def negative(self, places: Mapping[str, tuple[str, int]]) -> set[str]:
        """Return the names of the whole numbers below 0 among those read; ``places`` has their order by name."""
        read = {name: self._reads[place] for name, (kind, place) in places.items() if kind == "read"}
        return {name for name, number in read.items() if isinstance(number, int) and number < 0}

    def shapes(self) -> Any:
        """Return the shapes of the next results whose size values decide; none where they are not known."""
        self._sized += 1
        return self._sizes[self._sized] if self._sized < len(self._sizes) else ()


def with_numbers(
    capture: Callable[[frozenset[int], dict[int, Any], Example], Captured],
    kinds: dict[int, type],
    plain: Captured,
    modules: list[dict[str, Any]],
) -> Captured:
    """Return a program whose numbers are run-time values, where it only computes with them; else ``plain``.

    ``capture`` records it with symbols for these leaves, whose classes ``kinds`` tells; ``modules`` are the global
    names of the program's own code. It does when it makes the same calls and gives the same results whether they are
    Python's numbers or symbols.
    """
    numbers = frozenset(kinds)
    floats = frozenset(index for index, kind in kinds.items() if kind is float)
    ints_read = frozenset(place for place, number in enumerate(plain.reads) if type(number) is int)
    each = [numbers - {index} for index in sorted(numbers)][:_MOST_TRIED] if len(numbers) > 1 else []
    tries = [(chosen, frozenset[int]()) for chosen in (numbers, *each, floats)]
    # Ints are sizes too, which PyTorch cannot always do without; then floats are what is left.
    for chosen, reads in dict.fromkeys(
        [*tries, (numbers, ints_read), (floats, ints_read), (frozenset[int](), ints_read)]
    ):
        if chosen or len(reads) < len(plain.reads) or plain.sizes:
            found = _agreed(capture, chosen, plain, modules, reads)
            if found is not None:
                return found
    return plain


def _agreed(
    capture: Callable[..., Captured],
    chosen: frozenset[int],
    plain: Captured,
    modules: list[dict[str, Any]],
    reads: frozenset[int] = frozenset(),
) -> Captured | None:
    for _ in range(_MOST_BAKED):
        hints: dict[Any, Any] = {}
        try:
            found = capture(chosen, hints, Example(plain.reads, plain.sizes, reads, modules))
        except Again as error:
            if any(error.place is place for place in modules):
                return None
            modules.append(error.place)
            continue
        except Bake as error:
            if error.arguments.isdisjoint(chosen) and error.reads <= reads:
                return None
            chosen, reads = chosen - error.arguments, reads | error.reads
            continue
        except Exception:  # anything: the program runs on symbols, and says of plain numbers what it has to say
            return None
        if not same_program(found, plain, hints) or _changed(found) != _changed(plain):
            return None
        found.otherwise = plain
        found.without = functools.partial(_without, capture, chosen, reads, plain, modules, found.places)
        return found
    return None


def _changed(captured: Captured) -> list[Any]:
    """Return which Python objects a program changes and returns, and which of their entries are new."""
    return [[(e.target, e.keys, e.new) for e in captured.effects], [r for r in captured.results if type(r) is Existing]]


def _without(
    capture: Callable[..., Captured], chosen: frozenset[int], reads: frozenset[int], plain: Captured,
    modules: list[dict[str, Any]], places: Mapping[str, tuple[str, int]], names: set[str],
) -> Captured:  # fmt: skip
    """Capture the program with constants in the place of more symbols."""
    more = Bake(names, places)
    if more.arguments.isdisjoint(chosen) and more.reads <= reads:
        return plain
    return _agreed(capture, chosen - more.arguments, plain, modules, reads | more.reads) or plain


def symbols_of(op: Operation) -> set[str]:
    """Return the symbols that a ``flat.require`` is about."""
    return symbols(op.attributes["left"]) | symbols(op.attributes["right"])


def refused_by_example(graph: Graph, hints: Mapping[str, int]) -> Operation | None:
    """Return the first ``flat.require`` that does not hold for the example, as far as ``hints`` tell."""
    for op in graph.ops:
        if op.name == "flat.require" and symbols_of(op) <= hints.keys():
            left, right = (evaluate(op.attributes[side], hints) for side in ("left", "right"))
            if not HOLDS[op.attributes["relation"]](left, right):
                return op
    return None

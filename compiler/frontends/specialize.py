"""What a program decides by is specialized, and nothing else: the decision where there is one, else the number.

A program is recorded with PyTorch's symbols in the place of numbers. Where Python asks what one is (a branch, a loop, a
dict key, arithmetic that no op does, an op that takes a constant), it is told what it is for the example, and the graph
holds a ``flat.specialize`` of what was asked: of ``t > 0``, say, and not of ``t``.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

from torch.utils import _pytree as pytree

from torchstone.compiler.diagnostics import NOT_TAKEN, Unsupported
from torchstone.compiler.frontends.builtin_calls import CALLED, Again, caller
from torchstone.compiler.frontends.captured import Captured
from torchstone.compiler.frontends.same_program import same_program
from torchstone.compiler.ir import Expr, Graph, Location, Operation, Value
from torchstone.compiler.ir.dims import evaluate, symbols
from torchstone.compiler.ops.control import HOLDS

if TYPE_CHECKING:
    from torchstone.compiler.frontends.recorder import Recorder


# How often a program is recorded again: with other numbers as constants each time, and leaving one of them out.
_MOST_BAKED, _MOST_TRIED = 8, 4
import os
DEBUG = os.environ.get("TSDEBUG")


class Bake(Exception):
    """Numbers have to be constants that are not: ``arguments`` by the leaf, ``reads`` by the order of reading."""

    def __init__(self, names: set[str], places: Mapping[str, tuple[str, int]]) -> None:
        found = [places[name] for name in names if name in places]
        self.arguments, self.reads = (frozenset(i for k, i in found if k == kind) for kind in ("argument", "read"))


class ExampleRefused(Unsupported):
    """What was taken for granted of ``names``, sizes that values tell, does not hold for the example."""

    def __init__(self, names: set[str]) -> None:
        super().__init__(f"what PyTorch takes for granted of {', '.join(sorted(names))} is not so for the example")
        self.names = names


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

    def shapes(self) -> Any:
        """Return the shapes of the next results whose size values decide; none where they are not known."""
        self._sized += 1
        return self._sizes[self._sized] if self._sized < len(self._sizes) else ()


@dataclass(frozen=True, slots=True)
class Returned:
    """A run-time number among the results of a program."""

    value: Value


class Decisions:
    """What a recorder's program was told about its numbers, which a run has to hold.

    ``sizes`` holds what the sizes that values tell are for the example, by the name of PyTorch's symbol.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.sizes: dict[str, int] = {}
        self._recorder = recorder
        self._sources: dict[str, tuple[str, ...]] = {}  # what a symbol is made of, in words
        self._told: dict[Any, Any] = {}
        self._deciding = False
        self._stood_for: dict[float, Any] = {}
        self.places: dict[str, tuple[str, int]] = {}  # an argument, or a number read, and which one it is

    def argument(self, number: Any, index: int) -> None:
        """Note that a symbol is the number of an argument."""
        (name,) = map(str, number.node.expr.free_symbols)
        self.places[name] = ("argument", index)
        self._sources[name] = (f"argument {index}",)

    def read(self, name: Any, location: Location) -> None:
        """Note that a symbol is the number that Python has just read."""
        example = self._recorder.example
        if example is not None:
            self.places[str(name)] = ("read", example.place)
        where = f" on line {location.frames[0].line}" if location.frames else ""
        self._sources[str(name)] = (f"a number read from a tensor{where}",)

    def made(self, name: Any, given: list[Any]) -> None:
        """Note that a symbol is made of numbers."""
        self._sources[str(name)] = self._of(given)

    def sized(self, shapes: list[Any]) -> None:
        """Note what the sizes of a result that values tell are for the example."""
        known = self._recorder.example.shapes() if self._recorder.example is not None else ()
        for shape, example in zip(shapes, known, strict=False):
            for dim, size in zip(shape, example, strict=True):
                if isinstance(dim, Expr) and str(dim).isidentifier():
                    self.sizes.setdefault(str(dim), size)

    def convert(self, kind: type, given: Any) -> Any:
        """Return ``float(given)``, ``int(given)`` or ``bool(given)``, a run-time number where it can be one."""
        if not isinstance(given, torch.Tensor):
            return _converted(kind, given)
        if given.numel() != 1 or given.is_complex():
            return kind(given)
        recorder = self._recorder
        with recorder.noted(recorder.location or recorder.user_location()), torch.no_grad():
            x = given.detach().reshape(())
            if kind is bool:
                return (x != 0).item()
            if kind is int and x.is_floating_point():
                x = x.to(torch.float64).trunc()
                torch._assert_async(x.abs() <= 2.0**62, NOT_TAKEN + "an int of a float over 2**62, or of none")
            return x.to(torch.float64 if kind is float else torch.int64).item()

    def stand_in(self, number: Any) -> Any:
        """Return a float for a number that goes through C++: one that nothing else is, and ``stood_for`` knows."""
        hint = self._recorder.hint_of(number)
        if self._recorder.example is None or hint is None or not math.isfinite(hint) or abs(hint) < 1e-300:
            return number
        near = hint
        while near == hint or near in self._stood_for:
            near *= 1 - 2.0**-50
        self._stood_for[near] = number
        return near

    def stood_for(self, args: Any) -> Any:
        """Return a call's arguments with the numbers that floats stand for."""
        if not self._stood_for:
            return args
        return pytree.tree_map(lambda leaf: self._stood_for.get(leaf, leaf) if type(leaf) is float else leaf, args)

    def examples_of(self, args: Any) -> Any:
        """Return a call's arguments with what its numbers are for the example, where that is known."""

        def example(leaf: Any) -> Any:
            known = self._recorder.hint_of(leaf) if isinstance(leaf, tuple(_KINDS.values())) else None
            return leaf if known is None else known

        return pytree.tree_map(example, args)

    def _of(self, given: list[Any]) -> tuple[str, ...]:
        names = sorted(str(s) for number in given for s in number.node.expr.free_symbols)
        return tuple(dict.fromkeys(source for name in names for source in self._sources.get(name, ("a size",))))

    def decide(self, node: Any) -> Any:
        """Return what PyTorch's node of a number is for the example, which the graph now asks for; None if unknown."""
        number = _KINDS[node.pytype](node)
        hint = self._recorder.hint_of(number)
        if self._recorder.example is None or hint is None or self._deciding:
            return None
        key = id(node) if self._recorder.is_float(number) else node.expr
        if key not in self._told:
            self._deciding = True
            try:
                self._hold(number, hint)
            finally:
                self._deciding = False
            self._told[key] = hint, node  # ids are only good while nodes live
        return hint

    def settle(self, number: Any, why: str) -> Any:
        """Return what a number is for the example, which the graph now asks for. Unsupported if that is not known."""
        if not isinstance(number, tuple(_KINDS.values())):
            return number
        hint = self.decide(number.node)
        if hint is None:
            raise Unsupported(f"{why} depends on values", stage="capture")
        return hint

    def returned(self, leaf: Any) -> Any:
        """Return what a number among the results is: its value, or a constant where no op tells it."""
        if not isinstance(leaf, tuple(_KINDS.values())):
            return leaf
        try:
            return Returned(self._recorder.number(leaf))
        except Unsupported as error:
            return self.settle(leaf, error.message)

    def known(self) -> dict[str, Any]:
        """Return what numbers and sizes are for the example, by the name of their symbol, as far as it is known."""
        found = {name: self._recorder.hints.get(id(value)) for name, value in self._recorder.numbers.items()}
        return {name: hint for name, hint in found.items() if hint is not None} | self.sizes

    def _hold(self, number: Any, hint: Any) -> None:
        recorder = self._recorder
        start = len(recorder.graph.ops)
        location = recorder.location or recorder.user_location()
        try:
            self.hold(recorder.number(number), hint, location, *self._of([number]))
        except Unsupported:  # no op tells: then what it is made of is held
            del recorder.graph.ops[start:]
            for name in sorted(map(str, number.node.expr.free_symbols)):
                value = recorder.numbers[name]
                self.hold(value, recorder.hints[id(value)], location, *self._sources.get(name, ()))

    def hold(self, value: Value, hint: Any, location: Location, *sources: str) -> Any:
        """Have a run raise GuardError where a 0-d value is not what it is for the example, and return that."""
        for source in sources or ("a number read from a tensor",):
            location = location.noted(f"a decision by {source}")
        op = Operation("flat.specialize", (value,), (), {"value": hint}, location)
        self._recorder.graph.ops.append(op)
        self._recorder.specialized.append(op)
        return hint

    @contextlib.contextmanager
    def undone_on_error(self) -> Iterator[None]:
        """Forget what was recorded and decided inside when it raises."""
        graph, told = self._recorder.graph, dict(self._told)
        marks = len(graph.ops), len(self._recorder.specialized)
        try:
            yield
        except Exception:
            del graph.ops[marks[0] :], self._recorder.specialized[marks[1] :]
            self._told = told
            raise


_KINDS: dict[type, Any] = {int: torch.SymInt, float: torch.SymFloat, bool: torch.SymBool}


def _converted(kind: type, number: Any) -> Any:
    if isinstance(number, _KINDS[kind]):
        return number
    if kind is float and isinstance(number, torch.SymInt):
        return torch.sym_float(number)
    if kind is int and isinstance(number, torch.SymFloat):
        return math.trunc(number)
    return number != 0 if kind is bool else kind(number)


class DecidingEnv(ShapeEnv):
    """A ShapeEnv that asks ``decide`` what PyTorch does not know of a symbol."""

    decide: Callable[[Any], Any] | None = None

    def evaluate_sym_node(self, sym_node: Any, size_oblivious: bool = False, fallback_value: Any = None) -> Any:
        try:
            return super().evaluate_sym_node(sym_node, size_oblivious, fallback_value)
        except GuardOnDataDependentSymNode:
            found = self.decide(sym_node) if self.decide is not None else None
            if found is None:
                raise
            return found


def with_numbers(
    capture: Callable[[frozenset[int], dict[int, Any], Example], Captured],
    kinds: dict[int, type],
    plain: Captured,
    modules: list[dict[str, Any]],
) -> Captured:
    """Return a program whose numbers are run-time values, where it only computes with them; else ``plain``.

    ``capture`` records it with symbols for these leaves, whose classes ``kinds`` tells. ``modules`` are the global names
    of the program's own code. It does when it makes the same
    calls and gives the same results whether they are Python's numbers or symbols.
    """
    numbers = frozenset(kinds)
    floats = frozenset(index for index, kind in kinds.items() if kind is float)
    each = [numbers - {index} for index in sorted(numbers)][:_MOST_TRIED] if len(numbers) > 1 else []
    for chosen in dict.fromkeys((numbers, *each, floats, frozenset())):
        if chosen or plain.reads or plain.sizes:
            found = _agreed(capture, chosen, plain, modules)
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
        except Exception:
            if DEBUG: import traceback; traceback.print_exc(limit=-12)
            return None
        if DEBUG: print("same", same_program(found, plain, hints), found.graph, plain.graph)
        if not same_program(found, plain, hints):
            return None
        found.otherwise = plain
        found.without = functools.partial(_without, capture, chosen, reads, plain, modules, found.places)
        return found
    return None


def _without(
    capture: Callable[..., Captured], chosen: frozenset[int], reads: frozenset[int], plain: Captured,
    modules: list[dict[str, Any]], places: Mapping[str, tuple[str, int]], names: set[str],
) -> Captured:  # fmt: skip
    """Capture the program with constants in the place of more symbols."""
    more = Bake(names, places)
    if more.arguments.isdisjoint(chosen) and more.reads <= reads:
        return plain
    return _agreed(capture, chosen - more.arguments, plain, modules, reads | more.reads) or plain


def refused_by_example(graph: Graph, hints: Mapping[str, Any]) -> set[str]:
    """Return the symbols of a ``flat.require`` that does not hold for the example, as far as ``hints`` tell."""
    for op in graph.ops:
        if op.name == "flat.require":
            sides = op.attributes["left"], op.attributes["right"]
            names = set().union(*(symbols(s) for s in sides if isinstance(s, Expr)))
            if names and names <= hints.keys() and not HOLDS[op.attributes["relation"]](*_sizes(sides, hints)):
                return names
    return set()


def _sizes(sides: Any, hints: dict[str, Any]) -> Iterator[int]:
    return (evaluate(side, hints) for side in sides)


def asked_to_convert(name: str) -> None:
    """Raise Again where Python code has called a builtin that asks a tensor or a symbol for a number."""
    if name in CALLED and (place := caller(CALLED[name])) is not None:
        raise Again(place)


def concrete(number: Any) -> Any:
    """Return the Python number of a symbol: the program decides by it."""
    node = number.node
    if isinstance(number, torch.SymInt):
        return node.guard_int("", 0)
    return node.guard_float("", 0) if isinstance(number, torch.SymFloat) else node.guard_bool("", 0)


@contextlib.contextmanager
def asked_by_python(is_user: Callable[[str], bool]) -> Iterator[None]:
    """Have symbols answer, where the program's own code asks, as numbers do: when printed, hashed, asked for truth.

    ``is_user`` says whose code a file is.
    """

    def answering(kept: Any, name: str) -> Any:
        def method(self: Any, *args: Any) -> Any:
            asks = is_user(sys._getframe(1).f_code.co_filename)
            return getattr(concrete(self), name)(*args) if asks else kept(self, *args)

        return method

    def converting(kept: Any, name: str) -> Any:
        def method(self: Any) -> Any:
            asked_to_convert(name)
            return kept(self)

        return method

    with contextlib.ExitStack() as stack:
        for kind in _KINDS.values():
            for name in ("__repr__", "__str__", "__format__", "__hash__"):
                stack.enter_context(_patched(kind, name, answering(getattr(kind, name), name)))
            for name in ("__float__", "__int__"):
                if hasattr(kind, name):
                    stack.enter_context(_patched(kind, name, converting(getattr(kind, name), name)))
        stack.enter_context(_patched(torch.SymFloat, "__bool__", lambda self: bool(self != 0)))
        yield


@contextlib.contextmanager
def _patched(place: Any, name: str, value: Any) -> Iterator[None]:
    own = vars(place).get(name)
    setattr(place, name, value)
    try:
        yield
    finally:
        if own is None:
            delattr(place, name)
        else:
            setattr(place, name, own)

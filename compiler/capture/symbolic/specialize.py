"""What a program decides by is specialized, and nothing else: the decision where there is one, else the number.

A program is recorded with PyTorch's symbols in the place of numbers. Where Python asks what one is (a branch, a loop, a
dict key, arithmetic that no op does, an op that takes a constant), it is told what it is for the example, and the graph
holds a ``flat.specialize`` of what was asked: of ``t > 0``, say, and not of ``t``. A text, or what is rounded to
digits, is asked again of the number at each call: ``flat.answer``.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from torchstone.compiler._torch import pytrees as pytree
from torchstone.compiler._torch.operators import assert_async
from torchstone.compiler._torch.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv
from torchstone.compiler.capture.symbolic.attempts import Bake
from torchstone.compiler.capture.symbolic.numbers import NOTE
from torchstone.compiler.diagnostics import NOT_TAKEN, Unsupported
from torchstone.compiler.ir import Expr, Location, Operation, Value
from torchstone.compiler.ops.control import QUESTIONS

if TYPE_CHECKING:
    from torchstone.compiler.capture.trace.recorder import Recorder


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
        self._passed: set[float] = set()
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
                assert_async(x.abs() <= 2.0**62, NOT_TAKEN + "an int of a float over 2**62, or of none")
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

        def number(leaf: Any) -> Any:
            if type(leaf) is not float or leaf not in self._stood_for:
                return leaf
            self._passed.add(leaf)
            return self._stood_for[leaf]

        return pytree.tree_map(number, args)

    def was_passed(self, near: Any) -> None:
        """Have a number be a constant whose stand-in no op was called with: C++ has made another of it."""
        if type(near) is float and near not in self._passed:
            raise Bake({str(s) for s in self._stood_for[near].node.expr.free_symbols}, self.places)

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

    def ask(self, question: str, number: Any, by: Any) -> Any:
        """Return what ``format(number, by)`` or ``round(number, by)`` is for the example, which the graph now asks for.

        None where only the number would tell: for ints, of which nothing is left out, and what is not known.
        """
        hint = self._recorder.hint_of(number)
        rounds = type(by) is int if question == "round" else type(by) is str and by
        if self._recorder.example is None or type(hint) is not float or not rounds:
            return None
        value = QUESTIONS[question](hint, by)
        location = self._recorder.location or self._recorder.user_location()
        about = {"question": question, "by": by, "value": value}
        self._guard("flat.answer", self._recorder.number(number), about, location, *self._of([number]))
        return value

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

    def sizes_known(self) -> dict[str, int]:
        """Return what ints and sizes are for the example, by the name of their symbol, as far as it is known."""
        return {name: hint for name, hint in self.known().items() if type(hint) is int}

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
        self._guard("flat.specialize", value, {"value": hint}, location, *sources)
        return hint

    def _guard(self, name: str, value: Value, about: dict[str, Any], location: Location, *sources: str) -> None:
        location = replace(location, notes=tuple(note for note in location.notes if note != NOTE))
        for source in sources or ("a number read from a tensor",):
            location = location.noted(f"a decision by {source}")
        op = Operation(name, (value,), (), about, location)
        self._recorder.graph.ops.append(op)
        self._recorder.specialized.append(op)

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

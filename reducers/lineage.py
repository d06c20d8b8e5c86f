"""Which results of a smaller program are the one that failed, or led to it.

Outputs and inputs that go away renumber the others, and a fault that shows in a result may come from one before it.
What stays is which call made a result, and with which argument a call was given an input: passes add no calls, but may
put another op in the place of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from torchstone.conformance.execution.verdict import Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref, leaves
from torchstone.conformance.program.program import Call, Program
from torchstone.conformance.repro.place import Place, failing_place, ref_at
from torchstone.conformance.variants.dynamic import part_asked

Role: TypeAlias = "tuple[str, tuple[int | str, ...]]"
"""A call's target with the path to one of its results; or, for an input that is written to, with an argument."""


@dataclass(frozen=True)
class Lineage:
    """The roles of what failed at first and of all that it was made from, and the targets of all calls.

    Without a place there is nothing to keep.
    """

    place: Place | None
    roles: frozenset[Role] = frozenset()
    targets: frozenset[str] = frozenset()

    @classmethod
    def of(cls, case: Case, verdict: Verdict) -> Lineage:
        """Return that of a case's failure."""
        place = failing_place(verdict)
        if place is None:
            return cls(None)
        program = part_asked(case, verdict.evidence).program
        made = _led_to(program, place) if place.side == "output" else _follows(program, place)
        return cls(place, frozenset(made), frozenset(call.target for call in case.program.calls))

    def holds(self, case: Case, verdict: Verdict) -> bool:
        """Whether the failure of a smaller case is in a result of this lineage."""
        place = failing_place(verdict)
        if self.place is None or place is None:
            return True
        if place.side != self.place.side or not self.roles:
            return place.side == self.place.side
        program = part_asked(case, verdict.evidence).program
        if place.side == "input":
            return bool(self.roles & set(_uses(program, {_input(program, place)})))
        ref = ref_at(program, place.path)
        if ref is None or ref.name in program.inputs:
            return True
        (target,) = (call.target for call in program.calls if call.result == ref.name)
        if target not in self.targets:  # a plainer op in the place of one that led to it
            return True
        return any(target == role and ref.path[: len(path)] == path for role, path in self.roles)


def _led_to(program: Program, place: Place) -> Iterator[Role]:
    """The role of a result, and those of the results that it was computed from."""
    first = ref_at(program, place.path)
    needed = [] if first is None else [first]
    for call in reversed(program.calls):
        mine = [ref for ref in needed if ref.name == call.result]
        writes = call.target.endswith("_") or "out" in call.kwargs
        if mine or (writes and {ref.name for ref in call.refs()} & {ref.name for ref in needed}):
            needed += call.refs()
            yield from ((call.target, ref.path) for ref in mine or [Ref(call.result)])


def _follows(program: Program, place: Place) -> Iterator[Role]:
    """The roles of an input in the calls that are given it, or what they make of it: a view of it may be written to."""
    names = {_input(program, place)}
    for call in program.calls:
        if used := list(_arguments(call, names)):
            yield from used
            names.add(call.result)


def _uses(program: Program, names: set[str]) -> Iterator[Role]:
    for call in program.calls:
        yield from _arguments(call, names)


def _arguments(call: Call, names: set[str]) -> Iterator[Role]:
    given: list[tuple[int | str, Any]] = [*enumerate(call.args), *call.kwargs.items()]
    for key, value in given:
        if any(isinstance(leaf, Ref) and leaf.name in names for leaf in leaves(value)):
            yield call.target, (key,)


def _input(program: Program, place: Place) -> str:
    at = place.path[0] if place.path else None
    return program.inputs[at] if isinstance(at, int) and at < len(program.inputs) else ""

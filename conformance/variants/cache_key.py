"""The variant ``constants``: a program beside others that differ from it in a number alone, compiled in one process.

Code that is kept, to be used again, has to be kept by all that went into it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from torch import Tensor

from torchstone.conformance.backends.protocol import Backend
from torchstone.conformance.execution.run_case import Compiled, compare_with_eager
from torchstone.conformance.execution.verdict import FAILURES, Stage
from torchstone.conformance.oracle.equality import same_bits
from torchstone.conformance.oracle.finding import Finding
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref, leaves
from torchstone.conformance.program.program import Program
from torchstone.conformance.variants.protocol import NotApplicable, Variant
from torchstone.conformance.variants.support import alike, answer, same

EQUAL = ((2, 2.0), (0.0, -0.0), (1, True))
"""Pairs of numbers that Python takes for equal, and hashes to the same."""

MOST_TRIED = 40
"""Programs that eager is asked about."""


def siblings(case: Case) -> list[Case]:
    """What is compiled before the case: its program with another number among its arguments, for which eager gives
    another result of the same shapes; then two programs that differ in numbers of ``EQUAL``, and in their results."""
    found = answer(case)
    if found is None:
        return []
    others = (case.replace(program=program) for program in _other_numbers(case.program))
    answered = ((other, answer(other)) for other in itertools.islice(others, MOST_TRIED))
    one = next((o for o, there in answered if there and alike(found, there) and not same(found, there)), None)
    return ([] if one is None else [one]) + _equal_pair(case)


def _equal_pair(case: Case) -> list[Case]:
    """Two programs that differ in a number, or in one in place of the last input, that Python takes for equal."""
    with_number = [_with_number_for(case, name) for name in list(case.inputs)[1:][-1:]]
    for base in (case, *with_number):
        for at, (one, other) in itertools.product(range(_count(base.program)), EQUAL):
            pair = [base.replace(program=_replaced(base.program, at, number)) for number in (one, other)]
            there = [answer(each) for each in pair]
            if there[0] and there[1] and not _same_bits(there[0], there[1]):
                return pair
    return []


def _with_number_for(case: Case, name: str) -> Case:
    inputs = {other: tensor for other, tensor in case.inputs.items() if other != name}

    def leaf(value: Any) -> Any:
        return 2.0 if isinstance(value, Ref) and value.name == name else value

    return case.replace(
        program=case.program.rewrite(lambda call: call.map_arguments(leaf), inputs=inputs), inputs=inputs
    )


def _same_bits(one: list[Any], other: list[Any]) -> bool:
    return alike(one, other) and all(
        same_bits(a, b) if isinstance(a, Tensor) else repr(a) == repr(b) for a, b in zip(one, other, strict=True)
    )


def _other_numbers(program: Program) -> Iterator[Program]:
    """The program with all its fractions changed, then with one of its whole numbers."""
    fractions = _changed(program, lambda at, value: value * 1.25 + 0.5 if type(value) is float else value)
    if fractions != program:
        yield fractions
    for wanted in range(_count(program)):
        yield _changed(program, lambda at, value, w=wanted: value + 1 if at == w and type(value) is int else value)


def _replaced(program: Program, place: int, number: float) -> Program:
    return _changed(program, lambda at, value: number if at == place else value)


def _changed(program: Program, change: Callable[[int, Any], Any]) -> Program:
    count = itertools.count()

    def leaf(value: Any) -> Any:
        return change(next(count), value) if type(value) in (int, float) else value

    return program.rewrite(lambda call: call.map_arguments(leaf))


def _count(program: Program) -> int:
    """How many numbers there are among the arguments."""
    return sum(type(value) in (int, float) for value in leaves([(call.args, call.kwargs) for call in program.calls]))


def _with_a_number(case: Case) -> Case:
    if not siblings(case):
        raise NotApplicable("no number among the arguments that might be another")
    return case


def compare_after_sibling(case: Case, backend: Backend, compiled: Compiled | None) -> tuple[Stage, Finding]:
    """Compare the program with other numbers first, then the case, in one process."""
    for other in siblings(case):
        stage, finding = compare_with_eager(other, backend)
        if finding.outcome in FAILURES:
            return stage, replace(finding, message=f"the program with another number: {finding.message}")
    return compare_with_eager(case, backend, compiled)


CONSTANT = Variant(
    "Compiled beside the same program with another number, and with an equal one of another kind.",
    _with_a_number,
    compare_after_sibling,
)

"""The variant ``constants``: a program beside one that differs from it in a number alone, compiled in one process.

Code that is kept, to be used again, has to be kept by all that went into it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torchstone.conformance.backends.protocol import Backend
from torchstone.conformance.execution.run_case import Compiled, compare_with_eager
from torchstone.conformance.execution.verdict import FAILURES, Stage
from torchstone.conformance.oracle.finding import Finding
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import leaves
from torchstone.conformance.program.program import Program
from torchstone.conformance.variants.protocol import NotApplicable, Variant
from torchstone.conformance.variants.support import alike, answer, same


def sibling(case: Case) -> Case | None:
    """The case with another number among its arguments, for which eager gives another result of the same shapes."""
    found = answer(case)
    if found is None:
        return None
    for program in _programs(case.program):
        other = case.replace(program=program)
        there = answer(other)
        if there is not None and alike(found, there) and not same(found, there):
            return other
    return None


def _programs(program: Program) -> Iterator[Program]:
    """The program with all its fractions changed, then with one of its whole numbers."""
    fractions = _changed(program, lambda at, value: value * 1.25 + 0.5 if type(value) is float else value)
    if fractions != program:
        yield fractions
    count = sum(1 for _ in _numbers(program))
    for wanted in range(count):
        yield _changed(program, lambda at, value, w=wanted: value + 1 if at == w and type(value) is int else value)


def _changed(program: Program, change: Any) -> Program:
    count = -1

    def leaf(value: Any) -> Any:
        nonlocal count
        if type(value) not in (int, float):
            return value
        count += 1
        return change(count, value)

    return program.rewrite(lambda call: call.map_arguments(leaf))


def _numbers(program: Program) -> Iterator[Any]:
    found = leaves([(call.args, call.kwargs) for call in program.calls])
    return (value for value in found if type(value) in (int, float))


def _with_a_number(case: Case) -> Case:
    if sibling(case) is None:
        raise NotApplicable("no number among the arguments that might be another")
    return case


def compare_after_sibling(case: Case, backend: Backend, compiled: Compiled | None) -> tuple[Stage, Finding]:
    """Compare the program with another number first, then the case, in one process."""
    if (other := sibling(case)) is not None:
        stage, finding = compare_with_eager(other, backend)
        if finding.outcome in FAILURES:
            return stage, replace(finding, message=f"the program with another number: {finding.message}")
    return compare_with_eager(case, backend, compiled)


CONSTANT = Variant("Compiled beside the same program with another number.", _with_a_number, compare_after_sibling)

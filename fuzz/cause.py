"""What a finding comes down to: what its reduced case cannot do without, and whether any op will do.

Both are found by trial. A trait is essential if the failure is gone without it. It is the whole cause if programs of
other ops, which were right, fail in the same way once they are given it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch

from torchstone.conformance.execution.later_calls import FIRST_CALL, first_call_of
from torchstone.conformance.execution.verdict import CORRECT, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.fuzz.generator.catalog import all_rules
from torchstone.fuzz.traits import CHANGES, in_another_dtype, put, traits, without
from torchstone.reducers.asking import Ask, Asking
from torchstone.reducers.edit import has_special_values

PROBES = 8
"""Programs that were right and are tried with a trait."""
CONVINCING = 2
"""Of these, how many have to fail."""

PLAIN = 8
"""How many programs of one call on plain numbers are tried first: they hide nothing."""


@dataclass(frozen=True)
class Cause:
    """A bug shows in every program that calls ``ops``, whatever they are if empty, on inputs with ``traits``.

    An op is named by its operator, so that one that writes in place is none of its own.
    """

    ops: frozenset[str]
    traits: frozenset[str]

    def is_in(self, case: Case) -> bool:
        """Say whether a case has all that it takes."""
        return self.ops <= operators(case) and self.traits <= traits(case)

    def __str__(self) -> str:
        ops = ", ".join(sorted(self.ops)) or "any op"
        return f"{ops} with {', '.join(sorted(self.traits))}" if self.traits else ops


def operators(case: Case) -> frozenset[str]:
    """The operators that a case calls: ``sub`` of ``torch.sub``, of ``Tensor.sub_`` and of ``aten.sub.Tensor``."""
    return frozenset(call.operator for call in case.program.calls)


def find_cause(case: Case, right: Iterable[Case], alike: Callable[[Verdict], bool]) -> Asking[Cause]:
    """Find the cause of a reduced case. ``right`` are programs that did not fail, the likeliest to tell first.

    ``alike``: whether a verdict is of the same failure.
    """
    ops = operators(case)
    essential = yield from essential_traits(case, alike)
    others = (yield from _plain_programs(ops)) if essential else []
    others += [one for one in right if not ops & operators(one)]
    if FIRST_CALL in case.tags:
        others = list(map(first_call_of, others))
    for name in sorted(essential):
        if (yield from _suffices(name, case, others, alike)):
            return Cause(frozenset(), frozenset([name]))
    return Cause(ops, essential)


def essential_traits(case: Case, alike: Callable[[Verdict], bool]) -> Asking[frozenset[str]]:
    """The traits without which the failure is gone. What eager does not do without one tells nothing.

    A dtype is none of them where another one that is not plain does as well.
    """
    names = sorted(traits(case) & CHANGES.keys())
    essential = yield from _gone({name: without(case, [name]) for name in names}, alike)
    return essential & (yield from _gone({name: in_another_dtype(case, name) for name in essential}, alike, essential))


def _gone(
    changed: Mapping[str, Case | None], alike: Callable[[Verdict], bool], untold: frozenset[str] = frozenset()
) -> Asking[frozenset[str]]:
    """The traits of whose cases the failure is gone; those of ``untold`` too that have no case which eager takes."""
    asked = {name: one for name, one in changed.items() if one is not None and has_special_values(one) is not None}
    if not asked:
        return untold
    verdicts = yield Ask(tuple(asked.values()), quick=True)
    gone = frozenset(name for name, verdict in zip(asked, verdicts, strict=True) if not alike(verdict))
    return gone | (untold - asked.keys())


def _plain_programs(ops: frozenset[str]) -> Asking[list[Case]]:
    """Programs of one elementwise op on plain numbers, those that are right."""
    cases = tuple(one for one in _plain_cases() if not ops & operators(one))
    verdicts = yield Ask(cases)
    return [case for case, verdict in zip(cases, verdicts, strict=True) if verdict.outcome in CORRECT]


@functools.cache
def _plain_cases() -> tuple[Case, ...]:
    """The first of the elementwise ops, in an order that is arbitrary and fixed (by a checksum of the op's name)."""
    rules = [rule for rule in all_rules().values() if rule.elementwise and not rule.jumps]
    rules.sort(key=lambda rule: zlib.crc32(rule.op.encode()))
    return tuple(itertools.islice((case for rule in rules if (case := _plain_case(rule.target))), PLAIN))


def _plain_case(target: str) -> Case | None:
    """A call with as many operands as eager takes, if it gives numbers."""
    inputs = {"x0": torch.tensor([[0.5, 0.75], [0.25, 0.875]]), "x1": torch.tensor([[1.0, 0.25], [3.0, 2.0]])}
    for names in (("x0",), ("x0", "x1")):
        program = Program(names, (Call(target, tuple(map(Ref, names)), {}, "v0"),), Ref("v0"))
        case = Case(program, {name: inputs[name] for name in names}, "fuzz", target.rpartition(".")[2], "float32")
        with contextlib.suppress(Exception):  # eager refuses so many operands
            result = program(*case.fresh_args())
            if isinstance(result, torch.Tensor) and result.dtype is torch.float32 and bool(result.isfinite().all()):
                return case
    return None


def _suffices(name: str, source: Case, others: Iterable[Case], alike: Callable[[Verdict], bool]) -> Asking[bool]:
    """Whether programs of other ops fail in the same way once they are given a trait."""
    changed = (put(other, name, source) for other in others)
    fit = (one for one in changed if one is not None and has_special_values(one) is not None)
    cases = tuple(itertools.islice(fit, PROBES))
    if len(cases) < CONVINCING:
        return False
    verdicts = yield Ask(cases)
    return sum(map(alike, verdicts)) >= CONVINCING

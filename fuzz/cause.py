"""What a finding comes down to: what its reduced case cannot do without, and whether any op will do.

Both are found by trial. A trait is essential if the failure is gone without it. It is the whole cause if programs of
other ops, which were right, fail in the same way once they are given it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from torchstone.conformance.execution.verdict import CORRECT, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.fuzz.traits import CHANGES, put, traits, without
from torchstone.reducers.asking import Ask, Asking
from torchstone.reducers.edit import has_special_values

PROBES = 8
"""Programs that were right and are tried with a trait."""
CONVINCING = 2
"""Of these, how many have to fail."""

_PLAIN_OPS = ("torch.exp", "torch.abs", "torch.neg", "torch.sum", "torch.mul", "torch.add", "torch.cos", "torch.matmul")
"""Of these are programs that are tried first: a program of one call and plain numbers hides nothing."""


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
    essential = yield from _essential(case, alike)
    others = (yield from _plain_programs(ops)) if essential else []
    others += [one for one in right if not ops & operators(one)]
    for name in sorted(essential):
        if (yield from _suffices(name, case, others, alike)):
            return Cause(frozenset(), frozenset([name]))
    return Cause(ops, essential)


def _essential(case: Case, alike: Callable[[Verdict], bool]) -> Asking[frozenset[str]]:
    """The traits without which the failure is gone. What eager does not do without one tells nothing."""
    changed = {name: without(case, [name]) for name in sorted(traits(case) & CHANGES.keys())}
    asked = {name: one for name, one in changed.items() if one is not None and has_special_values(one) is not None}
    if not asked:
        return frozenset()
    verdicts = yield Ask(tuple(asked.values()))
    return frozenset(name for name, verdict in zip(asked, verdicts, strict=True) if not alike(verdict))


def _plain_programs(ops: frozenset[str]) -> Asking[list[Case]]:
    """Programs of one common op on plain numbers, those that are right."""
    cases = tuple(one for one in map(_plain_program, _PLAIN_OPS) if not ops & operators(one))
    verdicts = yield Ask(cases)
    return [case for case, verdict in zip(cases, verdicts, strict=True) if verdict.outcome in CORRECT]


def _plain_program(target: str) -> Case:
    inputs = {"x0": torch.tensor([[0.5, 1.5], [2.0, 1.0]]), "x1": torch.tensor([[1.0, 0.25], [3.0, 2.0]])}
    names = ("x0", "x1") if target in ("torch.mul", "torch.add", "torch.matmul") else ("x0",)
    program = Program(names, (Call(target, tuple(map(Ref, names)), {}, "v0"),), Ref("v0"))
    return Case(program, {name: inputs[name] for name in names}, "fuzz", target.removeprefix("torch."), "float32")


def _suffices(name: str, source: Case, others: Iterable[Case], alike: Callable[[Verdict], bool]) -> Asking[bool]:
    """Whether programs of other ops fail in the same way once they are given a trait."""
    changed = (put(other, name, source) for other in others)
    fit = (one for one in changed if one is not None and has_special_values(one) is not None)
    cases = tuple(itertools.islice(fit, PROBES))
    if len(cases) < CONVINCING:
        return False
    verdicts = yield Ask(cases)
    return sum(map(alike, verdicts)) >= CONVINCING

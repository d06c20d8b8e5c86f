"""What a finding comes down to: what its reduced case cannot do without, and whether any op will do.

Both are found by trial. A trait is essential if the failure is gone without it. It is the whole cause if programs of
other ops, which were right, fail in the same way once they are given it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torchstone.conformance.program.case import Case
from torchstone.fuzz.traits import CHANGES, put, traits, without
from torchstone.reducers.edit import has_special_values

PROBES = 6
"""Programs that were right and are tried with a trait."""
CONVINCING = 2
"""Of these, how many have to fail."""

Fails = Callable[[Case], bool]


@dataclass(frozen=True)
class Cause:
    """A bug shows in every program that calls ``ops``, whatever they are if empty, on inputs with ``traits``."""

    ops: frozenset[str]
    traits: frozenset[str]

    def is_in(self, case: Case) -> bool:
        """Say whether a case has all that it takes."""
        return self.ops <= {call.target for call in case.program.calls} and self.traits <= traits(case)

    def __str__(self) -> str:
        ops = ", ".join(sorted(name.removeprefix("torch.") for name in self.ops)) or "any op"
        return f"{ops} with {', '.join(sorted(self.traits))}" if self.traits else ops


def find_cause(case: Case, right: Iterable[Case], fails: Fails) -> Cause:
    """Find the cause of a reduced case. ``right`` are programs that did not fail, the likeliest to tell first."""
    ops = frozenset(call.target for call in case.program.calls)
    essential = frozenset(name for name in sorted(traits(case) & CHANGES.keys()) if _needs(case, name, fails))
    others = [one for one in right if not ops & {call.target for call in one.program.calls}]
    for name in sorted(essential):
        if _suffices(name, case, others, fails):
            return Cause(frozenset(), frozenset([name]))
    return Cause(ops, essential)


def _needs(case: Case, name: str, fails: Fails) -> bool:
    """Whether the failure is gone without a trait. One that eager does not do without tells nothing."""
    changed = without(case, [name])
    return changed is not None and has_special_values(changed) is not None and not fails(changed)


def _suffices(name: str, source: Case, others: Iterable[Case], fails: Fails) -> bool:
    failed = tried = 0
    for other in others:
        changed = put(other, name, source)
        if changed is None or has_special_values(changed) is None:
            continue
        tried += 1
        failed += fails(changed)
        if failed == CONVINCING:
            return True
        if tried == PROBES:
            break
    return False

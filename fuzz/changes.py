"""Focus of a campaign: functions of the backend that are not what they were when the corpus was last asked.

Whoever works on a lowering fuzzes it next. The programs of the corpus tell which ops, dtypes and variants come to a
function that was changed, or is new; most programs that are drawn then call one of these ops, as many for what
was changed as for what is new. A function that most programs call tells nothing, and is left to all of them.
"""

from __future__ import annotations

import functools
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from torchstone.conformance.execution.line_tracer import Fingerprints
from torchstone.conformance.program.case import Case
from torchstone.fuzz.generator.catalog import all_rules
from torchstone.fuzz.generator.choices import Choices
from torchstone.fuzz.generator.rules import OpRule

FOCUSED = 75
"""Of a hundred programs, how many are drawn for what has changed, while something has."""
COMMON = 4
"""A function that more than one of so many programs calls is common: any program is as good as another."""
ALIKE = 50
"""Of a hundred programs that are drawn for a function, how many are in the variant of one that came to it."""
REMEMBERED = 16
"""Programs that came to a function, of which the last ones are remembered."""


@dataclass(frozen=True)
class Focus:
    """What a program is drawn for: ops of which it calls one, a dtype, and a variant if it is to be in one."""

    rules: tuple[OpRule, ...]
    dtype: torch.dtype | None
    variant: str | None


@dataclass
class _Met:
    """A changed function: how many programs called it, how many of them had each op, and the last of them."""

    programs: int = 0  # of those that were drawn for nothing
    ops: Counter[str] = field(default_factory=Counter)
    last: deque[Case] = field(default_factory=lambda: deque(maxlen=REMEMBERED))


class Changes:
    """Functions of the backend, as they are now, and what programs come to those that have changed."""

    def __init__(self) -> None:
        self.known: Fingerprints = {}
        """The functions that there were."""
        self.functions: Fingerprints = {}
        """Those that there are, as the files have them and as workers have met them."""
        self._met: dict[str, _Met] = {}
        self._ops: Counter[str] = Counter()
        self._programs = 0  # that were drawn for nothing
        self._drawn: set[str] = set()

    @property
    def changed(self) -> list[str]:
        """The changed functions that were called, as ``file:name``; those that most programs call are left out."""
        return [name for name in self._rare if self._was_known(name)]

    @property
    def new(self) -> list[str]:
        """Those that nothing called before, likewise: they were not there, or no program of the corpus came to them."""
        return [name for name in self._rare if not self._was_known(name)]

    def _was_known(self, name: str) -> bool:
        """Whether there was a function of this name. Of those without one of their own a place may have had others."""
        return name in self.known and not name.endswith(">")

    @property
    def _rare(self) -> list[str]:
        return [name for name, met in self._met.items() if met.programs * COMMON <= self._programs]

    def unlike_known(self) -> set[str]:
        """Names of functions that are not what they were, whether or not anything called them by now."""
        return {
            name for name, codes in self.functions.items() if name in self.known and set(codes) - set(self.known[name])
        }

    def expect(self, cases: Iterable[Case]) -> None:
        """Take note of programs that tell which ops are common."""
        for case in cases:
            self._ops.update(_targets(case))

    def draw(self, case: Case) -> None:
        """Take note that a program was drawn for a focus."""
        self._drawn.add(case.id)

    def count(self, case: Case) -> None:
        """Take note of a program that was asked."""
        self._programs += case.id not in self._drawn
        self._ops.update(_targets(case))

    def meet(self, functions: Fingerprints) -> None:
        """Take note of functions as they are now."""
        for name, codes in functions.items():
            found = self.functions.setdefault(name, [])
            found += [code for code in codes if code not in found]

    def watch(self, case: Case, changed: Iterable[str]) -> None:
        """Take note that a program called functions that have changed."""
        for name in changed:
            met = self._met.setdefault(name, _Met())
            met.programs += case.id not in self._drawn
            met.ops.update(_targets(case))
            met.last.append(case)

    def focus(self, choices: Choices, pool: Iterable[OpRule] = ()) -> Focus | None:
        """Draw what the next program is for, among the rules of ``pool``, all if empty; None if it is for nothing."""
        kinds = [names for names in (self.changed, self.new) if names]
        if not kinds or not choices.chance(FOCUSED):
            return None
        met = self._met[choices.pick(choices.pick(kinds))]
        case = choices.pick(met.last)
        wanted = {rule.op for rule in pool}
        weighted = []
        for target in sorted(_targets(case)):
            rules = tuple(rule for rule in _rules_of().get(target, ()) if not wanted or rule.op in wanted)
            weighted += [(rules, 1 + min(99, 99 * met.ops[target] // max(self._ops[target], 1)))] * bool(rules)
        if not weighted:
            return None
        dtype = case.args[0].dtype if case.args else None
        return Focus(choices.weighted(weighted), dtype, case.variant if choices.chance(ALIKE) else None)


def _targets(case: Case) -> set[str]:
    return {call.target for call in case.program.every_call}


@functools.cache
def _rules_of() -> dict[str, tuple[OpRule, ...]]:
    """The rules by what they call."""
    found: dict[str, tuple[OpRule, ...]] = {}
    for rule in all_rules().values():
        for target in dict.fromkeys((rule.target, rule.inplace or rule.target)):
            found[target] = (*found.get(target, ()), rule)
    return found

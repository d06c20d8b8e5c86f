"""One call more for a program: which op, out of a pool, and tries until one does."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from torchstone.fuzz.generator.draft import Draft
from torchstone.fuzz.generator.novelty import CANDIDATES, GUIDED, STILL_DRAWN
from torchstone.fuzz.generator.rules import OpRule

ATTEMPTS = 20
"""How often a call is redrawn, and a program started over, before giving up."""

WEIGHTS, WEIGHTS_BESIDE_VIEWS = (15, 5, 2, 78), (10, 25, 2, 63)
"""Of a hundred calls, how many are drawn from the views, the assignments, control flow, and from all ops."""


@dataclass
class Drafts:
    """How many programs and calls were drawn, and how many of them did."""

    programs: int = 0
    programs_kept: int = 0
    calls: int = 0
    calls_kept: int = 0


class Pool:
    """Ops to draw from. Views and assignments, which are few among hundreds, come more often: compilers lose writes to
    views. So does control flow."""

    def __init__(self, rules: Iterable[OpRule]) -> None:
        self.rules = tuple(rules)
        self._kinds = tuple(
            tuple(rule for rule in self.rules if holds(rule))
            for holds in (lambda r: r.is_view, lambda r: r.assigns, lambda r: r.takes_bodies, lambda r: True)
        )

    def pick(self, draft: Draft) -> OpRule:
        """Draw an op."""
        weights = WEIGHTS_BESIDE_VIEWS if draft.has_views else WEIGHTS
        weighted = [(kind, weight) for kind, weight in zip(self._kinds, weights, strict=True) if kind]
        kind = draft.choices.weighted(weighted)
        first = draft.choices.pick(kind)
        novelty = draft.novelty
        if novelty is None:
            return first
        drawn = [
            first,
            *(draft.choices.pick(kind) for _ in range(CANDIDATES - 1 if draft.choices.chance(GUIDED) else 0)),
        ]
        if any(novelty.is_unsupported(rule.target) for rule in drawn) and not draft.choices.chance(STILL_DRAWN):
            more = (draft.choices.pick(kind) for _ in range(CANDIDATES))
            supported = [rule for rule in itertools.chain(drawn, more) if not novelty.is_unsupported(rule.target)]
            drawn = supported[: len(drawn)] or drawn
        best = max(drawn, key=lambda rule: novelty.score(rule.op, (rule.target, rule.inplace), draft.base))
        novelty.try_op(best.op)
        return best

    @functools.cached_property
    def without_bodies(self) -> Pool:
        """The pool without control flow."""
        return Pool(rule for rule in self.rules if not rule.takes_bodies)


def extend(draft: Draft, pool: Pool, drafts: Drafts) -> bool:
    """Append a call of one of the ops; say whether one could be drawn."""
    for _ in range(ATTEMPTS):
        kept = draft.attempt(pool.pick(draft).add_to)
        drafts.calls += 1
        drafts.calls_kept += kept
        if kept:
            return True
    return False

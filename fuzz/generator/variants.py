"""Generated programs asked in variants of the suite: with their gradients, and compiled for any size.

A case knows its variant, so workers, the reducer, scripts and ``replay`` treat it as they treat one of the suite. The
layouts and values of the suite's other variants are drawn by the generator itself, with each input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.control_flow import COND, WHILE_LOOP
from torchstone.conformance.variants.registry import DEFAULT
from torchstone.fuzz.generator.choices import SeededChoices
from torchstone.fuzz.generator.extend import ATTEMPTS
from torchstone.fuzz.generator.generate import DRAWS, Drafts, generate
from torchstone.fuzz.generator.in_a_variant import in_a_variant
from torchstone.fuzz.generator.novelty import Novelty
from torchstone.fuzz.generator.rules import OpRule

WEIGHTS = ((DEFAULT, 55), ("backward", 20), ("dynamic", 10), ("batch", 5), ("rewritten", 10))
"""The variants, and of a hundred seconds how many are for each."""

SPECIAL_VALUES = 25
"""Of a hundred programs, how many have special values among their inputs."""
CONTROL_FLOW = "control flow"
JUDGING_COSTS: Mapping[str, int] = {"rewritten": 2, "batch": 6, "dynamic": 10, DRAWS: 4}
"""The costs of a backend that names none: what it takes to draw and judge what eager gives at once, many as one.

One that draws random numbers takes eight times as long. But nothing else shows what is wrong with its op.
"""
_UNIT = 1000


def shares(costs: Mapping[str, int]) -> list[tuple[str, int]]:
    """The variants, and how often each is drawn."""
    return [(variant, weight * _UNIT // costs.get(variant, 1)) for variant, weight in WEIGHTS]


def _cost(case: Case, costs: Mapping[str, int]) -> int:
    """How many times as long as others a program takes in whatever variant."""
    has = {DRAWS: DRAWS in case.tags, CONTROL_FLOW: any(call.bodies() for call in case.program.calls)}
    return max(costs.get(name, 1) if holds else 1 for name, holds in has.items())


def nth_case(
    seed: int,
    index: int,
    rules: Sequence[OpRule] = (),
    max_ops: int = 5,
    must: Sequence[OpRule] = (),
    specials: bool = False,
    drafts: Drafts | None = None,
    novelty: Novelty | None = None,
    costs: Mapping[str, int] = JUDGING_COSTS,
    variant: str | None = None,
    dtype: torch.dtype | None = None,
) -> Case:
    """Return the program number ``index`` of the stream ``seed``, in the variant drawn for it, or the one told.

    It is as it was where the variant does not apply. ``costs`` are the backend's (``Backend``): what takes so many
    times as long is drawn so many times less often. ``dtype`` is drawn more often, with ``novelty``. With ``specials``
    every program may have special values, and some without. Otherwise as ``nth_program``.
    """
    choices = SeededChoices(f"{seed}:{index}:variant")
    drawn_variant = choices.weighted(shares(costs))
    variant = drawn_variant if variant is None else variant
    if novelty is not None:
        novelty.variant, novelty.dtype = variant, dtype
    specials = specials or SeededChoices(f"{seed}:{index}:special").chance(SPECIAL_VALUES)
    case, attempt = None, 0
    while case is None:
        drawn = SeededChoices(f"{seed}:{index}" + f":{attempt}" * bool(attempt))
        case = generate(drawn, rules, max_ops, must, str(seed), index, specials, drafts, novelty)
        if not must and attempt < ATTEMPTS and choices.integer(1, _cost(case, costs)) > 1:
            case, attempt = None, attempt + 1
    targets = {call.target for call in case.program.every_call}
    if novelty is not None:
        novelty.meet((target, "variant", variant) for target in targets)
    # PyTorch has no gradient of a loop. That of cond is zero, and not none, for what only the other branch reads.
    if variant == DEFAULT or (variant == "backward" and targets & {COND, WHILE_LOOP}):
        return case
    # The variant takes the place of the seed in the id, and is drawn for by the id.
    plain = case.replace(source=f"{case.source}-{case.variant}", variant=DEFAULT)
    return in_a_variant(plain, variant) or case

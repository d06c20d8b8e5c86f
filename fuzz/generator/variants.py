"""Generated programs asked in variants of the suite: with their gradients, and compiled for any size.

A case knows its variant, so workers, the reducer, scripts and ``replay`` treat it as they treat one of the suite. The
layouts and values of the suite's other variants are drawn by the generator itself, with each input.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.control_flow import COND, WHILE_LOOP
from torchstone.conformance.variants.apply import apply
from torchstone.conformance.variants.forked import answers
from torchstone.conformance.variants.registry import DEFAULT
from torchstone.fuzz.generator.choices import SeededChoices
from torchstone.fuzz.generator.generate import Drafts, nth_program
from torchstone.fuzz.generator.novelty import TRIES, Novelty
from torchstone.fuzz.generator.rules import OpRule

WEIGHTS = ((DEFAULT, 60), ("backward", 15), ("dynamic", 10), ("batch", 5), ("rewritten", 10))
"""The variants, and of a hundred programs how many are asked in each."""


def nth_case(
    seed: int,
    index: int,
    rules: Sequence[OpRule] = (),
    max_ops: int = 5,
    must: Sequence[OpRule] = (),
    specials: bool = False,
    drafts: Drafts | None = None,
    novelty: Novelty | None = None,
) -> Case:
    """Return the program number ``index`` of the stream ``seed``, as ``nth_program``, in the variant drawn for it.

    It is as it was where the variant does not apply.
    """
    case = nth_program(seed, index, rules, max_ops, must, specials, drafts, novelty)
    choices = SeededChoices(f"{seed}:{index}:variant")
    variant = choices.weighted(WEIGHTS)
    targets = {call.target for call in case.program.every_call}
    if novelty is not None:
        drawn = [variant, *(choices.weighted(WEIGHTS) for _ in range(TRIES - 1))]
        variant = max(drawn, key=lambda v: sum(novelty.is_new((target, "variant", v)) for target in targets))
        novelty.meet((target, "variant", variant) for target in targets)
    # PyTorch has no gradient of a loop. That of cond is zero, and not none, for what only the other branch reads.
    if variant == DEFAULT or (variant == "backward" and targets & {COND, WHILE_LOOP}):
        return case
    # The variant takes the place of the seed in the id, and is drawn for by the id.
    plain = case.replace(source=f"{case.source}-{case.variant}", variant=DEFAULT)
    # Some of eager's gradients end the process, such as those of a batch norm of nothing.
    if not answers([lambda: isinstance(apply(plain, variant), Case)], most=1)[0]:
        return case
    changed = apply(plain, variant)
    return changed if isinstance(changed, Case) else case

"""Parts of a program that lie otherwise in memory: what is asked together differs in its layouts, too.

A bug in one argument is often a bug of one layout: the kernel for dense rows has it, or the one that steps through
memory. To ask each with each would be a program for each pair. So of the parts of a program that differ in arguments
two of three have inputs that are transposed or have gaps. What differs in its numbers or sizes stays dense: there the
kernels that take many elements at once have their bugs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial

from torchstone.conformance.program.case import Case
from torchstone.conformance.variants.forked import answers
from torchstone.conformance.variants.protocol import NotApplicable
from torchstone.conformance.variants.registry import VARIANTS
from torchstone.conformance.variants.support import agreeing, answer

TURNS = ("", "transposed", "strided")
"""How the inputs of one part after the other lie in memory; not at all changed is one of the ways."""


def laid_out_by_turns(cases: Sequence[Case]) -> list[Case]:
    """The cases, with inputs elsewhere in memory by turns, where eager gives the same for these."""
    changed: dict[int, Case] = {}
    for at, case in enumerate(cases):
        if turn := TURNS[at % len(TURNS)]:
            with contextlib.suppress(NotApplicable):
                changed[at] = VARIANTS.load(turn).make(case)
    asked = answers([partial(_same_answer, cases[at], case) for at, case in changed.items()], most=len(changed))
    kept = {at: case for (at, case), yes in zip(changed.items(), asked, strict=True) if yes}
    return [kept.get(at, case) for at, case in enumerate(cases)]


def _same_answer(case: Case, changed: Case) -> bool:
    """Whether eager takes both and gives the same: some of its kernels read memory as it lies there."""
    wanted, found = answer(case), answer(changed)
    return wanted is not None and found is not None and agreeing(wanted, found)

"""Ask the case as it is, without what its variant does around it; of a rewritten one, what it was rewritten to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from torchstone.conformance.program.case import Case
from torchstone.conformance.variants.protocol import NotApplicable
from torchstone.conformance.variants.registry import DEFAULT, VARIANTS
from torchstone.conformance.variants.rewritten import REWRITTEN, pairs
from torchstone.reducers.problem import Rewrite


def simplify_variant(case: Case) -> Rewrite[Case]:
    """Try the case in the default variant. A script of it compiles one program once, and compares with eager."""
    if case.variant not in VARIANTS or VARIANTS.load(case.variant).run is None:
        return
    for candidate in _plain(case):
        if (yield candidate):
            return


def _plain(case: Case) -> Iterator[Case]:
    yield case.replace(variant=DEFAULT)
    if VARIANTS.load(case.variant) is not REWRITTEN:
        return
    with torch.no_grad(), contextlib.suppress(NotApplicable):
        yield from [case.replace(program=pair.program, variant=DEFAULT) for pair in pairs(case)]

"""A case in a variant of the suite, which eager may refuse, or not survive."""

from __future__ import annotations

from torchstone.conformance.execution.apart import ask_apart
from torchstone.conformance.program.case import Case
from torchstone.conformance.variants.apply import apply

SECONDS = 2
"""Of the processor's time that making one may take: the backend waits for what is drawn next."""


def in_a_variant(case: Case, variant: str) -> Case | None:
    """The case in a variant; None where there is none, or where making it ends the process or takes too long."""
    return ask_apart(_applied, case, variant, SECONDS)


def _applied(case: Case, variant: str) -> Case | None:
    made = apply(case, variant)
    return made if isinstance(made, Case) else None

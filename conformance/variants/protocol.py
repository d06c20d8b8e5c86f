"""What a variant is: how a case is changed, and how the changed case is tried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from torchstone.conformance.backends.protocol import Backend
    from torchstone.conformance.execution.run_case import Compiled
    from torchstone.conformance.execution.verdict import Stage
    from torchstone.conformance.oracle.finding import Finding
    from torchstone.conformance.program.case import Case

    Run: TypeAlias = Callable[[Case, Backend, Compiled | None], tuple[Stage, Finding]]


class NotApplicable(Exception):
    """A case has nothing that the variant is about; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way of asking a case. Its name is the one it is registered under.

    ``doc`` is one sentence. ``make(case)`` returns the case asked in this way, or raises ``NotApplicable``; random
    numbers that it draws are seeded by the case's id.

    ``run(case, backend, compiled)`` tries the case made, in a worker, and returns the stage reached and the finding.
    None compiles the case once, calls it, and compares with eager: ``execution.run_case.compare_with_eager``.
    ``compiled`` is what compiling the case together with others gave, if that was done. A variant that compiles in a
    way of its own is ``compiled_alone``: its cases are never compiled together with others. ``bundle_of`` is for one
    that asks each of a bundle's ``members`` (``program.bundle``) what it would ask it alone, and compiles them as one:
    how many at most, for all of it has to be done in the time of one case.

    ``try_eager``: whether ``apply`` runs eager at once, so that a case that eager refuses is untested and no worker is
    bothered. False where eager may end the process, as MKL's eigenvalues do for a NaN.
    """

    doc: str
    make: Callable[[Case], Case]
    run: Run | None = None
    try_eager: bool = True
    compiled_alone: bool = False
    bundle_of: int = 1


UNCHANGED = Variant("The case as its source gives it.", lambda case: case)

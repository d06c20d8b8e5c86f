"""How much a run that follows a plan asks of each op."""

from __future__ import annotations

from enum import StrEnum


class Effort(StrEnum):
    """The size of a plan, see ``selection.plan``."""

    quick = "quick"
    standard = "standard"
    thorough = "thorough"

    @property
    def budget(self) -> int:
        """Cases of each op."""
        return _BUDGETS[self]


_BUDGETS = {Effort.quick: 4, Effort.standard: 9, Effort.thorough: 64}

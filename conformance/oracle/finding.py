"""What a run gave, and what the oracle finds of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from torchstone.conformance.execution.verdict import Outcome


@dataclass(frozen=True)
class Observed:
    """What a run left: the value it returned, and the input tensors as it left them."""

    outputs: Any
    inputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class Finding:
    """``outcome`` is pass, mismatch or ill-conditioned. ``evidence`` holds JSON values only."""

    outcome: Outcome
    kind: str = ""
    message: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the backend was found right."""
        return self.outcome is Outcome.PASS


PASS = Finding(Outcome.PASS)

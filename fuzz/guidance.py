"""Guidance of a campaign: what its programs had and what the backend said decide what is drawn next.

A program that gets a verdict or a message that no earlier one got makes its ops and dtypes likelier for a while. What
is drawn depends on nothing but the seed, and the programs and verdicts that this is told of, in their order.
"""

from __future__ import annotations

from torchstone.conformance.execution.verdict import CORRECT, Verdict
from torchstone.conformance.program.case import Case
from torchstone.fuzz.generator.novelty import Novelty
from torchstone.reducers.signature import Signature, signature


class Guidance(Novelty):
    """What programs had, and what verdicts there were."""

    def __init__(self) -> None:
        super().__init__()
        self._said: set[Signature] = set()

    def learn(self, case: Case, verdict: Verdict) -> bool:
        """Take note of a verdict; say whether it is unlike all before. The first that is right is nothing new."""
        found = signature(verdict)
        if found in self._said:
            return False
        self._said.add(found)
        if verdict.outcome in CORRECT:
            return False
        self.heat([call.target for call in case.program.every_call])
        self.heat([tensor.dtype for tensor in case.args])
        return True

"""Guidance of a campaign: what its programs had and what the backend said decide what is drawn next.

A program that gets a verdict or a message that no earlier one got, or that runs lines of the backend that none ran,
makes its ops and dtypes likelier for a while. A refusal does not: ops for which the backend never did but refuse are
drawn less often. What is drawn depends on nothing but the seed, and the programs, verdicts and lines that this is told
of, in their order.
"""

from __future__ import annotations

from torchstone.conformance.execution.line_tracer import Ran
from torchstone.conformance.execution.verdict import CORRECT, Outcome, Verdict
from torchstone.conformance.program.case import Case
from torchstone.fuzz.changes import Changes
from torchstone.fuzz.generator.novelty import Novelty
from torchstone.reducers.signature import Signature, signature


class Guidance(Novelty):
    """What programs had, and what verdicts there were."""

    def __init__(self) -> None:
        super().__init__()
        self._said: set[Signature] = set()
        self.lines: set[str] = set()
        self._ran: dict[str, list[str]] = {}  # functions that a case called which ran new lines, by its id
        self.changes = Changes()

    def watch(self, case: Case, ran: Ran) -> None:
        """Take note of what a case ran of the backend, before its verdict."""
        if not self.lines.issuperset(ran.lines):
            self._ran[case.id] = ran.called
            self.lines.update(ran.lines)
        self.changes.meet(ran.functions)
        self.changes.watch(case, ran.changed)

    def ran_new_lines(self, case: Case) -> bool:
        """Whether a case whose verdict is not learned yet ran lines that none ran."""
        return case.id in self._ran

    def called(self, case: Case) -> list[str]:
        """The functions of the backend that such a case called; of any other none."""
        return self._ran.get(case.id, [])

    def learn(self, case: Case, verdict: Verdict, *, traced: bool = True) -> bool:
        """Take note of a verdict; say whether it, or what ran for it, is new. The first that is right is no news.

        Nor is a refusal. Of a case that was not ``traced`` it is not known what ran for it.
        """
        self.changes.count(case)
        found, ran = signature(verdict), case.id in self._ran
        refused = verdict.outcome is Outcome.UNSUPPORTED
        answered = found not in self._said and verdict.outcome not in CORRECT and not refused
        self._said.add(found)
        self._ran.pop(case.id, None)
        targets = {call.target for call in case.program.every_call}
        self.answer(targets, refused)
        if traced:
            self.show(targets, ran)
        if not (answered or ran):
            return False
        self.heat(targets)
        self.heat([tensor.dtype for tensor in case.args])
        return True

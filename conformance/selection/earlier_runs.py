"""Cases picked out by what earlier runs said of them: ``--last-failed`` and ``--changed-since``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from torchstone.conformance.errors import InputError
from torchstone.conformance.execution.verdict import CORRECT, Outcome

if TYPE_CHECKING:
    from torchstone.conformance.store import Store


def not_passed(outcomes: Mapping[str, str]) -> frozenset[str]:
    """The ids of the cases that the backend was asked and that did not pass."""
    return frozenset(name for name, outcome in outcomes.items() if Outcome(outcome) not in CORRECT | {Outcome.UNTESTED})


def changed_outcomes(before: Mapping[str, str], after: Mapping[str, str]) -> frozenset[str]:
    """The ids of the cases of ``after`` that had another outcome before, or none."""
    return frozenset(name for name, outcome in after.items() if before.get(name) != outcome)


class EarlierRuns(NamedTuple):
    """A rule about the verdicts of earlier runs: for each backend the run that is meant, and the newest one then."""

    rule: str
    runs: dict[str, str]
    until: str

    @classmethod
    def since(cls, rule: str, store: Store, run: str, backends: Sequence[str] | None) -> EarlierRuns:
        """``last-failed`` or ``changed-since`` a run or the latest: for each backend the latest that it was in.

        Raises ``InputError`` where a backend was not in it.
        """
        records = store.run_list()
        newest = store.run(None).run
        given = None if run == "latest" else store.run(run).run
        candidates = [r for r in records if given in (None, r.run)]
        named = backends or candidates[-1].options.get("backends", [])
        found = {
            name: next((r.run for r in reversed(candidates) if name in r.options.get("backends", ())), None)
            for name in named
        }
        missing = [name for name, where in found.items() if where is None]
        if missing:
            raise InputError(f"selects nothing: backend {missing[0]} was not in {given or 'any run of the store'}")
        return cls(rule, {name: where for name, where in found.items() if where is not None}, newest)

    def ids(self, store: Store) -> dict[str, frozenset[str]]:
        """The ids meant, by backend."""
        return {backend: self._of(store, backend, run) for backend, run in self.runs.items()}

    def _of(self, store: Store, backend: str, run: str) -> frozenset[str]:
        before = _outcomes(store, run, backend)
        if self.rule == "last-failed":
            return not_passed(before)
        after: dict[str, str] = {}
        for record in store.run_list():
            if _number(run) < _number(record.run) <= _number(self.until):
                after.update(_outcomes(store, record.run, backend))
        return changed_outcomes(before, after)


def _outcomes(store: Store, run: str, backend: str) -> dict[str, str]:
    return {row[0]: row[7] for row in store.iter_verdicts(run) if row[1] == backend}


def _number(run: str) -> int:
    return int(run[1:])

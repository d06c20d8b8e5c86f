"""A run held against what was expected of it: every transition nobody expected, and every row that is about nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torchstone.conformance.errors import InputError
from torchstone.conformance.execution.verdict import FAILURES, Direction, Outcome, direction
from torchstone.conformance.expectations.expectation import Expectation, ExpectationFile
from torchstone.conformance.expectations.scope import RunScope

if TYPE_CHECKING:
    from torchstone.conformance.store import RunRecord, Store


class StoredVerdict(NamedTuple):
    """A row of the store: the columns of ``VERDICT_COLUMNS``."""

    case_id: str
    backend: str
    source: str
    op: str
    dtype: str
    variant: str
    stage: str
    outcome: str
    kind: str
    message: str
    evidence: str
    seconds: float

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What rows select by: case, source, op, dtype, variant."""
        return self.case_id, self.source, self.op, self.dtype, self.variant


class CheckedVerdict(NamedTuple):
    """What became of one case: ``row`` decides it, if any does; ``unexpected`` says what is wrong, None if nothing.

    A case without a row is expected not to fail. Trouble of the harness itself is expected of no case.
    """

    result: StoredVerdict
    row: Expectation | None
    path: Path | None
    unexpected: Direction | None

    @property
    def expected(self) -> str:
        """What was expected, in words."""
        return " or ".join(self.row.outcomes) if self.row is not None else "no failure"


@dataclass
class ExpectationReport:
    """A run as it was expected and as it came.

    ``stale`` rows come with their file and backend. ``counts`` has the cases that were as expected: ``expected
    failures``, ``passes``, ``others``. ``out_of_scope`` rows are about what the run was not asked for, ``todo`` rows
    have a reason that is still to be written.
    """

    unexpected: list[CheckedVerdict] = field(default_factory=list)
    stale: list[tuple[Path, str, Expectation]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    out_of_scope: int = 0
    todo: int = 0

    @property
    def ok(self) -> bool:
        """Whether everything came as it was expected."""
        return not self.unexpected and not self.stale


def files_by_backend(
    files: Sequence[ExpectationFile], backends: Collection[str], whose: str
) -> dict[str, ExpectationFile]:
    """Return the files by backend. Raises InputError for two of one backend, and for one that was not tried."""
    found: dict[str, ExpectationFile] = {}
    for file in files:
        if file.backend in found:
            raise InputError(
                f'{file.path}: backend "{file.backend}" has its expectations in {found[file.backend].path} already'
            )
        if file.backend not in backends:
            raise InputError(
                f'{file.path}: expectations of backend "{file.backend}", but {whose} tries '
                f"{', '.join(sorted(backends)) or 'none'}"
            )
        found[file.backend] = file
    return found


def check_complete(record: RunRecord, backends: Collection[str]) -> None:
    """Raise InputError for a run that did not try all it was asked to: what is missing can be held against nothing."""
    if record.state != "finished":
        hint = "" if record.state == "running" else f"; go on with `torchstone run --resume {record.run}`"
        raise InputError(f"run {record.run} did not finish ({record.state}), so it cannot be judged{hint}")
    for name in backends:
        if name in record.errors:
            raise InputError(f"run {record.run} could not run {name} to the end: {record.errors[name]}")


def checked_verdicts(store: Store, run: str, files: Sequence[ExpectationFile] = ()) -> Iterator[CheckedVerdict]:
    """Yield what became of each case of a run, by backend and case."""
    by_backend = {file.backend: file for file in files}
    for row in store.iter_verdicts(run):
        result = StoredVerdict(*row)
        file = by_backend.get(result.backend)
        if file is None:
            yield _checked(result, None, None)
        else:
            yield _checked(result, file.find(*result.key), file.path)


def check_run(store: Store, record: RunRecord, files: Sequence[ExpectationFile] = ()) -> ExpectationReport:
    """Hold a run against the expectations of its backends; a backend without any is expected to fail no case.

    A row that matches no case of the run is stale, unless it is about what the run was not asked for. A backend that
    could not be run to the end has no stale rows: nobody knows what they would have matched.
    """
    report = ExpectationReport()
    by_backend = {file.backend: file for file in files}
    met: dict[str, set[int]] = {file.backend: set() for file in files}
    for row in store.iter_verdicts(record.run):
        result = StoredVerdict(*row)
        decides, path = None, None
        file = by_backend.get(result.backend)
        if file is not None:
            matching = file.matching(*result.key)
            met[result.backend].update(matching)
            decides, path = (file.rows[matching[-1]] if matching else None), file.path
        finding = _checked(result, decides, path)
        report.counts[_kind(finding)] += 1
        if finding.unexpected is not None:
            report.unexpected.append(finding)
    selection = RunScope.of(record.options)
    for file in files:
        report.todo += sum(row.reason.lstrip().startswith("TODO") for row in file.rows)
        for at, row in enumerate(file.rows):
            if at not in met[file.backend] and file.backend not in record.errors:
                if selection.asks(row):
                    report.stale.append((file.path, file.backend, row))
                else:
                    report.out_of_scope += 1
    return report


def _checked(result: StoredVerdict, row: Expectation | None, path: Path | None) -> CheckedVerdict:
    outcome = result.outcome
    if outcome == Outcome.HARNESS_ERROR:
        return CheckedVerdict(result, row, path, Direction.REGRESSION)
    if row is None:
        return CheckedVerdict(result, None, path, Direction.REGRESSION if outcome in FAILURES else None)
    if outcome in row.outcomes:
        return CheckedVerdict(result, row, path, None)
    ways = {direction(expected, outcome) for expected in row.outcomes}
    # of several that were expected, each would have done: it got worse only if it is worse than all of them
    return CheckedVerdict(result, row, path, ways.pop() if len(ways) == 1 else Direction.CHANGE)


def _kind(finding: CheckedVerdict) -> str:
    if finding.unexpected is not None:
        return "unexpected"
    outcome = finding.result.outcome
    return "expected failures" if outcome in FAILURES else "passes" if outcome == Outcome.PASS else "others"

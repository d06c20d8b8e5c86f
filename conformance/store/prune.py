"""Removing runs, and giving back the space that their failed cases took."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from torchstone.conformance.store import opening
from torchstone.conformance.store.opening import StoreError

if TYPE_CHECKING:
    from torchstone.conformance.store.store import RunRecord, Store


@dataclass(frozen=True)
class Pruned:
    """What was removed. ``freed`` are bytes of the file, None when a running run kept the file from being compacted."""

    runs: tuple[str, ...]
    verdicts: int
    cases: int
    freed: int | None


def runs_to_prune(
    runs: Sequence[RunRecord], keep: int | None = None, older_than: timedelta | None = None
) -> list[RunRecord]:
    """Return the runs that are not among the newest ``keep`` and started before ``older_than`` ago, oldest first."""
    ordered = sorted(runs, key=lambda run: int(run.run[1:]))
    chosen = ordered[: max(0, len(ordered) - (keep or 0))]
    if older_than is None:
        return chosen
    before = datetime.now(UTC) - older_than
    return [run for run in chosen if (started := _time(run.started)) is not None and started < before]


def prune(store: Store, runs: Sequence[RunRecord], *, force: bool = False) -> Pruned:
    """Remove runs, their verdicts, and the bytes of cases that no other run has; all of it or nothing.

    Raises StoreError for a run that is running. One that another machine left as running, which nobody here can know
    to be over, is removed with ``force`` only.
    """
    store.flush()
    keys = [(int(run.run[1:]),) for run in runs]
    db = store._db
    with opening.sqlite_errors(store.path):
        before = _size(db)
        db.execute("BEGIN IMMEDIATE")
        try:
            for (key,) in keys:
                _refuse_running(db, key, force)
            verdicts = sum(db.execute("DELETE FROM verdicts WHERE run = ?", key).rowcount for key in keys)
            db.executemany("DELETE FROM runs WHERE id = ?", keys)
            orphans = "SELECT 1 FROM verdicts WHERE verdicts.digest = cases.digest"
            cases = db.execute(f"DELETE FROM cases WHERE NOT EXISTS ({orphans})").rowcount
            db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                db.execute("ROLLBACK")
            raise
        running = db.execute("SELECT 1 FROM runs WHERE state = 'running' LIMIT 1").fetchone()
        if running:  # compacting locks the file for longer than a writer waits
            return Pruned(tuple(run.run for run in runs), verdicts, cases, None)
        with contextlib.suppress(sqlite3.OperationalError):  # no room or a reader: the space is used by later runs
            db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        freed = before - _size(db)
    return Pruned(tuple(run.run for run in runs), verdicts, cases, freed)


def _refuse_running(db: sqlite3.Connection, key: int, force: bool) -> None:
    row = db.execute("SELECT pid, host FROM runs WHERE id = ? AND state = 'running'", (key,)).fetchone()
    if row is None:
        return
    state = opening.process_alive(*row)
    if state:
        raise StoreError(f"run r{key} is still running (process {row[0]}); nothing was pruned")
    if state is None and not force:
        raise StoreError(
            f"run r{key} was left as running by process {row[0]} on {row[1]!r}, which cannot be asked here; nothing "
            "was pruned. If it is over, prune with --force"
        )


def _size(db: sqlite3.Connection) -> int:
    """Return the bytes of the database, those still in the WAL included."""
    return db.execute("PRAGMA page_count").fetchone()[0] * db.execute("PRAGMA page_size").fetchone()[0]


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except (ValueError, TypeError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)

"""What a store keeps and gives back.

Verdicts are journalled in small batches, so that a run that dies, however it dies, loses at most the last half second.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import socket
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchstone.conformance.errors import UnknownName
from torchstone.conformance.escape import utf8
from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.store import opening
from torchstone.conformance.store.opening import StoreError
from torchstone.conformance.store.untrusted import options_well_formed, parse_evidence, unpacked

if TYPE_CHECKING:
    import pandas as pd

BATCH_SECONDS = 0.5
BATCH_ROWS = 500

VERDICT_COLUMNS = (
    "case_id", "backend", "source", "op", "dtype", "variant",
    "stage", "outcome", "kind", "message", "evidence", "seconds",
)  # fmt: skip
RUN_COLUMNS = (
    "run", "state", "started", "finished", "command", "options", "versions", "device", "seed", "pid", "host", "errors",
    "machine",
)  # fmt: skip


@dataclass(frozen=True)
class RunRecord:
    """One run's record. ``state``: running, finished, interrupted, or killed (its process is gone).

    ``errors`` has the harness's reason for each backend that could not be run to the end; ``machine`` the facts of
    ``execution.machine``, none of a run that an older torchstone made.
    """

    run: str
    state: str
    started: str
    finished: str | None
    command: str
    options: dict[str, Any]
    versions: dict[str, str]
    device: str
    seed: int | None
    pid: int | None = None
    host: str | None = None
    errors: dict[str, str] = field(default_factory=dict)
    machine: dict[str, str] = field(default_factory=dict)


class Store:
    """An open store; use it as a context manager. One process writes a run; any number may read.

    ``create=False`` refuses a path where nothing is. ``readonly=True`` does too, and writes nothing: a store that an
    older torchstone wrote is left as it is, where opening it to write brings it up to date.
    Raises StoreError for a file that is corrupt, newer, or no store at all, and for an unwritable folder.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None = None, *, create: bool = True, readonly: bool = False
    ) -> None:
        self.path = Path(path) if path is not None else opening.default_path()
        self._pending: list[tuple[Any, ...]] = []
        self._pending_cases: list[tuple[str, bytes]] = []
        self._flushed = time.monotonic()
        self._db = opening.open_store(self.path, create=create and not readonly, readonly=readonly)

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return opening.sqlite_errors(self.path)

    # -- writing ------------------------------------------------------------------------------------------------

    def new_run(
        self,
        command: str,
        options: Mapping[str, Any],
        versions: Mapping[str, str],
        *,
        device: str = "cpu",
        seed: int | None = None,
        machine: Mapping[str, str] | None = None,
    ) -> str:
        """Open a run and return its id (``r1``, ``r2``, …). ``options`` must be JSON; they are what resuming needs."""
        objects = [json.dumps(dict(value or {})) for value in (options, versions, machine)]
        row = (opening.now(), utf8(command), *objects, utf8(device), seed, os.getpid(), socket.gethostname())
        with self._errors():
            cursor = self._db.execute(
                "INSERT INTO runs (state, started, command, options, versions, machine, device, seed, pid, host) "
                "VALUES ('running', ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )
        return f"r{cursor.lastrowid}"

    def reopen(self, run: str) -> None:
        """Mark a run as running in this process again. Raises StoreError while another process is running it."""
        record = self.run(run)
        if record.state == "running" and record.pid != os.getpid():
            raise StoreError(f"run {record.run} is still running (process {record.pid}); stop it before resuming it")
        with self._errors():
            self._db.execute(
                "UPDATE runs SET state = 'running', finished = NULL, errors = '{}', pid = ?, host = ? WHERE id = ?",
                (os.getpid(), socket.gethostname(), _key(record.run)),
            )

    def note_versions(self, run: str, versions: Mapping[str, str]) -> None:
        """Add to the versions of a run what is known only while it runs: those of a cluster's nodes."""
        with self._errors():
            (known,) = self._db.execute("SELECT versions FROM runs WHERE id = ?", (_key(run),)).fetchone()
            text = json.dumps(json.loads(known) | dict(versions))
            self._db.execute("UPDATE runs SET versions = ? WHERE id = ?", (text, _key(run)))

    def note_machine(self, run: str, machine: Mapping[str, str]) -> None:
        """Set the machine of a run: it was resumed on another one, and says so."""
        with self._errors():
            self._db.execute("UPDATE runs SET machine = ? WHERE id = ?", (json.dumps(dict(machine)), _key(run)))

    def record(self, run: str, verdict: Verdict, case: bytes | None = None) -> None:
        """Journal a verdict, replacing an earlier one of the same case and backend in this run.

        ``case`` is the case's serialized form, to be given when the case did not pass; it is stored once.
        """
        digest = None
        if case is not None:
            digest = hashlib.sha256(case).hexdigest()
            self._pending_cases.append((digest, zlib.compress(case, 6)))
        evidence = json.dumps(verdict.evidence, default=str)
        self._pending.append(
            (
                _key(run),
                *map(utf8, (
                    verdict.case_id, verdict.backend, verdict.source, verdict.op, verdict.dtype, verdict.variant,
                    str(verdict.stage), str(verdict.outcome), verdict.kind, verdict.message, evidence,
                )),
                verdict.seconds, digest,
            )
        )  # fmt: skip
        if len(self._pending) >= BATCH_ROWS:
            self.flush()
        else:
            self.tick()

    def tick(self) -> None:
        """Write the journal when the last write was half a second ago; call it whenever there is time."""
        if self._pending and time.monotonic() - self._flushed >= BATCH_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write what is pending, durably against the death of this process."""
        if self._pending:
            with self._errors():
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    self._db.executemany("INSERT OR IGNORE INTO cases VALUES (?, ?)", self._pending_cases)
                    marks = ", ".join("?" * 14)
                    self._db.executemany(f"INSERT OR REPLACE INTO verdicts VALUES ({marks})", self._pending)
                    self._db.execute("COMMIT")
                except BaseException:
                    with contextlib.suppress(sqlite3.Error):
                        self._db.execute("ROLLBACK")
                    raise
            self._pending.clear()
            self._pending_cases.clear()
        self._flushed = time.monotonic()

    def finish(self, run: str, state: str = "finished", errors: Mapping[str, str] | None = None) -> None:
        """Write what is pending and close the run as ``finished`` or ``interrupted``.

        ``errors`` has, for each backend that could not be run to the end, the reason.
        """
        self.flush()
        row = (state, opening.now(), json.dumps(dict(errors or {})), _key(run))
        with self._errors():
            self._db.execute("UPDATE runs SET state = ?, finished = ?, errors = ? WHERE id = ?", row)

    def abandon(self, run: str) -> None:
        """Close a run as ``interrupted``, as far as the disk has room for it. Raises nothing.

        What does not fit is asked again when the run is resumed, and a run that cannot even be closed is found killed.
        """
        with contextlib.suppress(StoreError):
            self.flush()
        self._pending.clear()
        self._pending_cases.clear()
        with contextlib.suppress(StoreError):
            self.finish(run, "interrupted")

    # -- reading ------------------------------------------------------------------------------------------------

    def run(self, run: str | None = None) -> RunRecord:
        """Return the record of a run; ``None`` or ``latest`` is the newest. Raises UnknownName, StoreError."""
        with self._errors():
            ids = [f"r{n}" for (n,) in self._db.execute("SELECT id FROM runs ORDER BY id")]
            if not ids:
                raise StoreError(f"no runs in {self.path}: run `torchstone run` first, or give --store")
            name = ids[-1] if run in (None, "latest") else str(run)
            if name not in ids:
                raise UnknownName("run", name, ids, more="; `torchstone runs` lists them")
            row = self._db.execute(f"SELECT {_RUN_SELECT} FROM runs WHERE id = ?", (_key(name),)).fetchone()
        return self._run(row)

    def run_list(self) -> list[RunRecord]:
        """Return the records of all runs, oldest first."""
        with self._errors():
            return [self._run(row) for row in self._db.execute(f"SELECT {_RUN_SELECT} FROM runs ORDER BY id")]

    def _run(self, row: tuple[Any, ...]) -> RunRecord:
        key, state, started, finished, command, options, versions, device, seed, pid, host, errors, machine = row
        if state == "running" and opening.process_alive(pid, host) is False:
            state = "killed"
        try:
            objects = [json.loads(text) for text in (options, versions, errors, machine)]
        except (ValueError, TypeError, RecursionError) as error:
            raise StoreError(f"{self.path} is corrupt: the record of run r{key} does not read: {error}") from error
        texts = (state, started, command, device, "" if finished is None else finished, "" if host is None else host)
        if not (all(isinstance(value, dict) for value in objects) and all(isinstance(text, str) for text in texts)):
            raise StoreError(f"{self.path} is corrupt: the record of run r{key} is not a record")
        options, versions, errors, machine = objects
        texts = (*versions.values(), *errors.values(), *machine.values())
        if not (options_well_formed(options) and all(isinstance(text, str) for text in texts)):
            raise StoreError(f"{self.path} is corrupt: the options, versions, errors or machine of run r{key} are none")
        return RunRecord(
            f"r{key}", state, started, finished, command, options, versions, device, seed, pid, host, errors, machine
        )  # fmt: skip

    def runs(self) -> pd.DataFrame:
        """Return one row a run, oldest first: the columns of ``RUN_COLUMNS`` (objects as JSON text)."""
        import pandas as pd

        rows = []
        for r in self.run_list():
            values = {name: getattr(r, name) for name in RUN_COLUMNS}
            rows.append(values | {name: json.dumps(values[name]) for name in _OBJECTS})
        return pd.DataFrame(rows, columns=list(RUN_COLUMNS))

    def verdicts(self, run: str | None = None) -> pd.DataFrame:
        """Return one row a verdict of the run, with the columns of ``VERDICT_COLUMNS`` (evidence is JSON text)."""
        import pandas as pd

        return pd.DataFrame(list(self.iter_verdicts(run)), columns=list(VERDICT_COLUMNS))

    def iter_verdicts(self, run: str | None = None) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of ``verdicts`` as plain tuples, ordered by backend and case."""
        key = _key(self.run(run).run)
        self.flush()
        columns = ", ".join(VERDICT_COLUMNS)
        with self._errors():
            query = f"SELECT {columns} FROM verdicts WHERE run = ? ORDER BY backend, case_id"
            for row in self._db.execute(query, (key,)):
                yield self._checked(row, key)

    def _checked(self, row: tuple[Any, ...], key: int) -> tuple[Any, ...]:
        well = tuple(map(type, row)) == _TYPES and row[6] in _STAGES and row[7] in _OUTCOMES
        if not well or not math.isfinite(row[11]):
            raise StoreError(f"{self.path} is corrupt: run r{key} has a row that is no verdict: {row[:8]!r:.200}")
        return row

    def counts(self, run: str) -> dict[str, dict[str, int]]:
        """Return, for each backend of the run, how many cases ended in each outcome."""
        self.flush()
        result: dict[str, dict[str, int]] = {}
        query = "SELECT backend, outcome, count(*) FROM verdicts WHERE run = ? GROUP BY backend, outcome"
        with self._errors():
            for backend, outcome, count in self._db.execute(query, (_key(run),)):
                if type(backend) is not str or outcome not in _OUTCOMES:
                    raise StoreError(f"{self.path} is corrupt: {run} has a row that is no verdict: {backend!r:.100}")
                result.setdefault(backend, {})[outcome] = count
        return result

    def noted(self, run: str, key: str) -> dict[str, int]:
        """Return, for each backend of the run that has some, how many cases have ``key`` in their evidence."""
        self.flush()
        query = "SELECT backend, count(*) FROM verdicts WHERE run = ? AND instr(evidence, ?) GROUP BY backend"
        with self._errors():
            return dict(sorted(self._db.execute(query, (_key(run), f'"{key}": '))))

    def passing_ops(self, run: str) -> dict[str, tuple[int, int]]:
        """Return, for each backend, how many ops passed every tested sample, and how many had a tested sample."""
        self.flush()
        by_op = (
            "SELECT backend, min(outcome = 'pass') AS passing FROM verdicts "
            "WHERE run = ? AND outcome != 'untested' GROUP BY backend, op"
        )
        result: dict[str, tuple[int, int]] = dict.fromkeys(self.counts(run), (0, 0))
        with self._errors():
            query = f"SELECT backend, sum(passing), count(*) FROM ({by_op}) GROUP BY backend"
            for backend, passing, ops in self._db.execute(query, (_key(run),)):
                result[backend] = (passing, ops)
        return result

    def untested_ops(self, run: str) -> dict[str, list[str]]:
        """Return, for each backend that has some, the ops of which nothing is known: every sample is untested."""
        self.flush()
        query = (
            "SELECT backend, op FROM verdicts WHERE run = ? "
            "GROUP BY backend, op HAVING min(outcome = 'untested') ORDER BY backend, op"
        )
        result: dict[str, list[str]] = {}
        with self._errors():
            for backend, op in self._db.execute(query, (_key(run),)):
                result.setdefault(str(backend), []).append(str(op))
        return result

    def done(self, run: str, backend: str) -> set[str]:
        """Return the ids of the cases that have a verdict of ``backend`` in the run."""
        self.flush()
        with self._errors():
            query = "SELECT case_id FROM verdicts WHERE run = ? AND backend = ?"
            return {name for (name,) in self._db.execute(query, (_key(run), backend))}

    def case_ids(self, run: str | None = None) -> Iterable[str]:
        """Return the distinct case ids of one run, or of all of them."""
        where, values = ("WHERE run = ?", (_key(self.run(run).run),)) if run else ("", ())
        with self._errors():
            rows = self._db.execute(f"SELECT DISTINCT case_id FROM verdicts {where}", values)
            return [name for (name,) in rows if isinstance(name, str)]

    def case_bytes(self, case_id: str, run: str | None = None) -> bytes | None:
        """Return the stored form of a case that failed, the newest one when runs differ; None if there is none."""
        self.flush()
        where, values = ("AND run = ?", (_key(self.run(run).run),)) if run else ("", ())
        query = (
            "SELECT data FROM verdicts JOIN cases USING (digest) "
            f"WHERE case_id = ? {where} ORDER BY run DESC, backend LIMIT 1"
        )
        with self._errors():
            row = self._db.execute(query, (case_id, *values)).fetchone()
        if row is None:
            return None
        return unpacked(row[0], self.path, f"case {case_id}")

    def failure(self, case_id: str, backend: str, run: str | None = None) -> tuple[Verdict, bytes] | None:
        """Return a backend's verdict of a case that failed, and the stored form of that case; None if there is none.

        The newest, unless a run is named. Raises StoreError.
        """
        self.flush()
        where, values = ("AND run = ?", (_key(self.run(run).run),)) if run else ("", ())
        query = (
            f"SELECT {', '.join(VERDICT_COLUMNS)}, run, data FROM verdicts JOIN cases USING (digest) "
            f"WHERE case_id = ? AND backend = ? {where} ORDER BY run DESC LIMIT 1"
        )
        with self._errors():
            found = self._db.execute(query, (case_id, backend, *values)).fetchone()
        if found is None:
            return None
        *row, key, data = found
        return verdict_of(self._checked(tuple(row), key)), unpacked(data, self.path, f"case {case_id}")

    def close(self) -> None:
        """Write what is pending and close the file."""
        try:
            self.flush()
        finally:
            self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        with (
            contextlib.suppress(StoreError) if kind else contextlib.nullcontext()
        ):  # the first error is the one to tell
            self.close()


def verdict_of(row: tuple[Any, ...]) -> Verdict:
    """Return the verdict in a row of ``iter_verdicts``. Raises StoreError for evidence that is no JSON object."""
    found = dict(zip(VERDICT_COLUMNS, row, strict=True))
    evidence = parse_evidence(found["evidence"], found["case_id"])
    return Verdict(
        **{**found, "stage": Stage(found["stage"]), "outcome": Outcome(found["outcome"]), "evidence": evidence}
    )


def _key(run: str) -> int:
    return int(run[1:])


_RUN_SELECT = ", ".join(("id", *RUN_COLUMNS[1:]))
_OBJECTS = ("options", "versions", "errors", "machine")
_TYPES = (*[str] * 11, float)
_STAGES, _OUTCOMES = frozenset(map(str, Stage)), frozenset(map(str, Outcome))

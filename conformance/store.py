"""The result store: one SQLite file (WAL) that holds runs, verdicts, and the bytes of the cases that failed.

Verdicts are journalled in small batches, so that a run that dies, however it dies, loses at most the last half
second. The schema is versioned: a store written by a newer torchstone, or a file that is something else, is refused
and left untouched.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from torchstone.conformance.errors import InputError, UnknownName

if TYPE_CHECKING:
    import pandas as pd

    from torchstone.conformance.verdict import Verdict

SCHEMA_VERSION = 1
DEFAULT_PATH = Path(".torchstone") / "results.sqlite"
MAGIC = b"SQLite format 3\0"
BATCH_SECONDS = 0.5
BATCH_ROWS = 500
CHECK_BELOW_BYTES = 32 << 20  # a full structural check costs about a millisecond a megabyte

VERDICT_COLUMNS = (
    "case_id", "backend", "source", "op", "dtype", "variant",
    "stage", "outcome", "kind", "message", "evidence", "seconds",
)  # fmt: skip
RUN_COLUMNS = (
    "run", "state", "started", "finished", "command", "options", "versions", "device", "seed", "pid", "host",
)  # fmt: skip

SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, state TEXT NOT NULL, started TEXT NOT NULL, finished TEXT,
    command TEXT NOT NULL, options TEXT NOT NULL, versions TEXT NOT NULL, device TEXT NOT NULL, seed INTEGER,
    pid INTEGER, host TEXT
);
CREATE TABLE verdicts (
    run INTEGER NOT NULL REFERENCES runs(id), case_id TEXT NOT NULL, backend TEXT NOT NULL, source TEXT NOT NULL,
    op TEXT NOT NULL, dtype TEXT NOT NULL, variant TEXT NOT NULL, stage TEXT NOT NULL, outcome TEXT NOT NULL,
    kind TEXT NOT NULL, message TEXT NOT NULL, evidence TEXT NOT NULL, seconds REAL NOT NULL, digest TEXT,
    PRIMARY KEY (run, backend, case_id)
) WITHOUT ROWID;
CREATE INDEX verdicts_by_case ON verdicts (case_id);
CREATE TABLE cases (digest TEXT PRIMARY KEY, data BLOB NOT NULL);
"""


class StoreError(InputError):
    """The file is not a store this version can use, or cannot be read or written."""


@dataclass(frozen=True)
class Run:
    """One run's record. ``state``: running, finished, interrupted, or killed (its process is gone)."""

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


def default_path() -> Path:
    """Return the store named by ``TORCHSTONE_STORE``, else ``.torchstone/results.sqlite`` in the current folder."""
    return Path(os.environ.get("TORCHSTONE_STORE") or DEFAULT_PATH)


class Store:
    """An open store; use it as a context manager. One process writes a run; any number may read.

    ``create=False`` refuses a path where nothing is, which is what every reading command wants.
    Raises StoreError for a file that is corrupt, newer, or no store at all, and for an unwritable folder.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, create: bool = True) -> None:
        self.path = Path(path) if path is not None else default_path()
        self._pending: list[tuple[Any, ...]] = []
        self._pending_cases: list[tuple[str, bytes]] = []
        self._flushed = time.monotonic()
        if self._missing(create):
            self._create()
        self._db = self._connect()
        try:
            self._check()
        except BaseException:
            self._db.close()
            raise

    def _missing(self, create: bool) -> bool:
        """Say whether the store is to be created, looking at the file before SQLite may touch it."""
        try:
            if self.path.is_dir():
                raise StoreError(f"{self.path} is a folder, not a store; give the path of a file")
            if not self.path.exists():
                if not create:
                    raise StoreError(f"no results at {self.path}: run `torchstone run` first, or give --store")
                self.path.parent.mkdir(parents=True, exist_ok=True)
                return True
            with self.path.open("rb") as file:
                head = file.read(len(MAGIC))
        except OSError as error:
            raise StoreError(f"cannot use {self.path} as a store: {error.strerror}; give another --store") from error
        if head != MAGIC:
            raise StoreError(f"{self.path} is not a torchstone store (no SQLite file); it is left as it is")
        return False

    def _create(self) -> None:
        """Make the file under another name and move it into place whole: nobody ever sees half a store."""
        new = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
        try:
            new.unlink(missing_ok=True)
            with contextlib.closing(sqlite3.connect(new)) as db:
                db.executescript(SCHEMA)
                db.execute("INSERT INTO meta VALUES ('schema_version', ?)", (str(SCHEMA_VERSION),))
                db.commit()
                db.execute("PRAGMA journal_mode=WAL")
            with contextlib.suppress(FileExistsError):  # another process was faster: its store will do
                os.link(new, self.path)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"cannot create {self.path}: {error}; give another --store") from error
        finally:
            with contextlib.suppress(OSError):
                new.unlink(missing_ok=True)

    def _connect(self) -> sqlite3.Connection:
        uri = self.path.absolute().as_uri()
        try:
            db = sqlite3.connect(f"{uri}?mode=rw", uri=True, timeout=30, isolation_level=None)
            try:
                db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
            except sqlite3.OperationalError:  # a read-only folder has no place for the WAL's side files
                db.close()
                db = sqlite3.connect(f"{uri}?mode=ro&immutable=1", uri=True, isolation_level=None)
                db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
            return db
        except sqlite3.OperationalError as error:
            raise StoreError(f"cannot open {self.path}: {error}; give another --store") from error
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{self.path} is corrupt: {error}; it is left as it is") from error

    def _check(self) -> None:
        with self._errors():
            tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if "meta" not in tables:
                raise StoreError(f"{self.path} is an SQLite file but not a torchstone store; it is left as it is")
            row = self._db.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
            version = int(row[0]) if row and str(row[0]).isdigit() else 0
            if version > SCHEMA_VERSION:
                raise StoreError(
                    f"{self.path} was written by a newer torchstone (schema {version}, this one knows "
                    f"{SCHEMA_VERSION}): upgrade torchstone, or give another --store"
                )
            if version < 1 or not {"runs", "verdicts", "cases"} <= tables:
                raise StoreError(f"{self.path} is corrupt: it lacks tables or its schema version; it is left as it is")
            if self.path.stat().st_size < CHECK_BELOW_BYTES:
                (result,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
                if result != "ok":
                    raise StoreError(f"{self.path} is corrupt: {result}; it is left as it is")
            self._db.execute("PRAGMA synchronous=NORMAL")

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as error:
            raise StoreError(f"cannot use {self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{self.path} is corrupt: {error}; it is left as it is") from error

    # -- writing ------------------------------------------------------------------------------------------------

    def new_run(
        self,
        command: str,
        options: Mapping[str, Any],
        versions: Mapping[str, str],
        *,
        device: str = "cpu",
        seed: int | None = None,
    ) -> str:
        """Open a run and return its id (``r1``, ``r2``, …). ``options`` must be JSON; they are what resuming needs."""
        row = (command, json.dumps(dict(options)), json.dumps(dict(versions)), device, seed, os.getpid())
        with self._errors():
            cursor = self._db.execute(
                "INSERT INTO runs (state, started, command, options, versions, device, seed, pid, host) "
                "VALUES ('running', ?, ?, ?, ?, ?, ?, ?, ?)",
                (_now(), *row, socket.gethostname()),
            )
        return f"r{cursor.lastrowid}"

    def reopen(self, run: str) -> None:
        """Mark a run as running in this process again. Raises StoreError while another process is running it."""
        record = self.run(run)
        if record.state == "running" and record.pid != os.getpid():
            raise StoreError(f"run {record.run} is still running (process {record.pid}); stop it before resuming it")
        with self._errors():
            self._db.execute(
                "UPDATE runs SET state = 'running', finished = NULL, pid = ?, host = ? WHERE id = ?",
                (os.getpid(), socket.gethostname(), _key(record.run)),
            )

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
                _key(run), verdict.case_id, verdict.backend, verdict.source, verdict.op, verdict.dtype,
                verdict.variant, str(verdict.stage), str(verdict.outcome), verdict.kind, verdict.message, evidence,
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

    def finish(self, run: str, state: str = "finished") -> None:
        """Write what is pending and close the run as ``finished`` or ``interrupted``."""
        self.flush()
        with self._errors():
            self._db.execute("UPDATE runs SET state = ?, finished = ? WHERE id = ?", (state, _now(), _key(run)))

    # -- reading ------------------------------------------------------------------------------------------------

    def run(self, run: str | None = None) -> Run:
        """Return the record of a run; ``None`` or ``latest`` is the newest. Raises UnknownName, StoreError."""
        with self._errors():
            ids = [f"r{n}" for (n,) in self._db.execute("SELECT id FROM runs ORDER BY id")]
            if not ids:
                raise StoreError(f"no runs in {self.path}: run `torchstone run` first, or give --store")
            name = ids[-1] if run in (None, "latest") else str(run)
            if name not in ids:
                raise UnknownName("run", name, ids, more="; `torchstone runs` lists them")
            row = self._db.execute(f"SELECT {_run_select()} FROM runs WHERE id = ?", (_key(name),)).fetchone()
        return _run(row)

    def run_list(self) -> list[Run]:
        """Return the records of all runs, oldest first."""
        with self._errors():
            return [_run(row) for row in self._db.execute(f"SELECT {_run_select()} FROM runs ORDER BY id")]

    def runs(self) -> pd.DataFrame:
        """Return one row a run, oldest first: the columns of ``RUN_COLUMNS`` (options, versions as JSON text)."""
        import pandas as pd

        rows = []
        for r in self.run_list():
            values = {name: getattr(r, name) for name in RUN_COLUMNS}
            rows.append(values | {"options": json.dumps(r.options), "versions": json.dumps(r.versions)})
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
            yield from self._db.execute(query, (key,))

    def counts(self, run: str) -> dict[str, dict[str, int]]:
        """Return, for each backend of the run, how many cases ended in each outcome."""
        self.flush()
        result: dict[str, dict[str, int]] = {}
        query = "SELECT backend, outcome, count(*) FROM verdicts WHERE run = ? GROUP BY backend, outcome"
        with self._errors():
            for backend, outcome, count in self._db.execute(query, (_key(run),)):
                result.setdefault(backend, {})[outcome] = count
        return result

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
            return [name for (name,) in self._db.execute(f"SELECT DISTINCT case_id FROM verdicts {where}", values)]

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
        try:
            return zlib.decompress(row[0]) if row else None
        except zlib.error as error:
            raise StoreError(f"{self.path} is corrupt: the bytes of case {case_id} do not unpack") from error

    def close(self) -> None:
        """Write what is pending and close the file."""
        try:
            self.flush()
        finally:
            self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _key(run: str) -> int:
    return int(run[1:])


def _run_select() -> str:
    return "id, state, started, finished, command, options, versions, device, seed, pid, host"


def _run(row: tuple[Any, ...]) -> Run:
    key, state, started, finished, command, options, versions, device, seed, pid, host = row
    if state == "running" and host == socket.gethostname() and not _alive(cast(int, pid)):
        state = "killed"
    return Run(
        f"r{key}", state, started, finished, command, json.loads(options), json.loads(versions), device, seed, pid, host
    )


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

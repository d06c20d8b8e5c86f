"""Opening a store: a file that is something else, damaged, or written by a newer torchstone is refused and left alone.

One that an older torchstone wrote is brought up to date when it is opened to write. Readers leave it as it is: they
read a private copy that has taken the steps.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from torchstone.conformance.errors import InputError
from torchstone.conformance.files import check_file
from torchstone.conformance.store import schema

DEFAULT_PATH = Path(".torchstone") / "results.sqlite"
MAGIC = b"SQLite format 3\0"
CHECK_BELOW_BYTES = 32 << 20  # a full structural check costs about a millisecond a megabyte


class StoreError(InputError):
    """The file is not a store this version can use, or cannot be read or written."""


def default_path() -> Path:
    """Return the store named by ``TORCHSTONE_STORE``, else ``.torchstone/results.sqlite`` in the current folder."""
    return Path(os.environ.get("TORCHSTONE_STORE") or DEFAULT_PATH)


def now() -> str:
    """The time as a store has it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def open_store(path: Path, *, create: bool, readonly: bool) -> sqlite3.Connection:
    """Return a connection to a store of the current schema, in autocommit mode. Raises StoreError."""
    if _missing(path, create):
        _create(path)
    db = _connect(path)
    try:
        with sqlite_errors(path):
            found = _check(db, path)
            if found < schema.SCHEMA_VERSION:
                db = _copy(db) if readonly else _migrate(db, path, found)
            db.execute("PRAGMA synchronous=NORMAL")
            if readonly:
                db.execute("PRAGMA query_only=ON")
        return db
    except BaseException:
        db.close()
        raise


def check_store(path: Path, *, create: bool = False, write: bool = False) -> None:
    """Raise StoreError, or InputError, for a path that ``open_store`` would refuse. Makes nothing, and copies nothing.

    ``write``: the store is to be written to, in ``create`` one that is not there may be made.
    """
    there = not _missing(path, create)
    if write:
        check_file(path, "--store")
    if there:
        with contextlib.closing(_connect(path)) as db, sqlite_errors(path):
            _check(db, path)


@contextlib.contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into StoreError."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise StoreError(f"cannot use {path}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path} is corrupt: {error}; it is left as it is") from error


def process_alive(pid: int | None, host: str | None) -> bool | None:
    """Whether a process runs; None when it is another machine's, so that nobody here can say."""
    if host != socket.gethostname() or not isinstance(pid, int) or pid <= 0:
        return None
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _missing(path: Path, create: bool) -> bool:
    """Say whether the store is to be created, looking at the file before SQLite may touch it."""
    try:
        if path.is_dir():
            raise StoreError(f"{path} is a folder, not a store; give the path of a file")
        if not path.exists():
            if not create:
                raise StoreError(f"no results at {path}: run `torchstone run` first, or give --store")
            return True
        with path.open("rb") as file:
            head = file.read(len(MAGIC))
    except OSError as error:
        raise StoreError(f"cannot use {path} as a store: {error.strerror}; give another --store") from error
    if head != MAGIC:
        raise StoreError(f"{path} is not a torchstone store (no SQLite file); it is left as it is")
    return False


def _create(path: Path) -> None:
    """Make the file under another name and move it into place whole: nobody ever sees half a store."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(new, isolation_level=None)) as db:
            schema.migrate(db)
            db.execute("PRAGMA journal_mode=WAL")
        with contextlib.suppress(FileExistsError):  # another process was faster: its store will do
            os.link(new, path)
    except (OSError, sqlite3.Error) as error:
        why = getattr(error, "strerror", None) or error
        raise StoreError(f"cannot use {path} as a store: {why}; give another --store") from error
    finally:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)


def _connect(path: Path) -> sqlite3.Connection:
    uri = path.absolute().as_uri()
    try:
        db = sqlite3.connect(f"{uri}?mode=rw", uri=True, timeout=30, isolation_level=None)
        try:
            db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        except sqlite3.OperationalError:  # a read-only folder has no place for the WAL's side files
            db.close()
            db = sqlite3.connect(f"{uri}?mode=ro&immutable=1", uri=True, isolation_level=None)
            db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        db.execute("PRAGMA trusted_schema=OFF")  # a store may come from anywhere: its schema runs no function
        return db
    except sqlite3.OperationalError as error:
        raise StoreError(f"cannot open {path}: {error}; give another --store") from error
    except sqlite3.DatabaseError as error:
        raise StoreError(f"{path} is corrupt: {error}; it is left as it is") from error


def _check(db: sqlite3.Connection, path: Path) -> int:
    """Return the version of what is a sound store."""
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "meta" not in tables:
        raise StoreError(f"{path} is an SQLite file but not a torchstone store; it is left as it is")
    found = schema.version(db)
    if found > schema.SCHEMA_VERSION:
        raise StoreError(
            f"{path} was written by a newer torchstone (schema {found}, this one knows {schema.SCHEMA_VERSION}): "
            "upgrade torchstone, or give another --store"
        )
    if found < 1 or schema.TABLES - tables:
        raise StoreError(f"{path} is corrupt: it lacks tables or its schema version; it is left as it is")
    if db.execute("SELECT 1 FROM sqlite_master WHERE type = 'trigger' LIMIT 1").fetchone():
        raise StoreError(f"{path} has triggers, which no torchstone writes; it is left as it is")
    if path.stat().st_size < CHECK_BELOW_BYTES:
        (result,) = db.execute("PRAGMA quick_check(1)").fetchone()
        if result != "ok":
            raise StoreError(f"{path} is corrupt: {result}; it is left as it is")
    return found


def _copy(db: sqlite3.Connection) -> sqlite3.Connection:
    """Return a copy with the current schema, which nobody else sees and which is gone when it is closed."""
    copy = sqlite3.connect("", isolation_level=None)
    try:
        db.backup(copy)
        schema.migrate(copy)
    except BaseException:
        copy.close()
        raise
    db.close()
    return copy


def _migrate(db: sqlite3.Connection, path: Path, found: int) -> sqlite3.Connection:
    for run, pid, host in schema.in_use(db):
        if process_alive(pid, host):
            raise StoreError(
                f"{path} has schema {found}, and run r{run} (process {pid}) is still writing it: wait for it to end, "
                "or give another --store"
            )
    try:
        schema.migrate(db)
    except sqlite3.OperationalError as error:
        raise StoreError(
            f"cannot bring {path} from schema {found} to {schema.SCHEMA_VERSION}: {error}; it is left as it is. "
            "It can be read here; to write, make it writable, or give another --store"
        ) from error
    return db

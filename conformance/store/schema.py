"""The store's tables, as the numbered steps that made them: a new store takes all of them, an older one the rest.

A step is never changed once it has been released; a later need is a later step. A step may add, and may not alter
what the columns that are there mean: a reader of this version sees every older store through the same steps.
"""

from __future__ import annotations

import sqlite3

STEPS: tuple[tuple[int, str, tuple[str, ...]], ...] = (
    (
        1,
        "runs, verdicts, and the cases that failed",
        (
            "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
            "INSERT INTO meta VALUES ('schema_version', '0')",
            """CREATE TABLE runs (
                id INTEGER PRIMARY KEY AUTOINCREMENT, state TEXT NOT NULL, started TEXT NOT NULL, finished TEXT,
                command TEXT NOT NULL, options TEXT NOT NULL, versions TEXT NOT NULL, device TEXT NOT NULL,
                seed INTEGER, pid INTEGER, host TEXT
            )""",
            """CREATE TABLE verdicts (
                run INTEGER NOT NULL REFERENCES runs(id), case_id TEXT NOT NULL, backend TEXT NOT NULL,
                source TEXT NOT NULL, op TEXT NOT NULL, dtype TEXT NOT NULL, variant TEXT NOT NULL,
                stage TEXT NOT NULL, outcome TEXT NOT NULL, kind TEXT NOT NULL, message TEXT NOT NULL,
                evidence TEXT NOT NULL, seconds REAL NOT NULL, digest TEXT,
                PRIMARY KEY (run, backend, case_id)
            ) WITHOUT ROWID""",
            "CREATE INDEX verdicts_by_case ON verdicts (case_id)",
            "CREATE TABLE cases (digest TEXT PRIMARY KEY, data BLOB NOT NULL)",
        ),
    ),
    (
        2,
        "why a backend could not be run to the end (a JSON object), and which verdicts hold a case",
        (
            "ALTER TABLE runs ADD COLUMN errors TEXT NOT NULL DEFAULT '{}'",
            "CREATE INDEX verdicts_by_digest ON verdicts (digest) WHERE digest IS NOT NULL",
        ),
    ),
    (
        3,
        "the machine that a run was made on (a JSON object of texts, empty where nobody noted it)",
        ("ALTER TABLE runs ADD COLUMN machine TEXT NOT NULL DEFAULT '{}'",),
    ),
    (
        4,
        "fuzzing campaigns (what each did is a JSON object), and the reduced cases of what they found",
        (
            """CREATE TABLE campaigns (
                backend TEXT NOT NULL, folder TEXT NOT NULL, updated TEXT NOT NULL, command TEXT NOT NULL,
                record TEXT NOT NULL, PRIMARY KEY (backend, folder)
            )""",
            """CREATE TABLE findings (
                backend TEXT NOT NULL, folder TEXT NOT NULL, name TEXT NOT NULL, data BLOB NOT NULL,
                PRIMARY KEY (backend, folder, name)
            )""",
        ),
    ),
)
SCHEMA_VERSION = len(STEPS)
TABLES = frozenset({"meta", "runs", "verdicts", "cases"})


def version(db: sqlite3.Connection) -> int:
    """Return the schema version a store says it has, 0 when it says none."""
    row = db.execute("SELECT value FROM meta WHERE key = 'schema_version'").fetchone()
    return int(row[0]) if row and str(row[0]).isascii() and str(row[0]).isdigit() else 0


def migrate(db: sqlite3.Connection, steps: tuple[tuple[int, str, tuple[str, ...]], ...] = STEPS) -> None:
    """Take the steps the store has not taken, all in one transaction: it ends up at the last of them or as it was.

    ``db`` is in autocommit mode (``isolation_level=None``). No copy is made first, because SQLite's journal is one: a
    process that dies on the way, or a full disk, leaves the old schema and every row.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        fresh = not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone()
        found = 0 if fresh else version(db)  # read again under the lock: another process may have been faster
        for number, _, statements in steps:
            if number > found:
                for statement in statements:
                    db.execute(statement)
                db.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (str(number),))
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def in_use(db: sqlite3.Connection) -> list[tuple[int, int | None, str | None]]:
    """Return (run, process, host) of the runs marked as running; any version has these columns."""
    return db.execute("SELECT id, pid, host FROM runs WHERE state = 'running'").fetchall()

"""A store of an older schema: brought up to date by a writer, left alone by a reader, whole whatever happens."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from torchstone.conformance.store import SCHEMA_VERSION, Store, StoreError, opening, schema

from .test_store import new_run, verdict

VERSION_1 = (Path(__file__).parent / "store_v1.sql").read_text()


def of_version_1(path: Path, more: str = "") -> Path:
    db = sqlite3.connect(path)
    db.executescript(VERSION_1 + more)
    db.execute("PRAGMA journal_mode=WAL")
    db.close()
    return path


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return of_version_1(tmp_path / "old.sqlite")


def dump(path: Path) -> list[str]:
    db = sqlite3.connect(path)
    lines = list(db.iterdump())
    db.close()
    return lines


def holds_what_it_held(store: Store) -> None:
    assert [run.state for run in store.run_list()] == ["finished", "interrupted"]
    assert store.run("r1").options["ops"] == ["add"] and store.run("r1").errors == {} == store.run("r1").machine
    assert store.counts("r1") == {"eager": {"pass": 1}, "linalg": {"pass": 1, "mismatch": 1}}
    assert store.case_bytes("opinfo:add:float32:1", "r1") == b"a case" * 20
    rows = list(store.iter_verdicts("r2"))
    assert len(rows) == 1 and rows[0][9] == "signal SIGSEGV é"


def test_the_steps_are_numbered_without_a_gap():
    assert [number for number, _, _ in schema.STEPS] == list(range(1, SCHEMA_VERSION + 1))


def test_a_reader_sees_the_current_schema_and_changes_nothing(old):
    before = old.read_bytes()
    with Store(old, readonly=True) as store:
        holds_what_it_held(store)
        with pytest.raises(StoreError, match="readonly"):
            store.finish("r1")
    assert old.read_bytes() == before


def test_a_writer_brings_it_up_to_date_and_keeps_everything(old, tmp_path):
    with Store(old) as store:
        holds_what_it_held(store)
        run = new_run(store)
        assert run == "r3"
        store.record(run, verdict(0))
        store.finish(run, "finished", {"linalg": "no worker can start"})
    with Store(old, readonly=True) as store:
        assert store.run("r3").errors == {"linalg": "no worker can start"}
    with Store(tmp_path / "new.sqlite"):
        pass
    tables = "SELECT name, replace(replace(sql, ' ', ''), char(10), '') FROM sqlite_master ORDER BY name"
    made, migrated = (sqlite3.connect(path).execute(tables).fetchall() for path in (tmp_path / "new.sqlite", old))
    assert made == migrated, "a store that was brought up to date differs from a new one"


def test_a_step_that_fails_leaves_the_old_store(old, monkeypatch):
    before = dump(old)
    broken = (SCHEMA_VERSION + 1, "broken", ("CREATE TABLE half (x)", "INSERT INTO nowhere VALUES (1)"))
    monkeypatch.setattr(schema, "STEPS", (*schema.STEPS, broken))
    monkeypatch.setattr(schema.migrate, "__defaults__", ((*schema.STEPS[:-1], broken),))
    monkeypatch.setattr(schema, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
    with pytest.raises(StoreError, match=f"cannot bring .* from schema 1 to {SCHEMA_VERSION + 1}: no such table"):
        Store(old)
    assert dump(old) == before


def test_a_store_that_an_older_torchstone_still_writes_is_not_changed_under_it(tmp_path):
    import os
    import socket

    running = f"UPDATE runs SET state = 'running', pid = {os.getppid()}, host = '{socket.gethostname()}' WHERE id = 2;"
    path = of_version_1(tmp_path / "busy.sqlite", running)
    with pytest.raises(StoreError, match=f"schema 1, and run r2 \\(process {os.getppid()}\\) is still writing it"):
        Store(path)
    with Store(path, readonly=True) as store:
        assert store.run("r2").state == "running"


def test_a_store_that_cannot_be_written_says_so_and_can_be_read(old, monkeypatch):
    connect = opening._connect

    def read_only(path):
        connect(path).close()
        return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True, isolation_level=None)

    monkeypatch.setattr(opening, "_connect", read_only)
    with pytest.raises(StoreError, match=r"schema 1 to \d+: attempt to write a readonly database.* can be read here"):
        Store(old)
    with Store(old, readonly=True) as store:
        holds_what_it_held(store)


@pytest.mark.parametrize(
    "damage, message",
    [
        ("UPDATE runs SET options = 'nothing';", "the record of run r1 does not read"),
        ("UPDATE runs SET versions = '[]';", "the record of run r1 is not a record"),
        ("UPDATE verdicts SET outcome = '</script>';", "a row that is no verdict"),
        ("UPDATE verdicts SET stage = 'nowhere';", "a row that is no verdict"),
        ("UPDATE verdicts SET message = x'00ff';", "a row that is no verdict"),
        ("CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM cases; END;", "has triggers"),
        ("DROP TABLE runs; CREATE VIEW runs AS SELECT 1 AS id;", "lacks tables"),
        ("UPDATE meta SET value = '١';", "lacks tables or its schema version"),
    ],
)
def test_a_store_made_to_harm_is_refused(tmp_path, damage, message):
    path = of_version_1(tmp_path / "bad.sqlite", damage)
    with pytest.raises(StoreError, match=message), Store(path, readonly=True) as store:
        list(store.iter_verdicts("r1"))


def test_a_case_that_unpacks_to_more_than_memory_is_refused(old, monkeypatch):
    monkeypatch.setattr("torchstone.conformance.store.untrusted.MAX_CASE_BYTES", 100)
    with Store(old) as store:
        assert store.case_bytes("opinfo:add:float32:1", "r2") == b"another case"
        with pytest.raises(StoreError, match="cut off or past 100"):
            store.case_bytes("opinfo:add:float32:1", "r1")


def test_a_resumed_run_starts_without_the_old_errors(tmp_path):
    with Store(tmp_path / "s.sqlite") as store:
        run = new_run(store)
        store.finish(run, "finished", {"eager": "gone"})
        assert json.loads(store.runs()["errors"][0]) == {"eager": "gone"}
        store.reopen(run)
        assert store.run(run).errors == {}

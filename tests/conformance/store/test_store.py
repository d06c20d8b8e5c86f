"""The store keeps what it is given, refuses what it cannot read, and never overwrites it."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys

import pytest

from torchstone.conformance.errors import UnknownName
from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.store import SCHEMA_VERSION, VERDICT_COLUMNS, Store, StoreError


def verdict(index: int = 0, outcome: Outcome = Outcome.PASS, backend: str = "eager", **more) -> Verdict:
    values = {"case_id": f"opinfo:add:float32:{index}", "op": "add"} | more
    return Verdict(backend=backend, source="opinfo", dtype="float32", variant="default", stage=Stage.COMPARE,
                   outcome=outcome, **values)  # fmt: skip


@pytest.fixture
def path(tmp_path):
    return tmp_path / "sub" / "results.sqlite"


def new_run(store: Store) -> str:
    return store.new_run("torchstone run", {"backends": ["eager"], "limit": None}, {"torch": "2"}, seed=7)


def test_round_trip(path):
    with Store(path) as store:
        run = new_run(store)
        store.record(run, verdict(0))
        store.record(
            run, verdict(1, Outcome.MISMATCH, kind="value", message="é\n", evidence={"ulp": 3.5}), b"case" * 99
        )
        store.record(run, verdict(1, Outcome.CRASH, backend="linalg"), b"case" * 99)
        store.finish(run)
    with Store(path, create=False) as store:
        record = store.run(run)
        assert (record.state, record.options, record.versions) == (
            "finished", {"backends": ["eager"], "limit": None}, {"torch": "2"},
        )  # fmt: skip
        frame = store.verdicts(run)
        assert tuple(frame.columns) == VERDICT_COLUMNS
        assert list(frame["outcome"]) == ["pass", "mismatch", "crash"]
        assert frame["message"][1] == "é\n" and json.loads(frame["evidence"][1]) == {"ulp": 3.5}
        assert store.case_bytes("opinfo:add:float32:1") == b"case" * 99
        assert store.case_bytes("opinfo:add:float32:0") is None
        assert store.counts(run) == {"eager": {"pass": 1, "mismatch": 1}, "linalg": {"crash": 1}}
        assert store.done(run, "eager") == {"opinfo:add:float32:0", "opinfo:add:float32:1"}
        assert list(store.runs()["run"]) == ["r1"]
        assert store.run("latest").run == store.run().run == "r1"


def test_a_verdict_replaces_the_earlier_one_of_its_run_only(path):
    with Store(path) as store:
        first, second = new_run(store), new_run(store)
        store.record(first, verdict(0, Outcome.CRASH), b"one")
        store.record(second, verdict(0, Outcome.CRASH), b"two")
        store.record(second, verdict(0, Outcome.MISMATCH), b"three")
        assert store.counts(first) == {"eager": {"crash": 1}}
        assert store.counts(second) == {"eager": {"mismatch": 1}}
        assert store.case_bytes("opinfo:add:float32:0") == b"three"
        assert store.case_bytes("opinfo:add:float32:0", first) == b"one"


def test_passing_ops_want_every_tested_sample(path):
    with Store(path) as store:
        run = new_run(store)
        for op, index, outcome in [
            ("add", 0, "pass"), ("add", 1, "pass"), ("sub", 0, "pass"), ("sub", 1, "unsupported"),
            ("mul", 0, "pass"), ("mul", 1, "untested"), ("sin", 0, "untested"),
        ]:  # fmt: skip
            store.record(run, verdict(index, Outcome(outcome), op=op, case_id=f"opinfo:{op}:float32:{index}"))
        assert store.passing_ops(run) == {"eager": (2, 3)}
        assert store.untested_ops(run) == {"eager": ["sin"]}


def test_half_a_second_of_journal_is_all_that_a_kill_can_lose(path):
    script = f"""
import os, sys, time
sys.path.insert(0, {os.path.dirname(__file__)!r})
from test_store import Store, new_run, verdict
now = 100.0
time.monotonic = lambda: now
store = Store({str(path)!r})
run = new_run(store)
for index in range(5):
    store.record(run, verdict(index))
    now += 0.3
    store.tick()
os.kill(os.getpid(), 9)
"""
    subprocess.run([sys.executable, "-c", script], check=False)
    with Store(path, create=False) as store:
        assert len(store.verdicts()) == 4, "two at a time are written: the fifth is lost"
        assert store.run().state == "killed"
        store.reopen("r1")
        assert store.run().state == "running"


def test_a_running_run_cannot_be_taken_over(path):
    with Store(path) as store:
        run = new_run(store)
        store._db.execute("UPDATE runs SET pid = ?", (os.getppid(),))
        with pytest.raises(StoreError, match=f"still running \\(process {os.getppid()}\\)"):
            store.reopen(run)


def test_unknown_run_is_suggested(path):
    with Store(path) as store:
        for _ in range(12):
            new_run(store)
        with pytest.raises(UnknownName, match=r'unknown run "r13" \(did you mean "r\d+"\?\)'):
            store.run("r13")


def refused(path, match: str, **options) -> None:
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(StoreError, match=match):
        Store(path, **options)
    assert (path.read_bytes() if path.is_file() else None) == before, "the file was changed"


def test_what_is_no_store_is_refused_and_left_alone(tmp_path):
    refused(tmp_path / "none.sqlite", "no results at", create=False)
    refused(tmp_path, "is a folder")
    text = tmp_path / "notes.txt"
    text.write_text("my notes")
    refused(text, "not a torchstone store")
    refused(text / "results.sqlite", "cannot use .* as a store")
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE songs (name TEXT)")
    db.close()
    refused(other, "not a torchstone store")


def test_a_newer_store_is_refused_and_left_alone(path):
    with Store(path) as store:
        store._db.execute("UPDATE meta SET value = ?", (str(SCHEMA_VERSION + 1),))
    refused(path, f"newer torchstone \\(schema {SCHEMA_VERSION + 1}")


@pytest.mark.parametrize("damage", ["truncated", "scribbled", "tables lost"])
def test_a_corrupt_store_is_refused_and_left_alone(path, damage):
    with Store(path) as store:
        run = new_run(store)
        for index in range(2000):
            store.record(run, verdict(index, message="m" * 50))
        store.finish(run)
        if damage == "tables lost":
            store._db.execute("DROP TABLE verdicts")
    data = bytearray(path.read_bytes())
    if damage == "truncated":
        data = data[: len(data) // 2]
    elif damage == "scribbled":
        data[4096:60000] = b"\xa5" * (60000 - 4096)
    path.write_bytes(data)
    refused(path, "corrupt")


def test_an_unwritable_place_is_an_error(tmp_path):
    with pytest.raises(StoreError, match=r"cannot (use|open)"):
        Store("/proc/nowhere/results.sqlite")

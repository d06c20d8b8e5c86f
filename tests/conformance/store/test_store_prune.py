"""Pruning removes the runs it was asked to, their cases that nobody else has, and nothing else."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.store import Store, StoreError, prune, runs_to_prune

from .test_store import new_run, verdict


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "results.sqlite") as store:
        for only in (b"one", b"two", b"three"):
            run = new_run(store)
            store.record(run, verdict(0, Outcome.CRASH), b"shared")
            store.record(run, verdict(1, Outcome.ERROR), only + os.urandom(200_000))
            store.finish(run)
        yield store


def ids(runs) -> list[str]:
    return [run.run for run in runs]


def test_choose(store):
    started = "UPDATE runs SET started = ? WHERE id = ?"
    store._db.executemany(started, [("2020-01-01T00:00:00+00:00", 1), ("2020-01-01T00:00:00", 2)])
    runs = store.run_list()
    assert ids(runs_to_prune(runs, keep=1)) == ["r1", "r2"] and ids(runs_to_prune(runs, keep=9)) == []
    assert ids(runs_to_prune(runs, older_than=timedelta(days=30))) == ["r1", "r2"]
    assert ids(runs_to_prune(runs, keep=2, older_than=timedelta(days=30))) == ["r1"]
    store._db.execute(started, ("no date", 1))
    assert ids(runs_to_prune(store.run_list(), older_than=timedelta(days=30))) == ["r2"]


def test_prune_gives_back_the_bytes_of_cases_that_nobody_has(store):
    done = prune(store, [store.run("r1"), store.run("r2")])
    assert (done.runs, done.verdicts, done.cases) == (("r1", "r2"), 4, 2)
    assert done.freed and done.freed > 350_000 and 200_000 < store.path.stat().st_size < 300_000
    assert ids(store.run_list()) == ["r3"] and len(list(store.iter_verdicts("r3"))) == 2
    assert store.case_bytes("opinfo:add:float32:0") == b"shared"
    assert new_run(store) == "r4", "the number of a run that was pruned was given out again"


def test_a_running_run_is_refused_and_nothing_goes(store):
    store._db.execute("UPDATE runs SET state = 'running', pid = ? WHERE id = 2", (os.getppid(),))
    with pytest.raises(StoreError, match=f"run r2 is still running \\(process {os.getppid()}\\); nothing was pruned"):
        prune(store, store.run_list(), force=True)
    store._db.execute("UPDATE runs SET host = 'elsewhere' WHERE id = 2")
    with pytest.raises(StoreError, match=r"left as running by process .* on 'elsewhere'"):
        prune(store, store.run_list())
    assert ids(store.run_list()) == ["r1", "r2", "r3"] and len(list(store.iter_verdicts("r1"))) == 2
    assert prune(store, [store.run("r1")]).freed is None, "the file was compacted under a writer"
    assert prune(store, store.run_list(), force=True).runs == ("r2", "r3")


def test_a_killed_run_may_go(store):
    store._db.execute("UPDATE runs SET state = 'running', pid = ? WHERE id = 2", (2**22 + 1,))
    assert store.run("r2").state == "killed" and prune(store, [store.run("r2")]).runs == ("r2",)

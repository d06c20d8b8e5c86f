"""``torchstone run``, ``runs`` and ``replay`` end to end: what is kept, what is resumed, what the exit code says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from torchstone import cli
from torchstone.conformance.store import Store

pytestmark = pytest.mark.usefixtures("fork_server")
TORTURE = Path(__file__).parents[1] / "conformance" / "helpers"
COMMAND = [sys.executable, "-m", "torchstone"]


def invoke(capfd, *args: object) -> tuple[int, str, str]:
    code = cli.invoke([str(arg) for arg in args])
    out, err = capfd.readouterr()
    return code, out, err


def test_run_then_list_then_replay(capfd, tmp_path):
    store = tmp_path / "results.sqlite"
    code, out, err = invoke(capfd, "run", "-b", "eager", "--op", "add", "--op", "mT", "--limit", 2, "--store", store)
    assert code == 0, out + err
    assert "eager" in out and "2 of 2" in out and f"torchstone report --run r1 --store {store}" in out
    code, out, _ = invoke(capfd, "runs", "--store", store, "--format", "json")
    (row,) = json.loads(out)
    assert code == 0 and (row["run"], row["state"], row["cases"]) == ("r1", "finished", 4)
    code, out, _ = invoke(capfd, "runs", "--store", store, "--format", "csv")
    assert out.splitlines()[0].startswith("run,state,") and len(out.splitlines()) == 2
    code, out, _ = invoke(capfd, "replay", "opinfo:add:float32:1", "-b", "eager", "--store", store)
    assert code == 0 and "verdict  pass" in out
    with Store(store) as db:
        assert {"torch", "torchstone", "python"} <= set(db.run("r1").versions)


def test_without_library_calls_the_backend_is_another_one(capfd, tmp_path):
    store, ops = tmp_path / "results.sqlite", ("--op", "linalg.det", "--op", "mT", "--limit", 1, "--store")
    assert invoke(capfd, "run", "-b", "linalg", *ops, store)[0] == 0
    assert invoke(capfd, "run", "-b", "linalg", "--no-library-calls", *ops, store)[0] == 0
    with Store(store) as db:
        rows = pd.concat([db.verdicts("r1"), db.verdicts("r2")]).set_index(["backend", "op"])
    strict = "linalg+no-library-calls"
    assert rows.outcome["linalg", "mT"] == rows.outcome[strict, "mT"] == "pass"
    assert rows.outcome["linalg", "linalg.det"] == "fallback"
    assert rows.outcome[strict, "linalg.det"] == "unsupported"
    assert "aten._linalg_det.default" in str(rows.evidence["linalg", "linalg.det"])
    assert "eager" not in str(rows.evidence["linalg", "mT"])


def test_failures_set_the_exit_code_and_replay_from_the_store(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(TORTURE)
    store = tmp_path / "results.sqlite"
    backend = "faulty_backend:Faulty"
    code, out, _ = invoke(capfd, "run", "-b", backend, "--op", "sub", "--limit", 3, "--store", store)
    assert code == 1 and "mismatch" in out
    with Store(store) as db:
        failing = next(row for row in db.iter_verdicts() if row[7] == "mismatch")
        assert db.case_bytes(failing[0]) is not None
    code, out, _ = invoke(capfd, "replay", failing[0], "-b", backend, "--store", store)
    assert code == 1 and "verdict  mismatch" in out and "torch.sub" in out
    saved = tmp_path / "saved.case"
    with Store(store) as db:
        saved.write_bytes(db.case_bytes(failing[0]) or b"")
    assert invoke(capfd, "replay", saved, "-b", backend)[0] == 1
    assert invoke(capfd, "replay", saved, "-b", "eager")[0] == 0


def wait_for(condition, what: str, seconds: float = 120.0):
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)
    return value


def journalled(store: Path) -> int:
    if not store.exists():
        return 0
    with Store(store, create=False) as db:
        return sum(sum(counts.values()) for counts in db.counts("r1").values())


def children(pid: int) -> list[str]:
    out = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True, check=False)
    return out.stdout.split()


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.torture)])
def test_an_interrupted_run_keeps_its_results_and_resumes(capfd, tmp_path, number, monkeypatch):
    monkeypatch.chdir(TORTURE)
    store, temp = tmp_path / "results.sqlite", tmp_path / "temp"
    temp.mkdir()
    cases = ["--source", "models", "--op", "bert", "--op", "gpt", "--op", "lstm", "--op", "mlp", "--dtype", "float32"]
    args = ["run", "-b", "faulty_backend:Stops", *cases, "--jobs", "1", "--store", str(store)]
    env = os.environ | {"TMPDIR": str(temp), "FAULTY_ANSWERS": "2"}
    process = subprocess.Popen([*COMMAND, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    wait_for(lambda: journalled(store) == 2, "two verdicts; the third case hangs")
    workers = children(process.pid)
    assert workers
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    wait_for(lambda: not any(Path(f"/proc/{pid}/stat").exists() for pid in workers), "the workers' end", 10)
    kept = journalled(store)
    assert kept == 2
    if number == signal.SIGINT:
        assert process.returncode == 130 and "Traceback" not in err
        assert err.endswith(f"torchstone run --resume r1 --store {store} --backend faulty_backend:Stops\n")
        assert list(temp.iterdir()) == []
    with Store(store) as db:
        assert db.run("r1").state == ("interrupted" if number == signal.SIGINT else "killed")
        before = {row[0]: row[11] for row in db.iter_verdicts("r1")}
    monkeypatch.setenv("FAULTY_ANSWERS", "-1")
    code, out, _ = invoke(capfd, "run", "--resume", "r1", "--store", store, "--backend", "faulty_backend:Stops")
    assert code == 0 and "r1" in out
    with Store(store) as db:
        after = {row[0]: row[11] for row in db.iter_verdicts("r1")}
        assert db.run("r1").state == "finished" and len(after) > kept
    assert {name: after[name] for name in before} == before, "a finished case was tried again"


def test_a_backend_that_cannot_start_costs_its_own_cases_only(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(TORTURE)
    store = tmp_path / "results.sqlite"
    raises, aborts = "faulty_backend:DiesInWorker", "torture_import:abort"
    code, _, err = invoke(
        capfd, "run", "-b", raises, "-b", aborts, "-b", "eager", "--op", "mT", "--limit", 1, "--store", store
    )
    assert code == 1 and f"no worker of backend {raises} can start: SystemExit: no such device" in err
    assert f'warning: backend "{aborts}": killed by SIGABRT: LLVM ERROR: the last words, as it was loaded' in err
    with Store(store) as db:
        assert db.counts("r1") == {aborts: {"crash": 1}, "eager": {"pass": 1}}

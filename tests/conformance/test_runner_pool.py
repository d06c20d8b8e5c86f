"""The pool under torture: whatever a backend does to its worker is that case's verdict and nobody else's."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torture_cases import DEEDS, torture_case

from torchstone.conformance.errors import HarnessError
from torchstone.conformance.runner import Pool
from torchstone.conformance.verdict import Outcome, Stage

HERE = Path(__file__).parent
BACKEND = "torture_backend:Torture"


@pytest.fixture(autouse=True)
def _beside_the_backend(monkeypatch):
    monkeypatch.chdir(HERE)


def leftovers() -> list[str]:
    """Worker processes of this test process."""
    out = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "args="], capture_output=True, text=True, check=False)
    return [line for line in out.stdout.splitlines() if "runner.worker" in line]


# What each deed comes to, alone, and a word that the message or the evidence must hold.
ENDS = {
    "obey": (Outcome.PASS, ""),
    "segfault": (Outcome.CRASH, "SIGSEGV"),
    "abort": (Outcome.CRASH, "LLVM ERROR: the last words"),
    "os_exit": (Outcome.CRASH, "exited with code 7"),
    "sys_exit": (Outcome.CRASH, "exited with code 3"),
    "hang_in_c": (Outcome.TIMEOUT, "in hang_in_c"),
    "print": (Outcome.PASS, ""),
    "raise": (Outcome.ERROR, "ZeroDivisionError"),
    "wrong_dtype": (Outcome.MISMATCH, "dtype"),
    "hog": (Outcome.OOM, "resident memory"),
    "cannot_allocate": (Outcome.OOM, "MemoryError"),
    "close_channel": (Outcome.CRASH, ""),
    "write_everywhere": (Outcome.CRASH, ""),
    "unsupported": (Outcome.UNSUPPORTED, "no such kernel"),
    "fail": (Outcome.ERROR, "pass pipeline failed"),
    "kill_by_hand": (Outcome.CRASH, "killed by SIGKILL"),
}


def test_each_deed_costs_its_own_case_only(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    cases = []
    for index, deed in enumerate(ENDS):
        cases += [torture_case("obey", 100 + index), torture_case(deed, index)]
    with Pool(BACKEND, jobs=2, timeout=10, memory=3 << 29, retry=False) as pool:
        verdicts = {v.case_id: v for v in pool.verdicts(cases)}
        assert len(verdicts) == len(cases)
        for index, (deed, (outcome, word)) in enumerate(ENDS.items()):
            verdict = verdicts[torture_case(deed, index).id]
            told = verdict.message + str(verdict.evidence) + verdict.kind
            assert verdict.outcome is outcome, f"{deed}: {verdict}"
            assert word in told, f"{deed}: {verdict}"
            if deed in ("segfault", "abort", "os_exit", "sys_exit", "hang_in_c", "hog"):  # others live to the compare
                assert verdict.stage is Stage.RUN, f"{deed}: {verdict}"
            assert verdict.backend in ("torture", BACKEND)
            assert verdicts[torture_case("obey", 100 + index).id].outcome is Outcome.PASS
    assert leftovers() == []
    assert list(tmp_path.iterdir()) == []


def test_cases_compiled_together_cost_each_its_own():
    deeds = ["obey", "raise", "unsupported", "abort", "obey", "hang_in_c", "os_exit", "wrong_dtype"]
    cases = [torture_case(deed, index) for index, deed in enumerate(deeds)]
    with Pool("torture_backend:Together", jobs=1, timeout=3, retry=False) as pool:
        pool.verdict(torture_case("obey", 99))  # the worker is ready: what follows arrives together
        verdicts = {v.op + v.case_id[-2:]: v for v in pool.verdicts(cases)}
    assert {key: str(v.outcome) for key, v in verdicts.items()} == {
        "obey:0": "pass", "raise:1": "error", "unsupported:2": "unsupported", "abort:3": "crash", "obey:4": "pass",
        "hang_in_c:5": "timeout", "os_exit:6": "crash", "wrong_dtype:7": "pass",
    }  # fmt: skip
    assert verdicts["abort:3"].stage is Stage.COMPILE
    assert "the last words" in str(verdicts["abort:3"].evidence)


def test_cases_that_arrive_together_are_compiled_together():
    cases = [torture_case("raise" if index == 5 else "obey", index) for index in range(24)]
    with Pool("torture_backend:Together", jobs=1) as pool:
        pool.verdict(torture_case("obey", 99))
        verdicts = list(pool.verdicts(cases))
    assert sorted(str(v.outcome) for v in verdicts) == ["error"] + ["pass"] * 23
    assert max(v.evidence.get("together", 0) for v in verdicts) > 2


def test_retry_tells_flaky_from_broken(tmp_path, monkeypatch):
    monkeypatch.setenv("TORTURE_MARK", str(tmp_path / "mark"))
    with Pool(BACKEND, jobs=1, timeout=20) as pool:
        cases = [
            torture_case(deed, i) for i, deed in enumerate(["crash_once", "obey", "abort", "kill_by_hand", "obey"])
        ]
        verdicts = sorted(pool.verdicts(cases), key=lambda v: v.case_id.rpartition(":")[2])
        assert [v.outcome for v in verdicts] == ["flaky", "pass", "crash", "crash", "pass"]
        flaky, _, broken, killed, _ = verdicts
        assert flaky.message == "crash (killed by SIGABRT), then pass alone in a fresh worker"
        assert broken.evidence["first"] == "killed by SIGABRT"
        assert "first" not in killed.evidence, "a SIGKILL comes from outside: it is no reason to try again"
        # one worker, then a new one after each of: crash_once, abort, abort again (to try eager alone), kill
        assert pool.spawned == 5


@pytest.mark.parametrize("backend", ["EagerDies", "EagerDiesOften"])
def test_what_kills_eager_is_not_the_backends_fault(backend):
    case = torture_case("obey")
    with Pool(f"torture_backend:{backend}", jobs=1, timeout=20) as pool:
        verdict = pool.verdict(case)
    assert verdict.outcome is Outcome.UNTESTED and "eager itself: killed by SIGABRT" in verdict.message


def test_a_worker_killed_mid_case_is_one_crash():
    with Pool(BACKEND, jobs=1, timeout=30) as pool:
        got = []
        results = pool.verdicts(torture_case("sleep", i) for i in range(4))
        got.append(next(results))
        slot = pool._slots[0]
        assert slot.worker is not None and slot.sent
        os.kill(slot.worker.pid, 9)
        got += results
        assert sorted(v.outcome for v in got) == ["crash", "pass", "pass", "pass"]


def test_workers_that_die_at_start_are_an_error_not_a_loop():
    with (
        Pool("torture_backend:DiesAtStart") as pool,
        pytest.raises(HarnessError, match=r"the last 3 died at once .*SIGABRT"),
    ):
        pool.verdict(torture_case("obey"))
    with Pool("torture_backend:Refuses") as pool, pytest.raises(HarnessError, match="its library is missing"):
        pool.verdict(torture_case("obey"))
    with Pool("torture_backend:Missing") as pool, pytest.raises(HarnessError, match="Missing"):
        pool.verdict(torture_case("obey"))
    assert leftovers() == []


def test_nested_callers_share_the_workers_and_an_abandoned_one_disturbs_nobody():
    with Pool(BACKEND, jobs=2) as pool:
        seen = []
        for verdict in pool.verdicts(torture_case("obey", i) for i in range(10)):
            seen.append(verdict.case_id)
            if len(seen) == 3:
                assert pool.verdict(torture_case("raise", 50)).outcome is Outcome.ERROR
                for inner in pool.verdicts(torture_case("obey", 60 + i) for i in range(5)):
                    assert inner.outcome is Outcome.PASS
                    break
        assert sorted(seen) == sorted(torture_case("obey", i).id for i in range(10))
        assert pool.verdict(torture_case("obey")).outcome is Outcome.PASS
        assert pool.spawned == 2


def test_workers_are_renewed_after_their_share_of_cases():
    with Pool(BACKEND, jobs=1, recycle=4) as pool:
        assert {v.outcome for v in pool.verdicts(torture_case("obey", i) for i in range(10))} == {Outcome.PASS}
        assert pool.spawned in (2, 3)


def test_large_inputs_pass_through():
    big = torture_case("obey", tensor=torch.zeros(3 << 20))
    with Pool(BACKEND, jobs=1) as pool:
        assert [v.outcome for v in pool.verdicts([big, big, big])] == [Outcome.PASS] * 3


def test_workers_die_with_their_parent(tmp_path):
    script = f"""
import os, sys
sys.path.insert(0, {str(HERE)!r})
from torture_cases import torture_case
from torchstone.conformance.runner import Pool
pool = Pool({BACKEND!r}, jobs=1)
assert pool.verdict(torture_case("obey")).outcome == "pass"
print(pool._slots[0].worker.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    env = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=env, check=False, cwd=HERE
    )
    assert done.returncode == -9, done.stderr
    worker = Path(f"/proc/{done.stdout.strip()}/stat")
    deadline = time.monotonic() + 10
    while worker.exists() and worker.read_text().split()[2] != "Z":
        assert time.monotonic() < deadline, "the worker outlived its parent"
        time.sleep(0.05)


def test_deeds_are_all_known():
    assert set(ENDS) <= set(DEEDS)

"""The pool: scheduling, retries, batches, workers that come and go. What backends do to it is in ``test_torture``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torture_backend import HANGING
from torture_cases import let_time_be_up, torture_case

from torchstone.conformance.backends.registry import preloadable
from torchstone.conformance.errors import HarnessError, InputError
from torchstone.conformance.execution.verdict import Outcome, Stage
from torchstone.conformance.runner import pool as pool_module
from torchstone.conformance.runner.cleanup import PREFIX, LockedFolder, remove_abandoned
from torchstone.conformance.runner.frames import encode_frame
from torchstone.conformance.runner.interpreter import Interpreter
from torchstone.conformance.runner.pool import Pool
from torchstone.conformance.runner.preflight import preflight
from torchstone.conformance.runner.retry import case_labels
from torchstone.conformance.runner.slot import WorkerSlot
from torchstone.conformance.runner.worker_process import _ENVIRONMENT, ForkServerClient

HERE = Path(__file__).parents[1] / "helpers"
BACKEND = "torture_backend:Torture"


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """Where all temporary files go, and the one fork server that the pools of this module share."""
    folder = tmp_path_factory.mktemp("pools")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setenv("TORTURE_MARK", str(folder / "mark"))
        patch.setattr("tempfile.tempdir", str(folder))
        patch.chdir(HERE)
        with Pool(BACKEND) as pool:
            assert pool.verdict(torture_case("obey")).outcome is Outcome.PASS
            yield folder


@pytest.fixture
def go(folder):
    """The file that lets cases go on whose deed is ``wait``."""
    file = folder / "mark-go"
    yield file
    file.unlink(missing_ok=True)


def workers(pool: Pool) -> list[int]:
    """The workers alive under the fork server that a pool shares with others."""
    out = subprocess.run(
        ["ps", "--ppid", str(pool._server.process.pid), "-o", "pid="], capture_output=True, text=True, check=False
    )
    return [int(word) for word in out.stdout.split()]


def test_cases_compiled_together_cost_each_its_own(monkeypatch):
    let_time_be_up(monkeypatch, lambda slot: (slot.worker.scratch / HANGING).exists())
    deeds = ["obey", "raise", "unsupported", "abort", "obey", "hang_in_c", "os_exit", "wrong_dtype"]
    cases = [torture_case(deed, index) for index, deed in enumerate(deeds)]
    with Pool("torture_backend:Together", jobs=1, retry=False) as pool:
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


def test_where_a_worker_hung_is_where_it_was_before_it_was_asked_for_its_stack():
    """The signal ends the sleep: the worker goes on to the first case, which did not hang."""
    frames = bytearray()
    for index, deed in enumerate(["obey", "hang_in_c", "obey"]):
        case = torture_case(deed, index)
        frames += encode_frame({"case": case.id, "about": case_labels(case), "alone": index == 0}, case.to_bytes())
    server = ForkServerClient.shared(Interpreter())
    try:
        worker = server.start("torture_backend:Together", "cache-together", disk=1 << 30)
        until(lambda: any("ready" in header for header, _ in worker.frames()))
        worker.channel.sendall(frames)
        until(lambda: (worker.scratch / HANGING).exists())
        server.receive()  # its process's number
        worker.dump_stack()
        until(lambda: os.kill(worker.pid, signal.SIGUSR1) or worker.frames())  # the first may have come before it slept
        assert worker.progress().in_batch and worker.progress().cases_begun == 0
        worker.stop()
    finally:
        server.close()


def until(true: Callable[[], object], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_retry_tells_flaky_from_broken():
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


def test_a_machine_out_of_memory_is_not_the_cases_fault(monkeypatch):
    """What the system kills to have memory again may be whichever process; the same case alone tells."""
    kills = iter([0, 1, 1, 2, 3, 4])
    monkeypatch.setattr(pool_module, "oom_kills", lambda: next(kills))
    with Pool(BACKEND, jobs=1, timeout=20) as pool:
        again = pool.verdict(torture_case("kill_by_hand"))
        starved = pool.verdict(torture_case("kill_by_hand", 1))
    assert again.outcome is Outcome.CRASH and "killed by SIGKILL" in again.message, "it dies of itself"
    assert starved.outcome is Outcome.UNTESTED and "the machine ran out of memory" in starved.message


@pytest.mark.parametrize("backend", ["EagerDies", "EagerDiesOften"])
def test_what_kills_eager_is_not_the_backends_fault(backend):
    case = torture_case("obey")
    with Pool(f"torture_eager:{backend}", jobs=1, timeout=20) as pool:
        verdict = pool.verdict(case)
    assert verdict.outcome is Outcome.UNTESTED and "eager itself: killed by SIGABRT" in verdict.message


def test_the_time_that_the_oracle_takes_is_not_the_backends(monkeypatch):
    let_time_be_up(monkeypatch, lambda slot: slot.worker.progress().stage is Stage.COMPARE)
    with Pool("torture_eager:SlowOracle") as pool:
        verdict = pool.verdict(torture_case("obey"))
    assert (verdict.outcome, verdict.stage) == (Outcome.UNTESTED, Stage.COMPARE)
    assert "answered, and judging it took over 60 s in all" in verdict.message


def test_nor_is_the_memory():
    with Pool("torture_eager:HungryOracle", memory=700 << 20) as pool:
        verdict = pool.verdict(torture_case("obey"))
    assert (verdict.outcome, verdict.stage) == (Outcome.UNTESTED, Stage.COMPARE)
    assert "answered, and judging it took too much: resident memory" in verdict.message


def test_judging_may_have_less_time_than_a_backend():
    with Pool("torture_eager:SlowOracle", judging=1.0) as pool:
        verdict = pool.verdict(torture_case("obey"))
        assert pool.spawned == 1, "and is not tried again"
    assert (verdict.outcome, verdict.stage) == (Outcome.UNTESTED, Stage.COMPARE)
    assert "judging it took over 1 s in all" in verdict.message


def test_a_worker_killed_mid_case_is_one_crash():
    with Pool(BACKEND, jobs=1) as pool:
        got = []
        deeds = ["obey", "hang", "obey", "obey"]
        results = pool.verdicts(torture_case(deed, i) for i, deed in enumerate(deeds))
        got.append(next(results))
        slot = pool._slots[0]
        assert slot.worker is not None and slot.sent
        while not slot.has_begun():
            time.sleep(0.01)
        os.kill(slot.worker.pid, 9)
        got += results
        assert sorted(v.outcome for v in got) == ["crash", "pass", "pass", "pass"]


def test_a_worker_killed_while_idle_costs_no_case():
    with Pool(BACKEND, jobs=1) as pool:
        assert pool.verdict(torture_case("obey")).outcome is Outcome.PASS
        os.kill(pool._slots[0].worker.pid, 9)
        assert pool.verdict(torture_case("obey", 1)).outcome is Outcome.PASS
        assert pool.spawned == 2
        assert pool.verdict(torture_case("kill_by_hand", 2)).outcome is Outcome.CRASH, "it had begun this one"


def test_a_worker_that_replaces_another_is_told_much_as_well():
    """More than the socket takes at once: what the campaigns before knew of the backend's functions."""
    known = {f"file.py:function_{number}": [f"{number:032x}"] for number in range(20_000)}
    begun = time.monotonic()

    def tick():
        assert time.monotonic() - begun < 120, "the second worker was never told what to do"

    with Pool(BACKEND, jobs=1, tick=tick, watch=lambda case, ran: None, known=known) as pool:
        verdicts = list(pool.verdicts([torture_case("abort"), torture_case("obey", 1), torture_case("obey", 2)]))
    assert sorted(str(verdict.outcome) for verdict in verdicts) == ["crash", "pass", "pass"]
    assert pool.spawned == 3  # the second to try it again, the third for eager alone and what follows


def test_what_ends_workers_before_they_have_begun_it_is_tried_no_more_than_thrice(monkeypatch):
    monkeypatch.setattr("torchstone.conformance.runner.progress_mark.Progress.cases_begun", 0)
    with Pool(BACKEND, retry=False) as pool:
        verdict = pool.verdict(torture_case("abort"))
        assert (verdict.outcome, verdict.message, pool.spawned) == (Outcome.CRASH, "killed by SIGABRT", 3)


def test_workers_that_cannot_start_are_an_error_not_a_loop():
    with Pool("torture_backend:Refuses") as pool, pytest.raises(HarnessError, match="its library is missing"):
        pool.verdict(torture_case("obey"))
    with Pool("torture_backend:Missing") as pool, pytest.raises(HarnessError, match="Missing"):
        pool.verdict(torture_case("obey"))
    with Pool("torture_import:raises") as pool, pytest.raises(HarnessError, match="ZeroDivisionError"):
        pool.verdict(torture_case("obey"))
    with Pool("torture_import:sys_exit") as pool, pytest.raises(HarnessError, match="SystemExit"):
        pool.verdict(torture_case("obey"))
    with Pool("torture_import:kill_by_hand") as pool, pytest.raises(HarnessError, match=r"last of 3 died .*SIGKILL"):
        pool.verdict(torture_case("obey"))  # the system does that when memory has run out


@pytest.mark.parametrize(
    ("backend", "told"),
    [
        ("torture_import:abort", "killed by SIGABRT"),
        ("torture_import:exit_well", "exited with code 0"),
        ("torture_backend:DiesAtStart", "killed by SIGABRT"),
    ],
)
def test_who_dies_as_it_is_loaded_has_that_for_every_verdict(backend, told):
    with Pool(backend, jobs=2) as pool:
        verdicts = list(pool.verdicts(torture_case("obey", index) for index in range(9)))
        assert {(v.outcome, v.message) for v in verdicts} == {(Outcome.CRASH, f"{told}, as the backend was loaded")}
        assert len({v.case_id for v in verdicts}) == len(verdicts) == 9
        assert pool.verdict(torture_case("obey", 10)).outcome is Outcome.CRASH
        assert pool.spawned <= 4


def test_who_hangs_or_swells_as_it_is_loaded_is_given_up(monkeypatch):
    with Pool("torture_import:hog", memory=700 << 20) as pool:
        verdict = pool.verdict(torture_case("obey"))
        assert verdict.outcome is Outcome.OOM and "over the limit of 700 MiB" in verdict.message
    let_time_be_up(monkeypatch, lambda slot: slot.worker.progress().loading)
    with Pool("torture_import:hang") as pool:
        verdict = pool.verdict(torture_case("obey"))
        assert (verdict.outcome, verdict.message) == (
            Outcome.TIMEOUT,
            "not ready after 300 s, as the backend was loaded",
        )


def test_what_a_backend_prints_as_it_is_imported_is_no_harm():
    with Pool("torture_import:print_much") as pool:
        assert pool.verdict(torture_case("obey")).outcome is Outcome.PASS


def test_a_look_survives_what_it_looks_at():
    assert preflight("torture_import:abort") == {"died": "killed by SIGABRT: LLVM ERROR: the last words"}
    assert preflight("torture_import:exit_well") == {"died": "exited with code 0"}
    assert preflight("torture_import:daemon")["ok"] and preflight("torture_import:print_much")["ok"]
    assert preflight("torture_backend:Refuses")["reason"] == "its library is missing"
    with pytest.raises(InputError, match='"torture_import:raises" cannot be loaded: ZeroDivisionError'):
        preflight("torture_import:raises")
    with pytest.raises(InputError, match='"torture_import:sys_exit" cannot be loaded: SystemExit: 3'):
        preflight("torture_import:sys_exit")
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"time.sleep(601)" in _bytes(path)]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


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


def test_a_pool_that_closes_leaves_no_worker_and_no_file():
    with Pool(BACKEND) as other:
        assert other.verdict(torture_case("obey")).outcome is Outcome.PASS
        before = set(workers(other))
        with Pool(BACKEND, jobs=2) as pool:
            list(pool.verdicts(torture_case("obey", i) for i in range(4)))
            assert set(workers(pool)) > before
            root = pool._server.folder.path
        assert set(workers(other)) == before
        assert len(list(root.glob("worker-*"))) == len(before)


def test_without_forking_each_worker_is_a_fresh_interpreter(monkeypatch):
    monkeypatch.setenv("TORCHSTONE_FORK", "0")
    with Pool(BACKEND, timeout=60, retry=False) as pool:
        assert pool.verdict(torture_case("obey")).outcome is Outcome.PASS
        commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in workers(pool)]
        assert sum(b"runner.worker" in command for command in commands) == 1, commands
        assert pool.verdict(torture_case("sys_exit")).message == "exited with code 3"


def test_large_inputs_pass_through():
    big = torture_case("obey", tensor=torch.zeros(1 << 19))
    with Pool(BACKEND, jobs=1) as pool:
        assert [(v.outcome, v.message) for v in pool.verdicts([big, big, big])] == [(Outcome.PASS, "")] * 3


def test_workers_die_with_their_parent(tmp_path):
    script = f"""
import os, sys
sys.path.insert(0, {str(HERE)!r})
from torture_cases import let_time_be_up, torture_case
from torchstone.conformance.runner.frames import encode_frame
from torchstone.conformance.runner.interpreter import Interpreter
from torchstone.conformance.runner.pool import Pool
from torchstone.conformance.runner import pool as pool_module
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
    worker = Path(f"/proc/{done.stdout.strip()}")
    deadline = time.monotonic() + 60
    while worker.exists() or list(tmp_path.iterdir()):
        assert time.monotonic() < deadline, "the worker, or its files, outlived the runner"
        time.sleep(0.05)


def test_folders_of_pools_that_are_gone_are_swept_and_others_are_not(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    alive, gone, strange = LockedFolder(), LockedFolder(), tmp_path / f"{PREFIX}of-somebody-else"
    (gone.path / "worker-0").mkdir()
    (gone.path / "worker-0" / "file").write_text("left")
    (gone.path / "worker-0").chmod(0)
    os.close(gone._lock)  # as the kernel does for a process that dies
    strange.mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(tmp_path)
    remove_abandoned()
    assert alive.path.exists() and not gone.path.exists()
    assert strange.exists(), "what has no lock was made by nobody we know"
    alive.close()
    assert not alive.path.exists()


def test_where_workers_die_often_their_successors_start_with_more():
    cases = [torture_case("abort", index) for index in range(4)]
    with Pool("torture_backend:Where", retry=False) as pool:
        assert {v.outcome for v in pool.verdicts(cases)} == {Outcome.CRASH}
        assert pool.verdict(torture_case("obey")).evidence["dynamo"] is True


def test_a_case_is_not_ended_for_what_those_before_it_have_written(monkeypatch, go):
    looks = []

    def look(slot, found=WorkerSlot.limit_exceeded):
        looks.append(found(slot))
        if len(looks) == 2:
            go.touch()
        return looks[-1]

    with Pool(BACKEND, disk=48 << 20) as pool:
        monkeypatch.setattr("torchstone.conformance.runner.slot.DISK_SECONDS", 100.0)
        assert pool.verdict(torture_case("fill_file")).outcome is Outcome.ERROR
        assert pool.verdict(torture_case("leave_files")).outcome is Outcome.PASS
        monkeypatch.setattr("torchstone.conformance.runner.slot.DISK_SECONDS", 0.0)
        monkeypatch.setattr(WorkerSlot, "limit_exceeded", look)
        assert pool.verdict(torture_case("wait")).outcome is Outcome.PASS
        assert "temporary folder" in looks[0] and looks[1] == "", "its worker was renewed, and the next has no files"
        assert pool.spawned == 2


def test_what_workers_are_forked_from_has_one_thread_and_has_touched_no_device():
    script = """
import importlib, os, sys, torch
asked = []
for name in ("is_available", "device_count", "init", "_lazy_init", "get_device_properties"):
    found = getattr(torch.cuda, name)
    setattr(torch.cuda, name, lambda *_, name=name, found=found: asked.append(name) or found(*_))
from torchstone.conformance.runner import worker
worker.preload()
worker.preload_decompositions()
for module in sys.argv[1:]:
    importlib.import_module(module)
print(asked, torch.cuda.is_initialized(), len(os.listdir("/proc/self/task")))
"""
    env = os.environ | _ENVIRONMENT
    modules = preloadable("linalg")
    assert modules and not preloadable(BACKEND), "a user's module may do anything as it is imported"
    command = [sys.executable, "-c", script, *modules]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    assert done.stdout == "[] False 1\n"


def test_workers_may_be_started_before_there_is_a_case():
    with Pool(BACKEND, jobs=2) as pool:
        pool.start()
        assert pool.spawned == 2
        assert {verdict.outcome for verdict in pool.verdicts(torture_case("obey", i) for i in range(4))} == {
            Outcome.PASS
        }
        assert pool.spawned == 2


def test_the_fork_server_may_die_and_the_run_goes_on(go):
    # The last test here: after it each pool has a fork server of its own.
    with Pool(BACKEND, jobs=2) as pool:
        results = pool.verdicts(torture_case("wait" if i else "obey", i) for i in range(4))
        assert next(results).outcome is Outcome.PASS
        first = pool._server.process
        first.kill()
        first.wait()  # a killed process lives on for a moment on a busy machine
        go.touch()
        assert [v.outcome for v in results] == [Outcome.PASS] * 3
        assert first.poll() is not None and pool._server.process is not first

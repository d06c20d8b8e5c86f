"""Torture at two workers: whatever a backend does is that case's verdict, nobody else's, and nothing is left of it."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from torture_backend import HANGING
from torture_cases import DEEDS, let_time_be_up, torture_case

from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.runner.pool import Pool

HERE = Path(__file__).parents[1] / "helpers"
BACKEND = "torture_backend:Torture"
MEMORY = 700 << 20
DISK = 48 << 20
PASS, ERROR, CRASH, TIMEOUT, OOM, MISMATCH = (
    Outcome.PASS, Outcome.ERROR, Outcome.CRASH, Outcome.TIMEOUT, Outcome.OOM, Outcome.MISMATCH,
)  # fmt: skip

# What each deed comes to, with a word that the message, the kind or the evidence must hold.
ENDS = {
    # it dies
    "segfault": (CRASH, "SIGSEGV"),
    "abort": (CRASH, "LLVM ERROR: the last words"),
    "terminate": (CRASH, "SIGABRT"),
    "stack_overflow": (CRASH, "SIGSEGV"),
    "os_exit": (CRASH, "exited with code 7"),
    "exit_well": (CRASH, "exited with code 0"),
    "sys_exit": (CRASH, "exited with code 3"),
    "kill_by_hand": (CRASH, "killed by SIGKILL"),
    "freed": (CRASH, "SIGSEGV"),
    # it raises
    "raise": (ERROR, "ZeroDivisionError"),
    "base_exception": (ERROR, "Odd: a panic"),
    "interrupt": (ERROR, "KeyboardInterrupt"),
    "unprintable": (ERROR, "Unprintable: its text cannot be had"),
    "surrogates": (ERROR, "that is no text"),
    "recursion": (ERROR, "RecursionError"),
    "unsupported": (Outcome.UNSUPPORTED, "no such kernel"),
    "fail": (ERROR, "pass pipeline failed"),
    "cannot_allocate": (OOM, "MemoryError"),
    # it is wrong
    "wrong_dtype": (MISMATCH, "dtype"),
    "wrong_shape": (MISMATCH, "shape"),
    "nan": (MISMATCH, "value"),
    "random": (MISMATCH, "nondeterministic"),
    "number": (MISMATCH, "got a float"),
    "array": (MISMATCH, "ndar"),
    "text": (MISMATCH, "got a str"),
    "sparse": (MISMATCH, "sparse_coo"),
    "mutate": (MISMATCH, "mutation"),
    "alias": (MISMATCH, "mutation"),
    "nested_in_itself": (ERROR, "cannot be taken apart"),
    "shapeshifter": (ERROR, "cannot be taken apart"),
    "meta": (ERROR, "has no values"),
    "fake": (ERROR, "has no values"),
    "subclass": (ERROR, "cannot be taken apart"),
    "batched": (ERROR, "has no values"),
    # it wants too much
    "print": (PASS, ""),
    "print_much": (PASS, ""),
    "hog": (OOM, "resident memory"),
    "allocate": (OOM, "resident memory"),
    "fill_file": (ERROR, "File too large"),
    "fill_folder": (OOM, "temporary folder"),
    "leak_files": (PASS, ""),
    "leave_files": (PASS, ""),
    "leave_shared_memory": (PASS, ""),
    "die_with_shared_memory": (CRASH, "SIGABRT"),
    # it reaches for the harness
    "close_channel": (CRASH, "exited with code 1"),
    "close_output": (PASS, ""),
    "kill_parents": (PASS, ""),
    # it leaves something running
    "fork": (PASS, ""),
    "fork_and_return": (PASS, ""),
    "child": (PASS, ""),
    "daemon": (PASS, ""),
    "busy_thread": (PASS, ""),
    # it leaves something changed
    "change_process": (PASS, "the current folder"),
    "change_torch": (PASS, "the default dtype"),
    "patch": (PASS, "torch.add"),
}
# What lives on without its channel is given time to die by itself, here little.
DEAF = ("write_everywhere", "forge")
HANGS = {
    "hang": "in hang",
    "hang_in_c": "in hang_in_c",
    "hang_deaf": "",
    "stop_itself": "",
}


@pytest.fixture(scope="module", autouse=True)
def _one_fork_server(tmp_path_factory):
    """All pools of this module share a fork server, in a temporary folder that must be empty in the end."""
    folder = tmp_path_factory.mktemp("torture")
    shared = shared_memory()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr("tempfile.tempdir", str(folder))
        patch.chdir(HERE)
        with Pool(BACKEND) as pool:
            assert pool.verdict(torture_case("obey")).outcome is PASS
            yield
            server = pool._server.process.pid
        assert below(server) == []
        assert list(folder.iterdir()) == []
        assert shared_memory() <= shared
        assert not [path for path in HERE.iterdir() if path.name.startswith(("in-the", "filled", "closed"))]


def processes() -> dict[int, tuple[int, str]]:
    """Every process: its parent, and its command."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            state = (path / "stat").read_text(errors="replace").rpartition(")")[2].split()
            found[int(path.name)] = (int(state[1]), (path / "cmdline").read_text(errors="replace").replace("\0", " "))
    return found


def shared_memory() -> set[str]:
    """Every block and every segment of shared memory."""
    segments = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return {path.name for path in Path("/dev/shm").iterdir()} | {line.split()[1] for line in segments}


def below(*roots: int) -> list[str]:
    """The commands of all processes below some, and of those that sleep as the torture's children do, wherever."""
    table, found, news = processes(), set(), set(roots)
    while news := {pid for pid, (parent, _) in table.items() if parent in news} - found:
        found |= news
    return [table[pid][1] for pid in found] + [c for _, c in table.values() if "time.sleep(600)" in c]


def try_all(deeds, jobs=2, **options):
    """The verdicts of the deeds, in order, each with an innocent case before it, all of which must pass."""
    cases = []
    for index, deed in enumerate(deeds):
        cases += [torture_case("obey", 1000 + index), torture_case(deed, index)]
    with Pool(BACKEND, jobs=jobs, memory=MEMORY, disk=DISK, retry=False, **options) as pool:
        verdicts = {v.case_id: v for v in pool.verdicts(cases)}
    assert len(verdicts) == len(cases)
    guilty = [verdicts.pop(torture_case(deed, index).id) for index, deed in enumerate(deeds)]
    assert [v for v in verdicts.values() if v.outcome is not PASS] == [], "an innocent case was touched"
    return guilty


def told(verdict) -> str:
    return f"{verdict.message} {verdict.kind} {verdict.evidence}"


def test_each_deed_costs_its_own_case_only():
    wrong = []
    for verdict, (outcome, word) in zip(try_all(ENDS, timeout=60), ENDS.values(), strict=True):
        if verdict.outcome is not outcome or word not in told(verdict):
            wrong.append(verdict)
    assert wrong == []


def test_who_spoils_the_channel_is_ended(monkeypatch):
    monkeypatch.setattr("torchstone.conformance.runner.pool.DYING_SECONDS", 0.2)
    for verdict in try_all(DEAF, timeout=60):
        assert verdict.outcome is CRASH and "channel" in told(verdict), verdict


def test_what_hangs_is_ended(monkeypatch):
    let_time_be_up(monkeypatch, lambda slot: (slot.worker.scratch / HANGING).exists())
    for verdict, word in zip(try_all(HANGS, jobs=len(HANGS)), HANGS.values(), strict=True):
        assert verdict.outcome is TIMEOUT and word in told(verdict), verdict


def test_memory_that_leaks_from_case_to_case_is_nobodys_end():
    verdicts = try_all(["leak"] * 8, timeout=60)
    assert {v.outcome for v in verdicts} == {PASS}


@pytest.mark.torture
def test_who_kills_the_fork_server_every_time_is_found():
    (verdict,) = try_all(["kill_parent_hard"], timeout=120)
    assert verdict.outcome is CRASH and "the process that forks the workers died each of the 3 times" in told(verdict)


def test_every_deed_has_its_row():
    elsewhere = {"obey", "wait", "crash_once", "leak", "lazy", "kill_parent_hard"}
    assert set(ENDS) | set(DEAF) | set(HANGS) | elsewhere == set(DEEDS)


def test_the_table_is_long_enough_to_mean_something():
    assert len(ENDS) + len(DEAF) + len(HANGS) >= 25

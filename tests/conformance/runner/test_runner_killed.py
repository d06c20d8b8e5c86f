"""SIGKILL of the whole runner, whenever: what the store has is kept and not done again, and nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from killed_run import BACKEND

from torchstone.conformance.store import Store

HERE = Path(__file__).parents[1] / "helpers"
PATIENCE = 240.0


def of_pools_in(folder: Path) -> list[int]:
    """The processes of pools whose temporary folder lies here: fork servers, and workers, which are forks of them."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{folder}{os.sep}".encode() in (path / "cmdline").read_bytes():
                found.append(int(path.name))
    return found


def wait_for(condition, what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def rows(path: Path) -> dict[str, float]:
    """What the store has: each case with the seconds it took, which would be others had it been tried again."""
    if not path.exists():
        return {}
    with Store(path) as store:
        return {row[0]: row for row in store.iter_verdicts()} if store.run_list() else {}


def kill_again_and_again(folder: Path, count: int, moments: list[int], dice: random.Random) -> None:
    """Kill a run after it has begun so many cases, or before it has begun any where that is 0; then let it end."""
    temporary, path, log = folder / "tmp", folder / "results.sqlite", folder / "log"
    temporary.mkdir()
    log.touch()
    env = os.environ | {"TMPDIR": str(temporary), "TORTURE_LOG": str(log), "PYTHONPATH": str(HERE)}
    command = [sys.executable, str(HERE / "killed_run.py"), str(path), str(count)]

    def begun() -> list[str]:
        return log.read_text().split()

    for moment in moments:
        kept, before = rows(path), len(begun())
        process = subprocess.Popen(command, cwd=HERE, env=env, stdout=subprocess.DEVNULL)
        if moment:
            wait_for(
                lambda p=process, n=before + moment: len(begun()) >= n or p.poll() is not None, "it does not begin"
            )
        time.sleep(dice.uniform(0.0, 0.3 if moment else 4.0))
        process.send_signal(signal.SIGKILL)
        process.wait()
        wait_for(lambda: not of_pools_in(temporary), "a worker outlived the runner")
        assert rows(path).items() >= kept.items(), "a finished result was lost or replaced"
        again = set(begun()[before:]) & {name.split(":")[3] for name in kept}
        assert not again, f"finished cases were tried again: {sorted(again)}"
        assert len(begun()) - before == len(set(begun()[before:])), "a case was tried twice in one go"
    kept, before = rows(path), len(begun())
    subprocess.run(command, cwd=HERE, env=env, check=True, timeout=PATIENCE)
    final = rows(path)
    assert len(final) == count
    assert final.items() >= kept.items()
    assert not set(begun()[before:]) & {name.split(":")[3] for name in kept}
    with Store(path) as store:
        assert store.counts("r1") == {BACKEND: {"pass": count}}
    assert of_pools_in(temporary) == []
    assert list(temporary.iterdir()) == []


@pytest.mark.torture
def test_a_killed_run_goes_on_where_its_store_ends(tmp_path):
    kill_again_and_again(tmp_path, 80, [40], random.Random(4))


@pytest.mark.torture
def test_twenty_kills_at_random_moments(tmp_path):
    dice = random.Random(os.environ.get("TORTURE_SEED", "20"))
    moments = [0 if dice.random() < 0.3 else dice.randrange(1, 60) for _ in range(20)]
    kill_again_and_again(tmp_path, 1200, moments, dice)

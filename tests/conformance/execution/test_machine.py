"""The machine in a run's record: what it is told by, what two of them do not share, and who is told of it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from tests.conformance.store.test_store import verdict
from torchstone import cli
from torchstone.compiler.runtime.cpu import level
from torchstone.conformance.execution.machine import differing_facts, machine_facts, processor
from torchstone.conformance.store import Store

CPUINFO = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 85
model name\t: Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz
stepping\t: 7
"""


def test_the_facts_are_those_of_the_libraries_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    monkeypatch.setenv(level.VARIABLE, "x86-64-v2")
    facts = machine_facts()
    assert facts["aten capability"] == torch.backends.cpu.get_cpu_capability()
    assert facts["onednn isa"] == "AVX2" and facts["code generator"] == "x86-64-v2"
    assert facts["mkl"] in torch.__config__.show() and facts["onednn"] in torch.__config__.show()
    assert all(isinstance(fact, str) and fact for fact in facts.values())


def test_the_processor_as_linux_tells_it(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(CPUINFO)
    assert processor(tmp_path) == "GenuineIntel Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz 6 85 7"
    assert processor(tmp_path / "nowhere")


def test_what_only_one_of_two_tells_is_no_difference() -> None:
    assert differing_facts({"mkl": "1", "cores": "2", "old": "x"}, {"mkl": "1", "cores": "4"}) == {"cores": ("2", "4")}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Store(tmp_path / "results.sqlite") as store:
        for version, facts in (("2.13.0", {}), ("2.13.0", {"mkl": "off"}), ("2.13.1", {"mkl": "avx2"})):
            run = store.new_run("torchstone run", {"backends": ["eager"]}, {"torch": version}, machine=facts)
            store.record(run, verdict(0))
            store.finish(run)
    return tmp_path / "results.sqlite"


def test_a_diff_says_what_the_machines_and_the_versions_do_not_share(capfd, path: Path) -> None:
    def diff(*args: str) -> str:
        assert cli.invoke(["runs", "diff", *args, "--store", str(path)]) == 0
        return capfd.readouterr().out

    assert [line for line in diff("r3", "r2").splitlines() if line.startswith("another")] == [
        "another version: torch is 2.13.1 in r3, and 2.13.0 in r2", "another machine: mkl is avx2 in r3, and off in r2",
    ]  # fmt: skip
    rows = json.loads(diff("r3", "r2", "--format", "json"))
    assert [(row["change"], row["case"], row["before"], row["after"]) for row in rows] == [
        ("version", "torch", "2.13.0", "2.13.1"), ("machine", "mkl", "off", "avx2"),
    ]  # fmt: skip
    assert "another" not in diff("r2", "r2")
    assert "another machine: all of it is noted in r2, and not noted in r1" in diff("r2", "r1")


def test_a_run_tells_its_machine_and_is_resumed_at_its_level(capfd, tmp_path: Path, monkeypatch) -> None:
    held = next((name for name in level.LEVELS[1:] if not level.unavailable(name)), level.NATIVE)
    monkeypatch.setenv(level.VARIABLE, level.NATIVE)
    store = ["--store", str(tmp_path / "results.sqlite")]
    assert (
        cli.invoke(["run", "-b", "linalg", "--op", "neg", "--limit", "1", "-j", "1", "--cpu-level", held, *store]) == 0
    )
    with Store(store[1]) as db:
        record = db.run("latest")
        assert record.machine == machine_facts() and record.machine["code generator"] == held
        db.note_machine("r1", record.machine | {"mkl cbwr": "avx"})
    monkeypatch.setenv(level.VARIABLE, level.NATIVE)
    capfd.readouterr()
    assert cli.invoke(["run", "--resume", "r1", *store]) == 0
    assert os.environ[level.VARIABLE] == held
    now = machine_facts()["mkl cbwr"]
    assert capfd.readouterr().err == f"warning: r1 was begun where mkl cbwr is avx; here it is {now}\n"
    with Store(store[1], readonly=True) as db:
        assert db.run("r1").machine["mkl cbwr"] == f"avx, then {now}"


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("x86-64-3", 'unknown level of x86-64 "x86-64-3" (did you mean "x86-64-v3"?)'),
        ("x86-64-v4", "x86-64-v4 needs cx16"),
    ],
)
def test_a_level_that_cannot_be_held_is_refused_before_anything_runs(capfd, monkeypatch, wanted, message) -> None:
    monkeypatch.setattr(level, "flags", lambda: frozenset({"avx2"}))
    for command in (["run", "-b", "linalg"], ["replay", "opinfo:neg:float32:0", "-b", "linalg"], ["compile", "f.py:f"]):
        assert cli.invoke([*command, "--cpu-level", wanted]) == 2
        assert message in capfd.readouterr().err

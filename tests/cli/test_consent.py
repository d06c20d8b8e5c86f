"""A store is data: no module and no program that only a store names is run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from torchstone import cli
from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.store import Store

MODULE = 'from pathlib import Path\n\nPath("ran").touch()\n'


def store(path: Path, backend: str, **more: object) -> Path:
    options = {"backends": [backend], "sources": ["opinfo"], "ops": ["neg"], "dtypes": ["float32"], "limit": 1,
               "variants": ["default"]}  # fmt: skip
    with Store(path) as db:
        run = db.new_run("torchstone run", options | more, {})
        failed = Verdict(
            "opinfo:neg:float32:0", backend, "opinfo", "neg", "float32", "default", Stage.RUN, Outcome.ERROR
        )
        db.record(run, failed)
        db.finish(run, "interrupted")
    return path


@pytest.mark.parametrize("option", ["--resume", "--last-failed", "--changed-since"])
def test_a_module_that_a_store_names_is_not_imported(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("from_a_store.py").write_text(MODULE)
    path = store(tmp_path / "other.sqlite", "from_a_store:Backend")
    assert cli.invoke(["run", option, "r1", "--store", str(path)]) == 2
    said = capfd.readouterr().err
    assert said == "error: run r1: a store runs no code of its own choice; if this is what you want, add --backend " \
                   "from_a_store:Backend\n"  # fmt: skip
    assert not Path("ran").exists() and "from_a_store" not in sys.modules


def test_a_program_that_a_store_names_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\ntouch ran\n")
    program.chmod(0o755)
    path = store(tmp_path / "other.sqlite", "eager", pythons={"eager": str(program)})
    one = ["opinfo:add:float32:0", "-b", "eager", "--run", "r1"]
    for args in (
        ["run", "--resume", "r1"],
        ["reduce", "--all", "-b", "eager", "--run", "r1"],
        ["reduce", *one],
        ["replay", *one],
    ):
        assert cli.invoke([*args, "--store", str(path)]) == 2
        assert f"add --python eager={program}\n" in capfd.readouterr().err
        assert not Path("ran").exists()


def test_what_is_said_again_goes_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = store(tmp_path / "other.sqlite", "eager")
    assert cli.invoke(["run", "--resume", "r1", "--store", str(path), "--backend", "module:other"]) == 2
    assert 'unknown backend "module:other"' in capfd.readouterr().err
    assert cli.invoke(["run", "--resume", "r1", "--store", str(path), "--backend", "eager"]) == 2
    assert "--backend cannot go with --resume" in capfd.readouterr().err

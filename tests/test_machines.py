"""The settings of ``make machines``: each changes what it says, and what comes of them is told."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .rules import ROOT

FOLDER = ROOT / "tests" / "machines"


@pytest.fixture(scope="module")
def machines() -> Iterator[Any]:
    """The module of the command; its neighbours are its attributes."""
    sys.path.insert(0, str(FOLDER))
    names = {path.stem for path in FOLDER.glob("*.py")} - {"__main__"}
    spec = importlib.util.spec_from_file_location("machines_main", FOLDER / "__main__.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(FOLDER))
    for name in names:
        sys.modules.pop(name, None)


def settings() -> list[str]:
    """The first setting of each fact that variables change: the others give the same variables other values."""
    done = subprocess.run(
        [sys.executable, str(FOLDER), "--list"], capture_output=True, text=True, check=True, env=os.environ
    )
    names = [line.split()[0] for line in done.stdout.splitlines() if "{" in line]
    return list({name.partition("-")[0]: name for name in reversed(names)}.values())


@pytest.mark.torture
@pytest.mark.parametrize("name", settings())
def test_a_setting_changes_what_it_says(machines: Any, name: str, tmp_path: Path) -> None:
    """Of each kind, one that this machine can have; where it can have none, the reason says so."""
    kind = [setting for setting in machines.chosen([name.partition("-")[0]]) if setting.environment]
    reasons = []
    for setting in kind:
        try:
            reason = machines.without_effect(setting, machines.PLACES["here"](tmp_path))
        except machines.Absent as absent:
            reason = str(absent)
        if not reason:
            return
        reasons.append(reason)
    pytest.skip("; ".join(reasons))


@pytest.mark.torture
def test_a_setting_that_nobody_reads_is_found(machines: Any, tmp_path: Path) -> None:
    here = machines.PLACES["here"](tmp_path)
    typo = machines.Setting("typo", "zone", {"TIMEZONE": "<+14>-14"})
    assert machines.without_effect(typo, here).endswith("here without it too")
    right = machines.Setting("right", "zone", {"TZ": "<-07>+07"})
    assert machines.without_effect(right, here) == ""
    wrong = machines.Setting("wrong", "locale", {"LC_ALL": "xx_YY.UTF-8"})
    assert "unsupported locale" in machines.without_effect(wrong, here)


def test_every_setting_names_a_fact_and_a_place(machines: Any) -> None:
    from facts import FACTS  # pyright: ignore[reportMissingImports]

    names = [setting.name for setting in machines.SETTINGS]
    assert len(set(names)) == len(names)
    for setting in machines.SETTINGS:
        assert setting.place in machines.PLACES
        assert setting.fact in FACTS or setting == machines.PLAIN
        assert setting == machines.PLAIN or setting.environment or setting.place != "here"


def test_names_and_their_beginnings_are_chosen(machines: Any) -> None:
    assert [s.name for s in machines.chosen(["level", "umask"])] == ["level-v2", "level-v3", "level-v4", "umask"]
    assert len(machines.chosen([])) == len(machines.SETTINGS)
    with pytest.raises(SystemExit, match=r"no setting 'aten-avx' \(did you mean 'aten-avx2'"):
        machines.chosen(["aten-avx"])


def test_what_failed_is_told_and_an_interrupted_call_goes_on(
    machines: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from results import Result  # pyright: ignore[reportMissingImports]

    monkeypatch.setattr(machines, "OUT", tmp_path)
    monkeypatch.setattr(machines, "tree", list)  # whoever writes to the checkout meanwhile changes no result
    tried: list[str] = []

    def one(setting: Any, selection: Any, jobs: str, seen: Any) -> Any:
        tried.append(setting.name)
        if setting.name == "hash-2" and len(tried) == 2:
            raise KeyboardInterrupt
        bad = setting.name == "hash-2"
        return Result(
            setting.name, "failed" if bad else "passed", 7, int(bad), failures=[("tests/a.py::b", "1 != 2")] * bad
        )

    monkeypatch.setattr(machines, "_tried", one)
    with pytest.raises(KeyboardInterrupt):
        machines.main(["hash"])
    assert machines.main(["hash"]) == 1
    assert tried == ["hash-1", "hash-2", "hash-2"]
    out = capsys.readouterr().out
    assert "hash-1: passed before" in out and "tests/a.py::b  [hash-2]\n    1 != 2" in out
    assert machines.main(["hash-1", "--again"]) == 0 and tried[-1] == "hash-1"
    machines.main(["hash-1", "--", "tests/fuzz"])
    assert len(tried) == 5, "another selection was taken for the one before"


@pytest.mark.torture
def test_a_part_of_the_suite_is_run_and_its_failures_read(machines: Any, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "test_it.py").write_text(
        "import os, pytest\ndef test_right(): assert os.environ['PYTHONHASHSEED'] == '1'\n"
        "def test_wrong(): assert 1 == 2\n@pytest.mark.skip\ndef test_not(): pass\n"
    )
    monkeypatch.setattr(machines, "OUT", tmp_path / "out")
    options = [
        "-j",
        "0",
        "--",
        str(tmp_path / "test_it.py"),
        "-c",
        str(ROOT / "pyproject.toml"),
        f"--rootdir={tmp_path}",
    ]
    assert machines.main(["hash-1", *options]) == 1
    (row,) = json.loads((tmp_path / "out" / "results.json").read_text())["results"]
    assert (row["state"], row["passed"], row["failed"], row["skipped"]) == ("failed", 1, 1, 1)
    assert row["failures"] == [["test_it.py::test_wrong", "assert 1 == 2"]]
    assert "test_wrong" in (tmp_path / "out" / "hash-1.log").read_text()
    assert machines.main(["hash-1", "-j", "0", "--", str(tmp_path / "nowhere.py")]) == 1

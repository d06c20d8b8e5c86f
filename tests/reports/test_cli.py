"""``torchstone report`` from the command line: what it prints, and the exit codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchstone.cli import invoke

from .conftest import FIRST, SECOND


def test_report_writes_the_site_and_says_where(
    filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "deep" / "site"
    assert invoke(["report", "--store", str(filled), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert f"report: {out / 'index.html'}" in printed
    assert "linalg: 2 of 7 cases pass, 2 fail, 1 of 3 ops pass every sample" in printed
    assert {path.name for path in out.iterdir()} == {"index.html", "report.md", "report.json"}


def test_against_exits_like_diff(make_store: Callable[..., Path], tmp_path: Path) -> None:
    args = ["report", "--store", str(make_store(FIRST, SECOND)), "--out", str(tmp_path / "s")]
    assert invoke([*args, "--run", "r2", "--against", "r1"]) == 1
    assert invoke([*args, "--run", "r1", "--against", "r1"]) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--run", "r9"], 'unknown run "r9"'),
        (["--against", "r12"], 'unknown run "r12"'),
        (["--format", "pdf"], "pdf"),
        (["--store", "nowhere.sqlite"], "no results at nowhere.sqlite"),
        (["--out", "/proc/nowhere/site"], "cannot write to /proc/nowhere/site"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    filled: Path, tmp_path: Path, options: list[str], message: str,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert invoke(["report", "--store", str(filled), *options]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1 and captured.err.startswith("error: ")
    assert not (tmp_path / "site").exists()

"""``torchstone runs``: list, show, diff, prune and export, on a store whose every count is known."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import pytest

from torchstone import cli
from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.store import Store

OPTIONS = {"backends": ["linalg"], "sources": ["opinfo"], "ops": None, "dtypes": ["float32"], "limit": None}


def record(store: Store, outcomes: dict[str, str], **more: str) -> str:
    """Write a finished run of linalg: op to outcome, one case each."""
    run = store.new_run("torchstone run -b linalg", OPTIONS, {"torch": "2.13.0"})
    for index, (op, outcome) in enumerate(outcomes.items()):
        message = "" if outcome == "pass" else more.get(op, f"{outcome} at 0x{index:x}f after {index} s")
        store.record(run, Verdict(f"opinfo:{op}:float32:0", "linalg", "opinfo", op, "float32", "default", Stage.RUN,
                                  Outcome(outcome), message=message, seconds=float(index)), b"case")  # fmt: skip
    store.finish(run)
    return run


@pytest.fixture
def path(tmp_path) -> Path:
    path = tmp_path / "results.sqlite"
    with Store(path) as store:
        record(store, {"add": "pass", "sub": "pass", "mul": "crash", "div": "crash", "gone": "pass"})
        record(store, {"add": "pass", "sub": "error", "mul": "pass", "div": "timeout", "new": "oom"})
    return path


def invoke(capfd, *args: object) -> tuple[int, str, str]:
    code = cli.invoke([str(arg) for arg in args])
    out, err = capfd.readouterr()
    return code, out, err


def test_alone_and_as_list_it_lists(capfd, path):
    found = [invoke(capfd, *args, "--format", "json") for args in (
        ("runs", "--store", path), ("runs", "list", "--store", path), ("runs", "--store", path, "list"),
    )]  # fmt: skip
    assert found[0] == found[1] == found[2] and found[0][0] == 0
    assert [(row["run"], row["outcomes"]) for row in json.loads(found[0][1])] == [
        ("r1", {"crash": 2, "pass": 3}), ("r2", {"error": 1, "oom": 1, "pass": 2, "timeout": 1}),
    ]  # fmt: skip


def test_show(capfd, path):
    code, out, _ = invoke(capfd, "runs", "show", "r1", "--store", path, "--format", "json", "--top", 2)
    facts = {(row["section"], row["backend"], row["name"]): row["value"] for row in json.loads(out)}
    assert code == 0 and facts["run", "", "state"] == "finished" and facts["versions", "", "torch"] == "2.13.0"
    assert facts["options", "", "dtypes"] == ["float32"]
    assert facts["counts", "linalg", "crash"] == 2 and facts["counts", "linalg", "ops passing"] == 3
    assert [key[2] for key in facts if key[0] == "slowest"] == ["opinfo:gone:float32:0", "opinfo:div:float32:0"]
    assert [(key[2], facts[key]) for key in facts if key[0] == "failures"] == [("crash: crash at 0x… after N s", 2)]
    code, out, _ = invoke(capfd, "runs", "show", "--store", path)
    assert code == 0 and "\nfailures\n" in out and "error: error at 0x… after N s" in out
    code, out, _ = invoke(capfd, "runs", "show", "--store", path, "--format", "csv")
    assert next(csv.reader(io.StringIO(out))) == ["section", "backend", "name", "value"]


def test_diff_goes_both_ways(capfd, path):
    code, out, _ = invoke(capfd, "runs", "diff", "r2", "r1", "--store", path, "--format", "json")
    rows = {row["case"].split(":")[1]: (row["change"], row["before"], row["after"]) for row in json.loads(out)}
    assert code == 1 and rows == {
        "sub": ("regression", "pass", "error"), "new": ("regression", "absent", "oom"),
        "mul": ("improvement", "crash", "pass"), "div": ("change", "crash", "timeout"),
        "gone": ("change", "pass", "absent"),
    }  # fmt: skip
    code, out, _ = invoke(capfd, "runs", "diff", "r1", "r2", "--store", path)
    assert code == 1 and "r1 against r2: 2 regressions, 1 improvements, 2 changes, 1 cases unchanged" in out
    code, out, _ = invoke(capfd, "runs", "diff", "latest", "r2", "--store", path)
    assert code == 0 and "0 regressions" in out


def test_prune(capfd, path):
    code, _, err = invoke(capfd, "runs", "prune", "--keep", 1, "--store", path)
    assert code == 2 and "this would remove r1" in err and "give --yes" in err
    code, out, _ = invoke(capfd, "runs", "prune", "--keep", 5, "--older-than", "1d", "--yes", "--store", path)
    assert code == 0 and out == "nothing to prune\n"
    code, out, _ = invoke(capfd, "runs", "prune", "r1", "--yes", "--store", path)
    assert code == 0 and out.startswith("pruned r1: 5 verdicts, 0 cases, ")
    with Store(path) as store:
        assert [run.run for run in store.run_list()] == ["r2"]
        store._db.execute("UPDATE runs SET state = 'running', pid = ?", (os.getppid(),))
    code, _, err = invoke(capfd, "runs", "prune", "--keep", 0, "--yes", "--store", path)
    assert code == 2 and "run r2 is still running" in err


@pytest.mark.parametrize(
    "args, message",
    [
        (["lsit"], "Did you mean 'list'"),
        (["show", "r1; DROP TABLE runs; --"], 'unknown run "r1; DROP TABLE runs; --"'),
        (["show", "../r1"], 'unknown run "../r1"'),
        (["show", "r1", "--top", "0"], "--top"),
        (["diff", "r1"], "AGAINST"),
        (["diff", "r1", "r7"], 'unknown run "r7"'),
        (["prune"], "say what to prune"),
        (["prune", "r1", "--keep", "1"], "say what to prune"),
        (["prune", "r9", "--yes"], 'unknown run "r9"'),
        (["prune", "--older-than", "3 months", "--yes"], "--older-than takes a number of hours, days or weeks"),
        (["export", "--out", "x.txt"], 'unknown format "txt"'),
        (["export", "r9", "--out", "x.csv"], 'unknown run "r9"'),
        (["export", "--out", "/dev/null", "--format", "csv"], "it is not a file"),
    ],
)
def test_bad_usage(args, message, capfd, path, monkeypatch):
    monkeypatch.chdir(path.parent)
    before = path.read_bytes()
    code, out, err = invoke(capfd, "runs", *args, "--store", path)
    assert code == 2 and out == "" and err.startswith("error: ") and err.count("\n") == 1
    assert message.lower() in err.lower(), err
    assert path.read_bytes() == before and not list(path.parent.glob("x.*"))


def test_export(capfd, path):
    out = path.parent / "sub" / "all.csv"
    code, printed, _ = invoke(capfd, "runs", "export", "r1", "r2", "--store", path, "--out", out)
    assert code == 0 and printed == f"{out}: 10 verdicts of r1, r2\n"
    assert len(list(csv.DictReader(io.StringIO(out.read_text())))) == 10


def test_listings_carry_no_commands(capfd, path):
    with Store(path) as store:
        record(store, {"sub": "crash", "=1+1": "error"}, sub="\x1b]0;owned\x07=2\n::error::injected", **{"=1+1": "@x"})
    for form in ("table", "csv"):
        _, out, _ = invoke(capfd, "runs", "diff", "latest", "r1", "--store", path, "--format", form)
        assert not set(map(chr, range(32))) - {"\n"} & set(out) and "\n::" not in out
    cells = [cell for row in csv.reader(io.StringIO(out)) for cell in row]
    assert "'@x" in cells and not [cell for cell in cells if cell.startswith(tuple("=+-@"))]


def test_help_tells_the_defaults(capfd):
    _, out, _ = invoke(capfd, "report", "--help")
    assert "[default: the" in out, "a bracket in a help text was taken for markup"

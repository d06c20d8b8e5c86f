"""Every listing as table, JSON and CSV; the progress line; the doctor."""

from __future__ import annotations

import csv
import dataclasses
import io
import json

import pytest

from torchstone import cli
from torchstone.cli.output import TableFormat, show_table
from torchstone.cli.progress import Progress
from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict

ROWS = [{"name": "a,b", "ok": True, "tags": ["x", "y"]}, {"name": "é", "ok": False, "tags": []}]


def test_forms_of_a_listing(capsys):
    show_table(ROWS, ["name", "ok", "tags"], TableFormat.json)
    assert json.loads(capsys.readouterr().out) == ROWS
    show_table(ROWS, ["name", "ok", "tags"], TableFormat.csv)
    read = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert read == [["name", "ok", "tags"], ["a,b", "yes", "x y"], ["é", "no", ""]]
    show_table(ROWS, ["name", "ok", "tags"], TableFormat.table)
    assert capsys.readouterr().out == "name  ok   tags\na,b   yes  x y\né     no\n"


@pytest.mark.parametrize("command, column", [("backends", "backend"), ("doctor", "check")])
def test_listings_of_the_installation(command, column, capfd):
    assert cli.invoke([command, "--format", "json"]) == 0
    names = [row[column] for row in json.loads(capfd.readouterr().out)]
    assert len(names) == len(set(names)) and any("eager" in name for name in names)


def test_ops(capfd):
    assert cli.invoke(["ops", "soft*", "--format", "json"]) == 0
    rows = {row["op"]: row["dtypes"] for row in json.loads(capfd.readouterr().out)}
    assert "float32" in rows["softmax"]
    assert cli.invoke(["ops", "sofmax"]) == 2


def verdict(op: str, backend: str = "eager", outcome: Outcome = Outcome.PASS) -> Verdict:
    return Verdict(f"x:{op}", backend, "x", op, "float32", "default", Stage.COMPARE, outcome)


def test_progress_counts_and_estimates():
    progress = Progress(["eager", "linalg"], {"x": ["add", "mul", "sub"]})
    assert "starting" in progress.line()
    progress.add(verdict("add"))
    progress.began -= 10
    assert progress.line() == "eager:  33% of 3 ops, 1 cases, 0/s, 0:50 left  pass 1"
    progress.add(verdict("mul", outcome=Outcome.CRASH))
    assert "67% of 3 ops" in progress.line() and "crash 1" in progress.line()
    progress.start("linalg")
    progress.add(verdict("mul", backend="linalg"))
    assert progress.line().startswith("linalg:  67% of 3 ops, 3 cases")


def test_progress_goes_source_by_source():
    progress = Progress(["eager"], {"w": ["zeros"], "x": ["add", "mul"], "y": ["abs"]})
    shares = []
    for source, op in (("w", "zeros"), ("x", "add"), ("x", "mul"), ("elsewhere", "abs"), ("y", "abs")):
        progress.add(dataclasses.replace(verdict(op), source=source))
        shares.append(progress.share)
    assert shares == [0.25, 0.5, 0.75, 0.75, 1.0]


def test_what_a_run_had_before_it_went_on_says_nothing_about_the_time_left():
    progress = Progress(["eager", "linalg"], {"x": ["add", "mul", "sub"]})
    progress.start("linalg")
    progress.add(verdict("mul", "linalg"))
    progress.began -= 10
    assert progress.line() == "linalg:  67% of 3 ops, 1 cases, 0/s, 0:10 left  pass 1"

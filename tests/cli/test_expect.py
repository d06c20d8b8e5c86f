"""Expectations from the command line: what fails a run, what JUnit and GitHub are told, what is refused."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from torchstone.cli.expectation_report import Annotations, Baseline, conclude_run
from torchstone.conformance.expectations import load_expectations
from torchstone.conformance.store import Store

from .test_runs import invoke, path, record

__all__ = ["path"]
TORTURE = Path(__file__).parents[1] / "conformance" / "helpers"


def row(outcome: str, **selectors: str) -> str:
    fields = "".join(f'{name} = "{value}"\n' for name, value in selectors.items())
    return f'\n[[expect]]\n{fields}outcome = "{outcome}"\nreason = "known, see: 50%"\n'


@pytest.fixture
def file(tmp_path) -> Path:
    found = tmp_path / "linalg.toml"
    found.write_text('backend = "linalg"\n' + row("crash", op="mul") + row("error", op="sub") + row("oom", op="zeta"))
    return found


def check(capfd, path: Path, file: Path, *more: object) -> tuple[int, str, str]:
    return invoke(capfd, "expect", "check", "--store", path, "--expect", file, *more)


def test_check_lists_what_came_otherwise_and_what_is_stale(capfd, path, file):
    code, out, err = check(capfd, path, file, "--format", "json")
    rows = {(row["kind"], row["case"]): (row["expected"], row["outcome"], row["where"]) for row in json.loads(out)}
    assert code == 1 and rows == {
        ("improvement", "opinfo:mul:float32:0"): ("crash", "pass", f"{file}:3"),
        ("regression", "opinfo:div:float32:0"): ("no failure", "timeout", str(file)),
        ("regression", "opinfo:new:float32:0"): ("no failure", "oom", str(file)),
        ("stale", "op = 'zeta'"): ("oom", "", f"{file}:13"),
    }
    summary = "expectations: 1 expected failures, 3 cases otherwise than expected, 1 stale rows"
    assert err == summary + "\n"
    code, out, _ = check(capfd, path, file)
    assert code == 1 and out.splitlines()[-1] == summary and len(out.splitlines()) == 6


def test_update_then_check_is_clean(capfd, path, file):
    code, out, _ = invoke(capfd, "expect", "update", "--store", path, "--expect", file)
    assert code == 0 and f"{file}: 1 rows kept, 2 added, 2 removed\n" in out
    assert "removed, line 3: op = 'mul': crash\n" in out and "marked TODO" in out
    code, out, _ = check(capfd, path, file)
    assert code == 0 and "0 cases otherwise" in out and "2 rows whose reason is still to be written" in out
    assert check(capfd, path, file, "--run", "r1")[0] == 1
    new = file.with_name("new.toml")
    assert invoke(capfd, "expect", "update", "--store", path, "--expect", new, "--run", "r1")[0] == 0
    assert len(load_expectations(new).rows) == 2 and check(capfd, path, new, "--run", "r1")[0] == 0


def test_junit_tells_the_same(capfd, path, file):
    out = file.with_name("junit.xml")
    assert check(capfd, path, file, "--junit", out)[0] == 1
    (suite,) = ET.parse(out).getroot()
    assert (suite.get("name"), suite.get("tests"), suite.get("failures"), suite.get("skipped")) == (
        "linalg", "6", "4", "1",
    )  # fmt: skip
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    skipped = cases["opinfo:sub:float32:0"].find("skipped")
    assert skipped is not None and skipped.get("message") == "expected error: known, see: 50%"
    failure = cases["opinfo:mul:float32:0"].find("failure")
    assert failure is not None and failure.get("message", "").startswith("expected crash, got pass")
    assert cases["opinfo:add:float32:0"].get("classname") == "linalg.opinfo.add.float32"
    assert not list(cases["opinfo:add:float32:0"])
    assert cases[f"{file}:13"].find("failure") is not None


def test_junit_of_a_stored_run_without_expectations(capfd, path):
    out = path.with_name("junit.xml")
    code, printed, _ = invoke(capfd, "expect", "check", "--store", path, "--junit", out)
    assert code == 1 and "3 cases otherwise than expected" in printed
    assert ET.parse(out).getroot().get("failures") == "3"


def test_annotations_where_github_runs_it(capfd, path, file, monkeypatch):
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert "::" not in check(capfd, path, file)[1]
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(file.parent))
    _, out, _ = check(capfd, path, file)
    found = [line for line in out.splitlines() if line.startswith("::")]
    assert len(found) == 4 and found[0] == (
        "::error title=linalg%3A stale expectation,file=linalg.toml,line=13::op = 'zeta': matches no case of run r2"
    )
    assert any(
        line.startswith("::error title=linalg%3A improvement of opinfo%3Amul%3Afloat32%3A0,file=linalg.toml,line=3::")
        for line in found
    )
    assert "::" not in check(capfd, path, file, "--annotations", "none")[1]
    _, out, err = check(capfd, path, file, "--format", "csv")
    assert "::error" in err and "::error" not in out


@pytest.mark.parametrize(
    "args, message",
    [
        (["check"], "give at least one --expect FILE"),
        (["check", "--expect", "nowhere.toml"], "nowhere.toml: no such file"),
        (["check", "--expect", "linalg.toml", "--run", "r9"], 'unknown run "r9"'),
        (
            ["check", "--expect", "linalg.toml", "--expect", "linalg.toml"],
            "has its expectations in linalg.toml already",
        ),
        (["check", "--expect", "other.toml"], 'expectations of backend "other", but run r2 tries linalg'),
        (["check", "--expect", "bad.toml"], "bad.toml:3: give the reason"),
        (["check", "--expect", "linalg.toml", "--junit", "."], "it is a folder"),
        (["update", "--expect", "bad.toml"], "bad.toml:3: give the reason"),
        (["update", "--expect", "linalg.toml", "-b", "tosa"], 'is about backend "linalg", not "tosa"'),
        (["update", "--expect", "new.toml", "-b", "tosa"], 'expectations of backend "tosa", but run r2 tries linalg'),
        (["chekc"], "No such command"),
    ],
)
def test_bad_usage(args, message, capfd, path, file, monkeypatch):
    monkeypatch.chdir(file.parent)
    Path("other.toml").write_text('backend = "other"')
    Path("bad.toml").write_text('backend = "linalg"\n\n[[expect]]\nop = "add"\noutcome = "crash"\n')
    before = {one.name: one.read_bytes() for one in Path().iterdir() if one.suffix == ".toml"}
    code, out, err = invoke(capfd, "expect", *args, "--store", path)
    assert code == 2 and out == "" and err.startswith("error: ") and err.count("\n") == 1 and message in err, err
    assert {one.name: one.read_bytes() for one in Path().iterdir() if one.suffix == ".toml"} == before


def test_a_run_that_did_not_finish_is_not_judged(capfd, path, file):
    with Store(path) as store:
        store.finish("r2", "interrupted")
    before = file.read_bytes()
    for command in ("check", "update"):
        code, _, err = invoke(capfd, "expect", command, "--store", path, "--expect", file)
        assert code == 2 and "run r2 did not finish (interrupted)" in err
    assert file.read_bytes() == before


def test_of_several_backends_a_new_file_has_to_name_one(capfd, path, file):
    with Store(path) as store:
        run = record(store, {"add": "crash"})
        columns = "case_id, {}, source, op, dtype, variant, stage, {}, kind, message, evidence, seconds, NULL"
        of_another = columns.format("'tosa'", "'pass'")
        store._db.execute(f"INSERT INTO verdicts SELECT run, {of_another} FROM verdicts WHERE run = ?", (int(run[1:]),))
    new = file.with_name("new.toml")
    code, _, err = invoke(capfd, "expect", "update", "--store", path, "--expect", new)
    assert code == 2 and "run r3 tried linalg, tosa: name one with --backend" in err and not new.exists()
    assert invoke(capfd, "expect", "update", "--store", path, "--expect", new, "--backend", "tosa")[0] == 0
    assert load_expectations(new).backend == "tosa" and load_expectations(new).rows == ()


@pytest.mark.usefixtures("fork_server")
def test_a_run_fails_on_what_it_was_not_expected_to_do(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(TORTURE)
    store, file, junit = tmp_path / "results.sqlite", tmp_path / "faulty.toml", tmp_path / "junit.xml"
    file.write_text('backend = "faulty_backend:Faulty"\n' + row("mismatch", op="sub") + row("pass", op="mT"))
    args = ["run", "-b", "faulty_backend:Faulty", "--op", "sub", "--limit", 2, "--store", store, "--jobs", 1]
    code, out, err = invoke(capfd, *args, "--expect", file, "--junit", junit)
    assert code == 0, out + err
    assert "2 expected failures, 0 cases otherwise than expected, 0 stale rows, 1 rows about what" in out
    assert ET.parse(junit).getroot().get("failures") == "0"
    code, _, err = invoke(capfd, "run", "-b", "eager", "--op", "sub", "--store", store, "--expect", file)
    assert code == 2 and "but this run tries eager" in err
    with Store(store) as db:
        assert len(db.run_list()) == 1
        file.write_text(file.read_text().replace("mismatch", "crash"))
        held = Baseline.of([file], None, Annotations.github, ["faulty_backend:Faulty"], "this run")
        assert not conclude_run(held, db, "r1")
        out = capfd.readouterr().out
        assert "2 cases otherwise than expected" in out and out.count("\n::error ") == 2
        assert not conclude_run(Baseline(), db, "r1") and capfd.readouterr().out == ""

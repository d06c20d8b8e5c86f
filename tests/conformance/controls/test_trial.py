"""The trial of all controls: what is asked follows from a rule, failures are listed, an interrupted one goes on."""

from __future__ import annotations

import json

import pytest
import torch

from torchstone.cli import invoke
from torchstone.conformance.controls import CONTROLS, results, trial
from torchstone.conformance.controls.control import replacing
from torchstone.conformance.errors import InputError
from torchstone.conformance.sources import opinfo

WRONG = {"wrong": replacing("wrong", "None.", {"exp": lambda x: torch.exp(x) * 1.5})}
OPS = ["abs", "exp", "mm", "neg", "rand_like", "sort", "sum", "svd"]


def test_each_control_names_ops_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opinfo, "op_names", lambda: OPS)
    few = {name: CONTROLS[name] for name in ("strassen", "other_signs", "other_generator", "padded_results")}
    assert trial.choose_ops(3, few) == ["mm", "rand_like", "svd"]
    assert trial.choose_ops(100, few) == ["mm", "rand_like", "svd"]  # no control has a say in the others


def test_only_controls_that_have_a_say_are_asked() -> None:
    found = trial.try_op("sum", ["default"], ["float32"], 1)
    assert found.cases == 1 and not found.failures
    assert {"reversed_sums", "padded_results"} <= found.outcomes.keys()
    assert not {"strassen", "other_signs", "other_generator"} & found.outcomes.keys()


def test_a_wrong_one_is_listed_with_how_to_replay_it() -> None:
    found = trial.try_op("exp", ["default", "special"], ["float32"], 1, WRONG)
    assert found.outcomes == {"wrong": {"mismatch": 2}}
    assert [failure["case"] for failure in found.failures] == ["opinfo:exp:float32:0", "opinfo:exp:float32:0:special"]
    assert results.replay_command(found.failures[0]).endswith("--backend torchstone.conformance.controls:wrong")


def test_what_eager_computed_counts_as_no_verdict() -> None:
    found = trial.try_op("sum", ["default"], ["int64"], 1, {"reversed_sums": CONTROLS["reversed_sums"]})
    assert found.outcomes == {"reversed_sums": {results.SAME: 1}}
    row, everything = results.table_rows([found])
    assert (row["verdicts"], everything["failed"]) == (0, 0)


def test_the_command_journals_and_goes_on(tmp_path, capsys, monkeypatch) -> None:
    journal = tmp_path / "a" / "journal.jsonl"
    common = [
        "controls",
        "--out",
        str(journal),
        "--op",
        "sum",
        "--op",
        "mm",
        "--variant",
        "default",
        "--format",
        "json",
    ]
    common += ["--control", "*_sums"]
    assert invoke(common) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[-1]["control"] == "all" and rows[-1]["verdicts"] == rows[-1]["pass"] == 12
    monkeypatch.setattr(trial, "try_op", lambda *given: pytest.fail("it was tried again"))
    assert invoke(common) == 0
    assert json.loads(capsys.readouterr().out) == rows


def test_a_failure_is_exit_code_1_and_a_command_to_replay_it(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setitem(CONTROLS, "wrong", WRONG["wrong"])
    common = ["controls", "--out", str(tmp_path / "journal"), "--op", "exp", "--variant", "default"]
    assert invoke([*common, "--control", "wrong"]) == 1
    assert "torchstone replay opinfo:exp:float32:0 --backend" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--control", "strasen"], 'unknown control "strasen" (did you mean "strassen"?)'),
        (["--control", "zzz*"], 'no control matches "zzz*"'),
        (["--op", "summ"], 'unknown op "summ"'),
        (["--variant", "specil", "--op", "sum"], 'unknown variant "specil"'),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments: list[str], message: str, capsys) -> None:
    assert invoke(["controls", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_the_listing(capsys) -> None:
    assert invoke(["controls", "--list", "--format", "json"]) == 0
    assert [row["control"] for row in json.loads(capsys.readouterr().out)] == list(CONTROLS)


def test_a_journal_that_is_none(tmp_path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"ops": "sum"}\n')
    with pytest.raises(InputError, match=r"journal.jsonl:1: not a line of a trial of controls"):
        results.read_journal(path)

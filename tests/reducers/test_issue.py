"""The text of an issue: what it says of each kind of failure, and that it stays whole whatever the case has in it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from markdown_it import MarkdownIt

from torchstone.conformance.escape import markdown
from torchstone.conformance.execution.verdict import Kind, Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.reducers import issue, write
from torchstone.reducers.failure import Reduction
from torchstone.reducers.signature import signature

PROGRAM = Program(("x",), (Call("torch.expm1", (Ref("x"),), {}, "y"),), Ref("y"))
CASE = Case(PROGRAM, {"x": torch.tensor([-0.00127995])}, "opinfo", "expm1", "float32")
EVIDENCE = {
    "where": "output", "index": [0], "expected": -0.0012791313929483294, "actual": -0.0012791156768798828,
    "float64": -0.001279131355096544, "ulps": 135.0,
}  # fmt: skip
WRONG = Verdict(
    CASE.id, "eager", "opinfo", "expm1", "float32", "default", Stage.COMPARE, Outcome.MISMATCH, Kind.VALUE,
    "output[0]: expected -0.0012791313929483294, got -0.0012791156768798828", EVIDENCE,
)  # fmt: skip


def reduction(verdict: Verdict) -> Reduction:
    return Reduction(CASE, CASE, "eager", signature(verdict), verdict, (), 1, 0.1, True, True)


@pytest.mark.parametrize(
    ("changes", "symptom"),
    [
        ({}, "wrong value"),
        ({"kind": Kind.DTYPE}, "wrong dtype"),
        ({"kind": Kind.LATER_CALL}, "wrong in a call after the first"),
        ({"outcome": Outcome.CRASH, "kind": "", "stage": Stage.RUN}, "the compiler ends the process (stage run)"),
        ({"outcome": Outcome.ERROR, "kind": "", "message": "KeyError: 3\n  in f"}, "KeyError: 3"),
    ],
)
def test_a_title_names_op_dtype_and_symptom(changes, symptom):
    assert issue.title(CASE, replace(WRONG, **changes)) == f"torch.expm1 (float32): {symptom}"


def test_every_kind_of_mismatch_has_words():
    assert {issue.symptom(replace(WRONG, kind=kind)) for kind in Kind} & {"wrong result"} == set()


def test_an_issue_has_the_numbers_the_script_and_the_versions():
    text = issue.issue(reduction(WRONG), "reproducer.py")
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    blocks = [token.content for token in tokens if token.type == "fence"]
    assert blocks[1].rstrip() == reduction(WRONG).script.rstrip()
    for row in ("| index | \\[0\\] |", "| ULPs off | 135.0 |", f"- torch {markdown(torch.__version__)}"):
        assert row in text
    assert text.startswith("# torch.expm1 (float32): wrong value\n")


def test_an_issue_names_the_stage_and_what_it_was_given(tmp_path):
    texts = {"before": ("contract", "aten.expm1 \udc80"), "after": ("flat", "flat.exp")}
    told = replace(reduction(WRONG), blame="expansions: aten.expm1.default", texts=texts)
    write.write_reduction(told, tmp_path)
    assert (
        "The first stage that shows it: expansions: aten.expm1.default. "
        "Attached is the program before it (`before.txt`, contract) and after it (`after.txt`, flat)."
    ) in (tmp_path / "issue.md").read_text()
    assert (tmp_path / "before.txt").read_text() == "aten.expm1 \\udc80"
    assert (tmp_path / "after.txt").read_text() == "flat.exp"
    write.write_reduction(reduction(WRONG), tmp_path)
    assert not (tmp_path / "before.txt").exists() and "first stage" not in (tmp_path / "issue.md").read_text()


def test_a_long_script_is_attached(monkeypatch):
    monkeypatch.setattr(issue, "MOST", 10)
    text = issue.issue(reduction(WRONG), "reproducer.py")
    assert "Run `reproducer.py`, which is attached." in text and "def program" not in text


@pytest.mark.parametrize(("code", "outcome"), [(0, "1 passed"), (1, "1 failed")])
def test_the_test_fails_for_as_long_as_the_script_does(tmp_path, code, outcome):
    write.write_reduction(reduction(WRONG), tmp_path)
    (tmp_path / write.SCRIPT).write_text(f"import sys\nsys.exit({code})\n")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / write.TEST)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert outcome in done.stdout

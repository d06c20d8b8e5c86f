"""A case that fails because of cases before it in its worker: those that matter are found, and said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.runner import predecessors
from torchstone.conformance.runner.predecessors import Budget, Suspects, explain, minimal
from torchstone.conformance.runner.retry import CaseResult
from torchstone.conformance.runner.run import run_cases
from torchstone.conformance.store import Store

HERE = Path(__file__).parents[1] / "helpers"
OPS = [
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "exp", "deg2rad", "erf", "erfc", "expm1", "floor", "frac",
    "isnan", "log", "log10", "log1p", "log2", "neg", "tan", "rad2deg", "relu", "round", "rsqrt", "sigmoid", "sign",
    "sinh", "sqrt", "square",
]  # fmt: skip


def case_of(op: str) -> Case:
    program = Program(("x0",), (Call(f"torch.{op}", (Ref("x0"),), {}, "r0"),), Ref("r0"))
    return Case(program, {"x0": torch.linspace(0.1, 0.9, 6)}, "test", op, "float32")


CASES = {case_of(op).id: case_of(op) for op in [*OPS, "sin"]}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predecessors, "find_case", CASES.__getitem__)
    monkeypatch.chdir(HERE)


@pytest.mark.parametrize("needed", [{0}, {29}, {3, 4}, {7, 20}, {0, 29}, {1, 11, 21}])
def test_none_of_the_items_left_can_be_left_out(needed: set[int]) -> None:
    asked: list[int] = []

    def fails(items: Sequence[int]) -> bool:
        asked.append(len(items))
        return needed <= set(items)

    assert set(minimal(list(range(30)), fails)) == needed  # type: ignore[arg-type]
    assert len(asked) < 60


def verdict(case: Case, outcome: Outcome, kind: str = "") -> Verdict:
    return Verdict(case.id, "leaking", "test", case.op, "float32", "default", Stage.COMPARE, outcome, kind, "m")


def failing() -> CaseResult:
    case = CASES["test:sin:float32:0"]
    return CaseResult(case, verdict(case, Outcome.MISMATCH, "value"), b"", tuple(CASES)[:-1])


def leaks(cases: Sequence[Case]) -> Verdict:
    wrong = {"exp", "tan"} <= {case.op for case in cases}
    return verdict(cases[-1], Outcome.MISMATCH, "value") if wrong else verdict(cases[-1], Outcome.PASS)


def test_the_evidence_names_the_cases_and_the_command() -> None:
    notes: list[str] = []
    ((_, found),) = explain([failing()], leaks, notes.append)
    assert found.outcome is Outcome.FLAKY
    assert found.evidence["after"] == ["test:exp:float32:0", "test:tan:float32:0"]
    assert found.evidence["replay"] == (
        "torchstone replay test:sin:float32:0 --backend leaking --after test:exp:float32:0 --after test:tan:float32:0"
    )
    assert "search" not in found.evidence
    assert len(notes) == 2 and "pass alone" in notes[0]


def test_a_case_that_fails_alone_needs_none() -> None:
    assert not list(explain([failing()], lambda cases: verdict(cases[-1], Outcome.MISMATCH, "value"), print))


def test_one_that_does_not_fail_again_says_so() -> None:
    ((_, found),) = explain([failing()], lambda cases: verdict(cases[-1], Outcome.PASS), lambda text: None)
    assert found.evidence["search"] == "it does not fail again after the 30 cases before it, one by one"


def test_the_search_is_bounded() -> None:
    budget = Budget(runs=8)
    ((_, found),) = explain([failing()], leaks, lambda text: None, budget)
    assert budget.runs >= -1
    assert "fewer cases may do" in found.evidence["search"]
    assert {"test:exp:float32:0", "test:tan:float32:0"} <= set(found.evidence["after"])
    assert not list(explain([failing()], leaks, lambda text: None, Budget(runs=0)))
    ((_, found),) = explain([failing()], leaks, lambda text: None, Budget(cases=40))
    assert "fewer cases may do" in found.evidence["search"]


def test_of_alike_failures_one_is_asked() -> None:
    suspects = Suspects()
    for _ in range(3):
        suspects.add(failing())
    suspects.add(CaseResult(CASES["test:sin:float32:0"], verdict(CASES["test:sin:float32:0"], Outcome.ERROR), b""))
    assert len(suspects) == 1


@pytest.mark.few(1)
@pytest.mark.parametrize(("backend", "first"), [("Leaking", "mismatch"), ("Aborting", "crash")])
def test_a_run_finds_the_two_cases_that_matter(backend: str, first: str, tmp_path: Path) -> None:
    wanted = ["exp", "abs", "tan", "sin"]
    notes: list[str] = []
    name = f"leaking_backend:{backend}"
    with Store(tmp_path / "store.sqlite") as store:
        run = store.new_run("test", {}, {})
        cases = [CASES[f"test:{op}:float32:0"] for op in wanted]
        run_cases(lambda: cases, [name], store, run, on_note=notes.append)
        store.finish(run, "finished")
        (row,) = [row for row in store.iter_verdicts(run) if row[0] == "test:sin:float32:0"]
    assert row[7] == "flaky" and row[9].startswith(f"{first} after test:exp:float32:0, test:tan:float32:0 (")

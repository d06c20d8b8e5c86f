"""Which failures are counted as one, and in what order findings are listed."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from tests import mutants
from torchstone.conformance.execution.verdict import Kind, Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.program.program import Call, Program
from torchstone.fuzz.cause import Cause
from torchstone.fuzz.findings import Findings, FuzzFinding
from torchstone.reducers.asking import answered
from torchstone.reducers.signature import signature


def _case(*targets: str) -> Case:
    """A chain of binary calls, each on the result of the one before and the second input."""
    calls, last = [], "x0"
    for at, target in enumerate(targets):
        calls.append(Call(f"torch.{target}", (Ref(last), Ref("x1")), {}, f"v{at}"))
        last = f"v{at}"
    inputs = {"x0": torch.tensor([1.0, 2.0]), "x1": torch.tensor([3.0, 5.0])}
    return Case(Program(("x0", "x1"), tuple(calls), Ref(last)), inputs, "test", "+".join(targets), "float32")


def _judge(backend):
    def judge(case: Case) -> Verdict:
        got = backend.compile(case.program, case.args)(*case.fresh_args())
        same = torch.equal(got, case.program(*case.fresh_args()))
        outcome = Outcome.PASS if same else Outcome.MISMATCH
        return Verdict(case.id, "mutant", "", "", "", "", Stage.COMPARE, outcome, "" if same else "value")

    return judge


def _finding(case: Case, verdict: Verdict) -> FuzzFinding:
    return FuzzFinding(signature(verdict), case, verdict, seen=[case.id])


def test_a_wrong_result_is_blamed_on_the_finding_whose_ops_it_calls():
    judge = _judge(mutants.swapped_sub)
    findings = Findings()
    known = findings.add(_finding(_case("sub"), judge(_case("sub"))))
    longer = _case("mul", "sub", "add")
    assert answered(findings.unexplained(longer, judge(longer)), judge) is None
    assert len(known.seen) == 2


def test_a_bug_that_hides_behind_a_known_one_is_seen():
    both = mutants.MutatedEager("both", {**mutants.swapped_sub.wrong, torch.ops.aten.atan2: mutants.swapped})
    judge = _judge(both)
    findings = Findings()
    findings.add(_finding(_case("sub"), judge(_case("sub"))))
    start = _case("mul", "sub", "atan2")
    rest = answered(findings.unexplained(start, judge(start)), judge)
    assert rest is not None
    assert [call.target for call in rest.program.calls] == ["torch.atan2"]


def test_a_wrong_result_of_other_ops_is_news():
    judge = _judge(mutants.swapped_sub)
    findings = Findings()
    findings.add(_finding(_case("atan2"), judge(_case("sub"))))
    start = _case("sub")
    assert answered(findings.unexplained(start, judge(start)), judge) is start


@pytest.mark.parametrize("kind, one", [("dtype", True), ("aliasing", True), ("value", False)])
def test_an_op_that_fails_alike_in_the_place_of_another_is_of_one_finding_with_it(kind, one):
    def judge(case: Case) -> Verdict:
        wrong = any(call.target in ("torch.sub", "torch.atan2") for call in case.program.calls)
        outcome = Outcome.MISMATCH if wrong else Outcome.PASS
        return Verdict(case.id, "", "", "", "", "", Stage.COMPARE, outcome, kind if wrong else "")

    findings = Findings()
    known = findings.add(_finding(_case("sub"), judge(_case("sub"))))
    for start in (_case("mul", "atan2"), _case("atan2", "add")):
        assert (answered(findings.unexplained(start, judge(start)), judge) is None) is one
    assert known.relatives == ({"atan2"} if one else set())
    assert known.to_json().get("relatives") == (["atan2"] if one else None)
    assert len(known.seen) == (3 if one else 1)


def test_wrong_numbers_behind_a_random_op_are_blamed_on_what_made_them():
    judge, findings = _judge(mutants.swapped_sub), Findings()
    findings.add(_finding(_case("sub"), judge(_case("sub"))))
    drawn = _case("sub", "add")
    assert answered(findings.unexplained(drawn, dataclasses.replace(judge(drawn), kind="distribution")), judge) is None
    assert answered(findings.unexplained(drawn, dataclasses.replace(judge(drawn), kind="dtype")), judge) is drawn


def test_errors_are_one_if_they_say_the_same():
    findings = Findings()
    error = Verdict("a", "b", "", "", "", "", Stage.LOWER, Outcome.ERROR, "", "no rule for x1 of shape [2, 3]")
    same = dataclasses.replace(error, message="no rule for x0 of shape [7]")
    other = dataclasses.replace(error, stage=Stage.RUN)
    findings.add(_finding(_case("sub"), error))
    assert answered(findings.unexplained(_case("add"), same), lambda case: same) is None
    assert answered(findings.unexplained(_case("add"), other), lambda case: other) is not None


def test_two_reductions_that_end_in_the_same_ops_are_one_finding():
    findings = Findings()
    verdict = _judge(mutants.swapped_sub)(_case("sub"))
    first = findings.add(_finding(_case("sub"), verdict))
    assert findings.add(_finding(_case("sub"), verdict)) is first
    assert (len(findings), len(first.seen)) == (1, 2)


@pytest.mark.parametrize("kind", [Kind.DISTRIBUTION, Kind.MUTATION])
@pytest.mark.parametrize("wide_first", [True, False])
def test_what_any_op_does_with_a_trait_is_one_finding_with_what_one_op_does(wide_first, kind):
    """Numbers drawn by a wrong one are of a wrong distribution, and written ones are in an input."""
    verdict = _judge(mutants.swapped_sub)(_case("sub"))
    drawn = dataclasses.replace(verdict, kind=kind)
    wide, one = _finding(_case("sub"), verdict), _finding(_case("atan2"), drawn)
    wide.cause = Cause(frozenset(), frozenset(["lazy negative"]))
    one.cause = Cause(frozenset(["normal"]), frozenset(["bfloat16", "lazy negative"]))
    findings = Findings()
    first, second = (wide, one) if wide_first else (one, wide)
    assert findings.add(first) is first and findings.add(second) is first
    assert first.cause == Cause(frozenset(), frozenset(["lazy negative"]))
    other = _finding(_case("sub"), verdict)
    other.cause = Cause(frozenset(["sub"]), frozenset(["int16"]))
    assert findings.add(other) is other


def test_the_worst_and_the_most_frequent_come_first():
    findings = Findings()
    for outcome, target, count in (
        (Outcome.ERROR, "add", 9),
        (Outcome.MISMATCH, "sub", 1),
        (Outcome.MISMATCH, "mul", 3),
        (Outcome.CRASH, "div", 1),
    ):
        verdict = Verdict("a", "b", "", "", "", "", Stage.RUN, outcome)
        finding = findings.add(_finding(_case(target), verdict))
        finding.seen = ["x"] * count
    assert [finding.best.op for finding in findings.ranked()] == ["div", "mul", "sub", "add"]
    assert len({finding.name for finding in findings.ranked()}) == 4


def test_an_op_and_its_in_place_form_are_one_finding():
    findings, verdict = Findings(), _judge(mutants.swapped_sub)(_case("sub"))
    first = findings.add(_finding(_case("sub"), verdict))
    in_place = _case("Tensor.sub_")
    assert first.ops == {"sub"}
    assert answered(findings.unexplained(in_place, verdict), lambda case: verdict) is None
    assert findings.add(_finding(in_place, verdict)) is first
    assert len(first.seen) == 3

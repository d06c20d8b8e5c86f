"""What a finding comes down to, and what is generated once that is known."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from torchstone.conformance.errors import InputError
from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.program.program import Call, Program
from torchstone.fuzz import saved
from torchstone.fuzz.campaign import CampaignOptions, Tally
from torchstone.fuzz.cause import Cause, find_cause
from torchstone.fuzz.causes import Causes, needs
from torchstone.fuzz.findings import Findings, FuzzFinding
from torchstone.fuzz.traits import CHANGES, put, traits, without
from torchstone.reducers.asking import answered
from torchstone.reducers.signature import signature


def _case(target: str, tensor: torch.Tensor, *more: str) -> Case:
    calls = [Call(f"torch.{target}", (Ref("x0"),), {}, "v0")]
    calls += [Call(f"torch.{name}", (Ref(f"v{at}"),), {}, f"v{at + 1}") for at, name in enumerate(more)]
    program = Program(("x0",), tuple(calls), Ref(calls[-1].result))
    return Case(program, {"x0": tensor}, "test", "+".join([target, *more]), "float32")


def _plain() -> torch.Tensor:
    return torch.tensor([[1.0, 2.0], [3.0, 4.0]])


def _judge(fails):
    def judge(case: Case) -> Verdict:
        wrong = fails(case)
        outcome, kind = (Outcome.MISMATCH, "value") if wrong else (Outcome.PASS, "")
        return Verdict(case.id, "b", "test", case.op, case.dtype, case.variant, Stage.COMPARE, outcome, kind)

    return judge


def _is_strided(case: Case) -> bool:
    return any(not tensor.is_contiguous() for tensor in case.args)


def _calls_exp_of_halves(case: Case) -> bool:
    called = [call.target for call in case.program.calls]
    return "torch.exp" in called and case.args[0].dtype == torch.float16


def _cause(case: Case, judge) -> Cause:
    return answered(find_cause(case, RIGHT, lambda verdict: verdict.failed), judge)


RIGHT = [_case(name, _plain()) for name in ("abs", "neg", "sin", "cos")]


def _found(case: Case, judge) -> FuzzFinding:
    verdict = judge(case)
    return FuzzFinding(signature(verdict), case, verdict, seen=[case.id])


def test_a_layout_that_makes_programs_of_any_op_fail_is_the_cause():
    judge = _judge(_is_strided)
    cause = _cause(_case("exp", _plain().t()), judge)
    assert (cause.ops, cause.traits) == (frozenset(), {"not contiguous"})
    assert str(cause) == "any op with not contiguous"


def test_a_dtype_that_one_op_is_wrong_for_is_the_op_s():
    judge = _judge(_calls_exp_of_halves)
    cause = _cause(_case("exp", _plain().half()), judge)
    assert (cause.ops, cause.traits) == ({"exp"}, {"float16"})


def test_what_the_failure_can_do_without_is_no_part_of_the_cause():
    cause = _cause(_case("exp", -_plain().t()), _judge(lambda case: True))
    assert (cause.ops, cause.traits) == ({"exp"}, frozenset())


def test_findings_of_other_ops_with_the_same_cause_are_one():
    judge, findings = _judge(_is_strided), Findings()
    for name in ("exp", "tanh"):
        finding = _found(_case(name, _plain().t()), judge)
        answered(findings.explain(finding, RIGHT), judge)
        findings.add(finding)
    (only,) = findings.ranked()
    assert len(only.seen) == 2


def _product(x: torch.Tensor, y: torch.Tensor) -> Case:
    program = Program(("x0", "x1"), (Call("torch.mul", (Ref("x0"), Ref("x1")), {}, "v0"),), Ref("v0"))
    return Case(program, {"x0": x, "x1": y}, "test", "mul", "float32")


def _explained(causes: Causes, case: Case, judge) -> FuzzFinding:
    finding = _found(case, judge)
    answered(causes.explain(finding, ()), judge)
    return causes.add(finding)


def test_of_one_op_findings_are_one_that_need_the_same_of_the_input():
    judge, causes = _judge(lambda case: len({t.dtype for t in case.args}) > 1), Causes()
    first = _explained(causes, _product(_plain().half(), torch.tensor(-1.0)), judge)
    assert _explained(causes, _product(_plain().bfloat16(), _plain()[0]), judge) is first
    assert causes.ranked() == [first] and needs(first) == {"mixed dtypes"}


def test_of_one_op_what_fails_on_less_takes_the_place_of_what_is_found_of_more():
    strided, judge, causes = _judge(_is_strided), _judge(lambda case: True), Causes()
    first = _explained(causes, _product(_plain().t(), _plain()), strided)
    assert needs(first) == {"not contiguous"}
    second = _explained(causes, _product(_plain(), _plain()), judge)
    assert causes.ranked() == [second] and len(second.seen) == 2 and second.name != first.name


def test_a_known_layout_is_taken_out_of_what_is_generated():
    judge, findings = _judge(_is_strided), Findings()
    finding = _found(_case("exp", _plain().t()), judge)
    answered(findings.explain(finding, RIGHT), judge)
    findings.add(finding)
    spared = findings.spared(_case("sinh", _plain().t()))
    assert spared is not None and not _is_strided(spared)
    torch.testing.assert_close(spared.args[0], _plain().t(), rtol=0, atol=0)
    plain = _case("sinh", _plain())
    assert findings.spared(plain) is plain


def test_an_op_is_left_out_once_most_programs_that_call_it_failed():
    judge, findings = _judge(lambda case: any(call.target == "torch.exp" for call in case.program.calls)), Findings()
    finding = _found(_case("exp", _plain()), judge)
    answered(findings.explain(finding, RIGHT), judge)
    findings.add(finding)
    longer = _case("exp", _plain() / 8, "sin")
    assert findings.spared(longer) is longer
    for _ in range(3):
        findings.note(longer, judge(longer))
    spared = findings.spared(longer)
    assert spared is not None and [call.target for call in spared.program.calls] == ["torch.sin"]
    assert findings.spared(_case("exp", _plain())) is None
    assert findings.spared(longer, kept=["exp"]) is longer


@pytest.mark.parametrize("name", sorted({"not contiguous", "offset", "lazy negative", "expanded", "0-d", "bfloat16"}))
def test_a_trait_is_given_and_taken_away(name):
    like = {
        "not contiguous": _plain().t(),
        "offset": torch.zeros(6)[2:].view(2, 2),
        "lazy negative": CHANGES["lazy negative"].put(_plain(), _plain()),
        "expanded": torch.ones(1, 2).expand(2, 2),
        "0-d": torch.tensor(2.0),
        "bfloat16": _plain().bfloat16(),
    }[name]
    has = put(_case("neg", _plain()), name, _case("neg", like))
    assert has is not None and name in traits(has)
    lost = without(has, [name])
    assert lost is not None and name not in traits(lost)


def test_a_campaign_goes_on_with_what_it_had_found(tmp_path):
    plan = CampaignOptions("eager", 60.0, 7, tmp_path)
    judge, tally = _judge(_is_strided), Tally(tried=9, drawn=12, pending=[4, 11])
    finding = _found(_case("exp", _plain().t()), judge)
    answered(tally.findings.explain(finding, RIGHT), judge)
    tally.findings.add(finding)
    (tmp_path / finding.name).mkdir()
    finding.case.save(tmp_path / finding.name / "case.safetensors")
    saved.save(plan, tally, finished=False)

    again = Tally()
    assert saved.resume(plan, again)
    assert (again.tried, again.drawn, again.pending) == (9, 12, [4, 11])
    (found,) = again.findings.ranked()
    assert (found.name, found.cause, found.signature) == (finding.name, finding.cause, finding.signature)
    assert again.findings.spared(_case("sinh", _plain().t())) is not None
    assert not saved.resume(dataclasses.replace(plan, seed=8), Tally())
    (known,) = saved.known_findings(tmp_path, "eager")
    assert known.known and known.cause == finding.cause
    assert not saved.known_findings(tmp_path, "linalg")
    saved.save(plan, tally, finished=True)
    assert not saved.resume(plan, Tally())


def test_a_campaign_s_file_of_another_form_is_refused(tmp_path):
    plan = CampaignOptions("eager", 60.0, 7, tmp_path)
    saved.save(plan, Tally(), finished=False)
    path = tmp_path / saved.CAMPAIGN
    path.write_text(path.read_text().replace('"outcomes": {}', '"outcomes": {"fine": 3}'))
    with pytest.raises(InputError, match="is no campaign's"):
        saved.resume(plan, Tally())

"""The order in which failures are sorted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from torchstone.conformance.execution.verdict import Kind, Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.program.program import Call, Program
from torchstone.conformance.runner.retry import Trial
from torchstone.fuzz.campaign import CampaignOptions, Tally, count
from torchstone.fuzz.findings import FuzzFinding
from torchstone.fuzz.triage import Triage
from torchstone.reducers.signature import signature


class Held:
    """A desk that makes no trial: it says of which cases there is one to make, and is told what came of them."""

    jobs = 2

    def __init__(self) -> None:
        self.trials: dict[str, tuple[Trial, Any, Callable[[Any], None]]] = {}

    @property
    def trying(self) -> list[str]:
        return list(self.trials)

    def drive(self, trying: Any, done: Callable[[Any], None]) -> None:
        trial = next(trying)
        self.trials[trial.case.op] = trial, trying, done

    def answer(self, op: str, verdict: Verdict) -> None:
        _, trying, done = self.trials.pop(op)
        try:
            self.trials[op] = trying.send(verdict), trying, done
        except StopIteration as end:
            done(end.value)

    def finish(self) -> str:
        """What is being sorted is done with: say what comes next."""
        (op,) = self.trials
        self.trials.pop(op)[2](None)
        return "".join(self.trials)


def failure(
    op: str, seconds: float, outcome: Outcome = Outcome.ERROR, evidence: Mapping[str, Any] = {}
) -> tuple[Case, Verdict]:
    program = Program(("x0",), (Call("torch.abs", (Ref("x0"),), {}, "v0"),), Ref("v0"))
    case = Case(program, {"x0": torch.ones(2)}, "test", op, "float32")
    about = case.id, "b", case.source, case.op, case.dtype, case.variant
    return case, Verdict(*about, Stage.COMPARE, outcome, "", "wrong", dict(evidence), seconds)


def triage_of(desk: Held, tally: Tally, folder: Path) -> Triage:
    return Triage(CampaignOptions("b", 60.0, 0, folder), tally, cast(Any, desk), together=False, quick=True)


def test_the_quickest_of_those_that_wait_is_sorted_first(tmp_path: Path):
    """A reduction tries it hundreds of times. Among quick ones the order is that of arrival."""
    desk = Held()
    triage = triage_of(desk, Tally(), tmp_path)
    for op, seconds in (("first", 9.0), ("slow", 8.0), ("quick", 0.3), ("quicker", 0.1), ("middling", 2.0)):
        triage.add(*failure(op, seconds))
    order = ["".join(desk.trying), *(desk.finish() for _ in range(4))]
    assert order == ["first", "quick", "quicker", "middling", "slow"]


@pytest.mark.parametrize("outcome", [Outcome.MISMATCH, Outcome.ILL_CONDITIONED])
def test_a_mismatch_by_few_runs_is_judged_in_full_before_it_is_a_finding(outcome: Outcome, tmp_path: Path):
    desk, tally, forgotten = Held(), Tally(), []
    triage = triage_of(desk, tally, tmp_path)
    case, verdict = failure("off", 0.1, Outcome.MISMATCH)
    count(tally, case, verdict)
    triage.add(case, verdict, lambda: forgotten.append(case.op))
    assert desk.trials["off"][0].case is case and not desk.trials["off"][0].quick
    desk.answer("off", replace(verdict, outcome=outcome))
    assert tally.outcomes == {str(outcome): 1} and not tally.findings.ranked()
    if outcome is Outcome.MISMATCH:
        assert desk.trying == ["off"] and not forgotten and len(triage) == 1, "it is being reduced"
    else:
        assert forgotten == ["off"] and not triage.leave()


def test_suspicions_are_judged_side_by_side_while_nothing_is_reduced(tmp_path: Path):
    """What is ill-conditioned is off by little: what is far off comes first."""
    desk, tally = Held(), Tally()
    triage = triage_of(desk, tally, tmp_path)
    triage.add(*failure("crash", 0.1, Outcome.CRASH))
    off: dict[str, tuple[float | str, float | str]] = {
        "little": (1e-5, 1e-4), "of little": (1e-5, 7.0), "very little": (0.0, 0.0),
        "much": (3.0, 0.5), "NaN": ("nan", "nan"),
    }  # fmt: skip
    verdicts = {}
    for op, (error, relative) in off.items():
        case, verdicts[op] = failure(op, 0.1, Outcome.MISMATCH, {"error": error, "relative": relative})
        count(tally, case, verdicts[op])
        triage.add(case, verdicts[op])
    assert desk.trying == ["crash"], "it is being reduced"
    assert desk.finish() == "NaNmuch" and len(triage) == 5
    right = {op: replace(verdict, outcome=Outcome.ILL_CONDITIONED) for op, verdict in verdicts.items()}
    desk.answer("NaN", right["NaN"])
    assert desk.trying == ["much", "little"]
    desk.answer("much", verdicts["much"])
    assert desk.trying == ["little", "much"], "it is being reduced, and no other is begun"
    desk.answer("little", right["little"])
    assert desk.trying == ["much"]
    assert [case.op for case in triage.leave()] == ["of little", "very little"] and len(tally.findings.ranked()) == 1


def test_who_leaves_is_told_of_what_is_being_judged(tmp_path: Path):
    triage = triage_of(Held(), Tally(), tmp_path)
    for op in ("one", "two", "three"):
        triage.add(*failure(op, 0.1, Outcome.MISMATCH))
    assert [case.op for case in triage.leave()] == ["one", "two", "three"]


def untested(verdict: Verdict) -> Verdict:
    return replace(verdict, outcome=Outcome.UNTESTED, message="judging it took over 10 s in all")


def unjudged(folder: Path) -> tuple[Held, Tally, Triage, Verdict]:
    """A suspicion that took too long to judge, and is being reduced as it is."""
    desk, tally = Held(), Tally()
    triage = triage_of(desk, tally, folder)
    case, verdict = failure("off", 0.1, Outcome.MISMATCH)
    count(tally, case, verdict)
    triage.add(case, verdict)
    desk.answer("off", untested(verdict))
    assert desk.trials["off"][0].quick and len(triage) == 1
    return desk, tally, triage, verdict


def test_a_suspicion_that_takes_too_long_to_judge_is_a_finding_once_a_smaller_one_is_judged(tmp_path: Path):
    desk, tally, triage, verdict = unjudged(tmp_path)
    while desk.trials and not desk.trials["off"][0].fresh:
        desk.answer("off", verdict)
    assert not tally.findings.ranked()
    while desk.trials:
        desk.answer("off", verdict)
    (finding,) = tally.findings.ranked()
    assert finding.reduction is not None and finding.reduction.confirmed and not triage
    assert tally.outcomes == {"mismatch": 1}


@pytest.mark.parametrize("last", [Outcome.ILL_CONDITIONED, Outcome.UNTESTED, Outcome.PASS])
def test_a_suspicion_of_which_nothing_is_judged_wrong_is_none(last: Outcome, tmp_path: Path):
    desk, tally, triage, verdict = unjudged(tmp_path)
    while desk.trials:
        desk.answer("off", verdict if desk.trials["off"][0].quick else replace(untested(verdict), outcome=last))
    assert not tally.findings.ranked() and not triage and not triage.leave()
    assert tally.outcomes == {"untested": 1}


def test_a_suspicion_that_is_off_by_little_and_takes_too_long_to_judge_is_none(tmp_path: Path):
    desk, tally = Held(), Tally()
    triage = triage_of(desk, tally, tmp_path)
    case, verdict = failure("off", 0.1, Outcome.MISMATCH, {"error": 0.02, "relative": 3.0})
    count(tally, case, verdict)
    triage.add(case, verdict)
    desk.answer("off", untested(verdict))
    assert not desk.trials and not triage and tally.outcomes == {"untested": 1}


def test_a_suspicion_that_is_left_before_it_is_judged_is_no_finding(tmp_path: Path):
    _, tally, triage, _ = unjudged(tmp_path)
    assert [case.op for case in triage.leave()] == ["off"] and not tally.findings.ranked()


def test_real_failures_and_suspicions_come_before_what_takes_too_long_to_judge(tmp_path: Path):
    desk, tally = Held(), Tally()
    triage = triage_of(desk, tally, tmp_path)
    verdicts = {}
    for op in ("long", "other"):
        case, verdicts[op] = failure(op, 0.1, Outcome.MISMATCH)
        count(tally, case, verdicts[op])
        triage.add(case, verdicts[op])
    desk.answer("long", untested(verdicts["long"]))
    assert desk.trying == ["other"], "nothing is reduced while a suspicion is judged"
    desk.answer("other", verdicts["other"])
    assert desk.trying == ["other"] and desk.trials["other"][0].quick, "it is being reduced"
    desk.finish()
    assert desk.trying == ["long"] and desk.trials["long"][0].quick


def beside_one_that_fails_alike(
    outcome: Outcome, kind: Kind | str, folder: Path
) -> tuple[Held, Tally, Triage, Verdict, list[str]]:
    """A failure that is being reduced, where a finding has its symptom; and which failures are done with."""
    desk, tally, forgotten = Held(), Tally(), []
    case, verdict = failure("one", 0.1, outcome)
    verdict = replace(verdict, kind=kind)
    tally.findings.add(FuzzFinding(signature(verdict), case, verdict, seen=[case.id]))
    triage = Triage(CampaignOptions("b", 60.0, 0, folder), tally, cast(Any, desk), together=False)
    case, _ = failure("two", 0.1, outcome)
    case = case.replace(program=replace(case.program, calls=(replace(case.program.calls[0], target="torch.neg"),)))
    triage.add(case, verdict, lambda: forgotten.append("two"))
    desk.answer("one", replace(verdict, outcome=Outcome.PASS))  # this one's op in the place of the other's
    assert desk.trials["one"][0].case.op == "two", "it is being reduced"
    return desk, tally, triage, verdict, forgotten


@pytest.mark.parametrize("reduced", [False, True])
@pytest.mark.parametrize(("outcome", "kind"), [(Outcome.CRASH, ""), (Outcome.MISMATCH, Kind.ALIASING)])
def test_what_was_not_reduced_at_all_is_no_other_finding_than_one_that_fails_alike(
    outcome: Outcome, kind: Kind | str, reduced: bool, tmp_path: Path
):
    _, tally, triage, _, _ = beside_one_that_fails_alike(outcome, kind, tmp_path)
    if reduced:
        triage._simpler(failure("two", 0.1, outcome)[0])
    assert [case.op for case in triage.leave()] == ([] if reduced else ["two"])
    assert len(tally.findings.ranked()) == 1 + reduced


def test_what_is_left_unsorted_is_not_done_with_before_the_campaign_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It would be lost if the campaign were killed."""
    monkeypatch.setattr(CampaignOptions, "seconds_of_one", 0.0)
    desk, tally, triage, verdict, forgotten = beside_one_that_fails_alike(Outcome.CRASH, "", tmp_path)
    while desk.trials:
        desk.answer("one", verdict)
    assert not forgotten and not triage and len(tally.findings.ranked()) == 1
    assert [case.op for case in triage.leave()] == ["two"]


def test_what_does_not_fail_again_is_a_finding_beside_one_that_failed_alike(tmp_path: Path):
    desk, tally, triage, verdict, forgotten = beside_one_that_fails_alike(Outcome.CRASH, "", tmp_path)
    desk.answer("one", replace(verdict, outcome=Outcome.PASS))
    assert forgotten == ["two"] and not triage.leave()
    assert [finding.verdict.outcome for finding in tally.findings.ranked()] == [Outcome.CRASH, Outcome.FLAKY]

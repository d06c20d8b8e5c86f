"""Programs asked as one: they do what each does, and a failure is told of the program that it is about."""

from __future__ import annotations

import pytest
import torch

from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.program.program import Call, Program
from torchstone.conformance.runner.retry import CaseResult
from torchstone.fuzz.bundles import PATIENCE, Bundler, BundleSize, bundle, may_be_one, told_apart, trials
from torchstone.fuzz.desk import Desk
from torchstone.fuzz.generator.generate import DRAWS
from torchstone.reducers.asking import Ask


def _case(index: int, target: str = "torch.neg", tags: tuple[str, ...] = ()) -> Case:
    program = Program(("x0",), (Call(target, (Ref("x0"),), {}, "v0"),), Ref("v0"))
    return Case(program, {"x0": torch.full((2,), float(index))}, "fuzz", target, "float32", "seed-0", index, tags)


class _Pool:
    """Answers at once: a program that calls exp is wrong. ``sizes`` are how many programs each bundle had."""

    jobs = 1

    def __init__(self, where: bool = False) -> None:
        self.sizes: list[int] = []
        self.where = where

    def results(self, trials):
        for trial in trials:
            called = [call.target for call in trial.case.program.calls]
            self.sizes.append(len(called))
            wrong = "torch.exp" in called
            labels = (trial.case.id, "b", trial.case.source, trial.case.op, trial.case.dtype, trial.case.variant)
            said = {}
            if wrong and self.where:
                said = {"where": f"output[{called.index('torch.exp')}]" if len(called) > 1 else "output"}
            outcome = Outcome.MISMATCH if wrong else Outcome.PASS
            verdict = Verdict(*labels, Stage.COMPARE, outcome, evidence=said, seconds=1.0 + len(called) / 100)
            yield CaseResult(trial.case, verdict, b"")


def _told(pool: _Pool, cases: list[Case]) -> list[Verdict]:
    """The verdicts of programs that are asked as one."""
    desk, found = Desk(pool), []
    desk.drive(told_apart(cases), lambda told: found.extend(told[0]))
    assert all(True for _ in desk.serve(lambda: False))
    return found


def test_a_bundle_computes_what_each_of_its_programs_does():
    cases = [_case(1), _case(2, "torch.exp"), _case(3)]
    one = bundle(cases)
    found = one.program(*one.fresh_args())
    for case, result in zip(cases, found, strict=True):
        torch.testing.assert_close(result, case.program(*case.fresh_args()), rtol=0, atol=0)
    assert bundle(cases[:1]) is cases[0]


@pytest.mark.parametrize(("where", "asked"), [(True, [16, 9, 1, 6]), (False, [16, 8, 8, 4, 2, 1, 1, 2, 4])])
def test_every_program_gets_its_own_verdict_and_only_the_wrong_one_fails(where, asked):
    pool, wrong = _Pool(where), 9
    cases = [_case(index, "torch.exp" if index == wrong else "torch.neg") for index in range(16)]
    verdicts = _told(pool, cases)
    assert [verdict.case_id for verdict in verdicts] == [case.id for case in cases]
    assert [at for at, verdict in enumerate(verdicts) if verdict.failed] == [wrong]
    assert pool.sizes == asked


def test_the_trials_of_a_reduction_are_asked_as_one_up_to_the_first_that_fails():
    pool, told = _Pool(), []

    def asking():
        cases = tuple(_case(index, "torch.exp" if index in (2, 5) else "torch.neg") for index in range(8))
        told.append((yield Ask(cases, lambda case, verdict: verdict.failed)))
        told.append((yield Ask(cases[:2])))

    desk = Desk(pool)
    desk.drive(trials(asking(), together=True), lambda _: None)
    assert all(True for _ in desk.serve(lambda: False))
    assert [[verdict.failed for verdict in verdicts] for verdicts in told] == [[False, False, True], [False, False]]
    assert pool.sizes == [8, 4, 2, 2, 1, 2]


def _bundles(cases: list[Case], size: int) -> list[list[int]]:
    bundler = Bundler()
    bundler.size.best = lambda: size
    groups = [group for case in cases for group in bundler.add(case)]
    return [[case.index for case in group] for group in (*groups, *bundler.rest())]


def test_a_program_that_draws_random_numbers_stays_alone():
    cases = [_case(index, tags=(DRAWS,) if index % 2 else ()) for index in range(6)]
    assert _bundles(cases, 2) == [[1], [0, 2], [3], [5], [4]]


def test_programs_compiled_for_any_size_are_asked_with_those_that_take_the_same_sizes():
    free = [_case(index).replace(variant="dynamic") for index in range(3)]
    fixed = _case(9)
    rows = Program(("x0",), (Call("torch.reshape", (Ref("x0"), [2]), {}, "v0"),), Ref("v0"))
    narrow = Case(rows, {"x0": torch.ones(2)}, "fuzz", "reshape", "float32", "dynamic", 4)
    assert _bundles([*free, fixed, narrow], 3) == [[0, 1, 2], [9], [4]]
    assert may_be_one(free)


def test_a_program_does_not_wait_for_long():
    cases = [_case(0).replace(variant="dynamic"), *(_case(index, tags=(DRAWS,)) for index in range(1, 2 * PATIENCE))]
    assert [0] in _bundles(cases, 4)[: PATIENCE + 2]


@pytest.mark.parametrize(("seconds", "best"), [(lambda size: 1.0, 16), (lambda size: float(size), 1)])
def test_bundles_are_as_large_as_it_pays(seconds, best):
    size = BundleSize()
    for _ in range(40):
        asked = size.best()
        size.ask(asked)
        size.learn(asked, seconds(asked))
    assert size.best() == best

"""Programs asked as one: they do what each does, and a failure is told of the program that it is about."""

from __future__ import annotations

import pytest
import torch

from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.program.program import Call, Program
from torchstone.conformance.runner.retry import CaseResult
from torchstone.fuzz.bundles import SIZES, BundleSize, bundle, verdicts
from torchstone.fuzz.generator.generate import DRAWS


def _case(index: int, target: str = "torch.neg", tags: tuple[str, ...] = ()) -> Case:
    program = Program(("x0",), (Call(target, (Ref("x0"),), {}, "v0"),), Ref("v0"))
    return Case(program, {"x0": torch.full((2,), float(index))}, "fuzz", target, "float32", "seed-0", index, tags)


class _Workers:
    """Answers at once: a program that calls exp is wrong. ``sizes`` are how many programs each bundle had."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def results(self, cases):
        for case in cases:
            called = [call.target for call in case.program.calls]
            self.sizes.append(len(called))
            outcome = Outcome.MISMATCH if "torch.exp" in called else Outcome.PASS
            labels = (case.id, "b", case.source, case.op, case.dtype, case.variant)
            yield CaseResult(case, Verdict(*labels, Stage.COMPARE, outcome, seconds=1.0 + len(called) / 100), b"")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass


def test_a_bundle_computes_what_each_of_its_programs_does():
    cases = [_case(1), _case(2, "torch.exp"), _case(3)]
    one = bundle(cases)
    found = one.program(*one.fresh_args())
    for case, result in zip(cases, found, strict=True):
        torch.testing.assert_close(result, case.program(*case.fresh_args()), rtol=0, atol=0)
    assert bundle(cases[:1]) is cases[0]


def test_every_program_gets_its_own_verdict_and_only_the_wrong_one_fails():
    workers, wrong = _Workers(), 77
    cases = [_case(index, "torch.exp" if index == wrong else "torch.neg") for index in range(150)]
    found = list(verdicts(workers, iter(cases)))
    assert sorted(case.index for case, _ in found) == list(range(150))
    assert [case.index for case, verdict in found if verdict.failed] == [wrong]
    assert all(verdict.case_id == case.id for case, verdict in found)
    assert max(workers.sizes) == SIZES[-1]  # a second for any number of programs: the more the better
    assert workers.sizes.count(1) < 10


def test_a_program_that_draws_random_numbers_stays_alone():
    workers = _Workers()
    cases = [_case(index, tags=(DRAWS,)) for index in range(20)]
    assert len(list(verdicts(workers, cases))) == 20
    assert set(workers.sizes) == {1}


@pytest.mark.parametrize(("seconds", "best"), [(lambda size: 1.0, 16), (lambda size: float(size), 1)])
def test_bundles_are_as_large_as_it_pays(seconds, best):
    size = BundleSize()
    for _ in range(40):
        size.learn(size.best(), seconds(size.best()))
    assert size.best() == best

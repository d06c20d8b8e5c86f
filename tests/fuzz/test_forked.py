"""Trials in forks: what is found, what is not, and what becomes of a fork that dies or hangs."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import pytest
import torch

from torchstone.conformance.errors import HarnessError
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.variants.attempts import attempts
from torchstone.fuzz.selftrial.forked import ForkedTrial


def case(index: int) -> Case:
    program = Program(("x",), (Call("torch.neg", (Ref("x"),), {}, "y"),), Ref("y"))
    return Case(program, {"x": torch.arange(1.0, 3.0 + index)}, "opinfo", "neg", "float32", index=index)


CASES = [case(index) for index in range(3)]


class Stub:
    """A backend that does something to the case of index 1: known by its size."""

    name = "stub"

    def __init__(self, act):
        self.act = act
        self.reach = lambda: None

    def compile(self, fn, args):
        if args[0].numel() == 3:
            self.reach()
            return self.act(fn)
        return fn

    @contextlib.contextmanager
    def mutated(self, reach):
        self.reach = reach
        yield


def trial(act, timeout=20.0):
    stub = Stub(act)
    return ForkedTrial(stub, stub.mutated, lambda: iter(CASES), lambda verdict: verdict.failed, timeout)


def test_a_wrong_answer_is_told_with_its_case_and_the_trial_goes_on_if_it_is_asked_to():
    one = trial(lambda fn: lambda x: fn(x) * 2)
    found = [(case.id, verdict.outcome) for case, verdict in one]
    assert found == [("opinfo:neg:float32:1", Outcome.MISMATCH)]
    assert (one.tried, one.reached) == (3, 1)


def test_a_trial_that_is_over_leaves_no_process():
    before = children()
    one = trial(lambda fn: lambda x: fn(x) * 2)
    next(iter(one))
    assert one.tried == 2
    assert children() == before


def children() -> set[str]:
    """The processes whose parent this one is."""
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return set(file.read().split())


def hang(fn):
    while True:
        pass


def leave_a_child(fn):
    """End, and leave a process that holds all that the fork has open."""
    if not os.fork():
        time.sleep(60)
        os._exit(0)
    os._exit(3)


def stop(fn):
    os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("act", "outcome", "message"),
    [
        (lambda fn: os.kill(os.getpid(), signal.SIGSEGV), Outcome.CRASH, "killed by SIGSEGV"),
        (lambda fn: os._exit(3), Outcome.CRASH, "exited with code 3"),
        (leave_a_child, Outcome.CRASH, "exited with code 3"),
        (hang, Outcome.TIMEOUT, "no result after 1 s"),
        (stop, Outcome.TIMEOUT, "no result after 0.1 s"),
    ],
)
def test_a_fork_that_dies_or_hangs_is_the_verdict_on_its_case(act, outcome, message):
    before = children()
    one = trial(act, {hang: 1.0, stop: 0.1}.get(act, 20.0))  # on a busy machine a second is short
    ((found, verdict),) = list(one)
    assert (found.id, verdict.outcome, verdict.message) == ("opinfo:neg:float32:1", outcome, message)
    assert one.tried == 3, "another fork has gone on behind it"
    assert children() == before


def test_a_fork_that_dies_as_it_makes_a_case_is_followed_by_a_careful_one():
    def cases():
        for one in CASES:
            if one.index == 2 and attempts.expendable:
                os.kill(os.getpid(), signal.SIGSEGV)
            yield one

    stub = Stub(lambda fn: fn)
    one = ForkedTrial(stub, stub.mutated, cases, lambda verdict: verdict.failed)
    assert list(one) == []
    assert (one.tried, one.reached) == (3, 1)
    assert not attempts.expendable, "this process is not"


class AllWrong(Stub):
    """Is wrong everywhere, and comes to the mutated code in the case of index 1."""

    def compile(self, fn, args):
        if args[0].numel() == 3:
            self.reach()
        return lambda x: fn(x) * 2

    def compile_many(self, programs):
        return [self.compile(*one) for one in programs]


@pytest.mark.parametrize(("every", "judged"), [(False, [1]), (True, [0, 1, 2])])
def test_a_case_that_does_not_come_to_the_mutated_code_is_not_judged(every, judged):
    stub = AllWrong(None)
    one = ForkedTrial(stub, stub.mutated, lambda: iter(CASES), lambda verdict: verdict.failed, every=every)
    assert [found.index for found, _ in one] == judged
    assert (one.tried, one.reached) == (3, 1)


def test_compiling_that_raises_is_judged_as_an_error_of_the_case():
    class Raising(Stub):
        def compile_many(self, programs):
            raise AttributeError("no element_type")

        def compile(self, fn, args):
            raise AttributeError("no element_type")

    backend = Raising(None)
    found = list(ForkedTrial(backend, backend.mutated, lambda: iter(CASES[:1]), lambda verdict: verdict.failed))
    assert [verdict.outcome for _, verdict in found] == [Outcome.ERROR]


def test_what_does_not_begin_is_no_verdict():
    @contextlib.contextmanager
    def broken(reach):
        raise ValueError("nothing to mutate")
        yield

    one = trial(lambda fn: fn)
    with pytest.raises(HarnessError, match="could not begin: ValueError: nothing to mutate"):
        list(ForkedTrial(one.backend, broken, one.cases, one.is_open))

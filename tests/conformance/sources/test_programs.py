"""Programs of two steps: each pair of steps is asked, and what a case is follows from its id."""

from __future__ import annotations

import torch

from torchstone.conformance.backends import load
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.program.case import Case
from torchstone.conformance.sources import find_case, programs
from torchstone.conformance.sources.programs.steps import STEPS


def of(op: str, dtype: str = "float32") -> list[Case]:
    return [found for found in programs.iterate([op], [dtype]) if isinstance(found, Case)]


def test_each_step_is_before_each_step_of_the_other_class() -> None:
    found = {
        (call.target, other.target)
        for c in of("compute+compute")
        for call in c.program.calls[:1]
        for other in c.program.calls[1:]
    }
    for one, other in (("exp", "log"), ("square", "sqrt"), ("clamp", "clamp"), ("neg", "abs"), ("log", "isnan")):
        assert (f"torch.{one}", f"torch.{other}") in found


def test_there_is_a_program_of_each_pair() -> None:
    assert len(programs.op_names()) == len(STEPS) * (len(STEPS) - 1)
    assert not [op for op in programs.op_names() if not any(True for _ in programs.iterate([op], ["float32"], 1))]


def test_a_case_follows_from_its_id() -> None:
    for case in of("write+index", "int64")[::7]:
        again = find_case(case.id)
        assert case.to_bytes() == again.to_bytes()


def test_writes_go_through_views() -> None:
    case = of("write+view")[0]
    before = [tensor.clone() for tensor in case.args]
    results = case.program(*case.args)
    assert all(map(torch.equal, before, case.args)), "the input is left alone"
    assert len(results) > 1 and not torch.equal(results[0], case.args[0].transpose(0, -1))


class Cancelling:
    """Leaves out what it takes for its own inverse."""

    name = "cancelling"

    def compile(self, fn, args):
        def run(x):
            results = fn(x)
            targets = [call.target for call in fn.calls]
            if targets[0] != "torch.square" or "torch.sqrt" not in targets:
                return results
            at = targets.index("torch.sqrt") - 1
            return (*results[:at], x.clone(), *results[at + 1 :])

        return run


def test_a_rewrite_of_two_ops_is_found() -> None:
    asked = [c for c in of("compute+compute") if c.program.calls[0].target == "torch.square"]
    assert {str(run_case(c, load("eager")).outcome) for c in asked} == {"pass"}
    assert "mismatch" in {str(run_case(c, Cancelling()).outcome) for c in asked}

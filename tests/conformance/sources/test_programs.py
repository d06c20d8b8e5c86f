"""Programs of two steps: each pair of steps is asked, and what a case is follows from its id."""

from __future__ import annotations

import warnings

import pytest
import torch

from torchstone.conformance import planted
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.oracle.equality import equal_tensors
from torchstone.conformance.program.case import Case
from torchstone.conformance.sources import find_case, programs
from torchstone.conformance.sources.programs.steps import STEPS


def of(op: str, dtype: str = "float32") -> list[Case]:
    return [found for found in programs.iterate([op], [dtype]) if isinstance(found, Case)]


def test_each_step_is_before_each_step_of_the_other_class() -> None:
    found = set()
    for given in of("compute+compute"):
        made = {call.result: call for call in given.program.calls}
        found |= {
            (made[ref.name].target, call.target) for call in made.values() for ref in call.refs() if ref.name in made
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


def test_memory_is_read_as_another_dtype_of_any_width() -> None:
    steps = [(case, call) for case in of("compute+cast") for call in case.program.calls if call.target.endswith("view")]
    assert {call.args[1] for _, call in steps} == {torch.int16, torch.int32, torch.float32, torch.int64}


def test_a_mask_stands_beside_an_index_where_is_written() -> None:
    keys = [call.args[1] for case in of("compute+write") for call in case.program.calls if "__setitem__" in call.target]
    assert any(isinstance(key, tuple) for key in keys)


def test_what_is_between_is_read_once_or_is_a_result() -> None:
    for case in of("compute+reduce")[:6]:
        read = [ref.name for call in case.program.calls for ref in call.refs()]
        results = {ref.name for ref in case.program.outputs}
        made = [call.result for call in case.program.calls]
        assert all(read.count(name) <= 1 or name in results for name in made)


@pytest.mark.torture
def test_a_rewrite_of_two_ops_is_found() -> None:
    for bug in ("log-of-exp-cancelled", "root-of-square-cancelled", "sum-of-repeated"):
        asked = [c for op in ("compute+compute", "combine+compute", "expand+reduce") for c in of(op)[:24]]
        wrong = planted.load(bug)
        assert any(run_case(c, wrong).failed for c in asked if _may_show(c, wrong)), bug


def _may_show(case: Case, backend) -> bool:
    """Whether the backend's numbers are others, which is seen sooner than a verdict is given."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = backend.compile(case.program, case.fresh_args())(*case.fresh_args())
        return not all(map(equal_tensors, results, case.program(*case.fresh_args())))

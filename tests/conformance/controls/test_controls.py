"""Each control is right, does something otherwise than eager, and a wrong twin of it is found."""

from __future__ import annotations

import warnings

import pytest
import torch

from torchstone.compiler._torch.tensors import storage_key
from torchstone.conformance.backends import load
from torchstone.conformance.controls import BACKEND_PREFIX, CONTROLS
from torchstone.conformance.controls.trial import operators_of, outcome_of
from torchstone.conformance.errors import InputError
from torchstone.conformance.execution.repeatability import observe
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.equality import same_bits
from torchstone.conformance.oracle.pytree import flatten
from torchstone.conformance.program.case import Case
from torchstone.conformance.sources import find_case

from .examples import EXAMPLES


def test_there_are_many_and_each_has_examples() -> None:
    assert len(CONTROLS) >= 25
    assert set(EXAMPLES) == set(CONTROLS)
    assert len({control.claim for control in CONTROLS.values()}) == len(CONTROLS)
    assert all(name == control.name and control.claim.endswith(".") for name, control in CONTROLS.items())


def test_each_is_a_backend_by_its_name() -> None:
    assert all(load(f"{BACKEND_PREFIX}{name}") is control for name, control in CONTROLS.items())
    with pytest.raises(InputError, match='did you mean "strassen"'):
        load(f"{BACKEND_PREFIX}strasen")


@pytest.mark.few(4)
@pytest.mark.parametrize("name", CONTROLS)
def test_is_right_and_computes_otherwise(name: str) -> None:
    examples = EXAMPLES[name]()
    for example in examples:
        assert CONTROLS[name].concerns(operators_of(example))
        verdict = run_case(example, CONTROLS[name])
        assert outcome_of(verdict) == "pass", (str(example.program), verdict.message)
    assert any(_differs(example, name) for example in examples)


def _differs(example: Case, name: str) -> bool:
    """Whether bits or strides differ from eager's, or memory is shared that eager's results do not share."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mine, eager = (
            observe(run, example.fresh_args())
            for run in (CONTROLS[name].compile(example.program, example.fresh_args()), example.program)
        )
    pairs = list(zip(flatten(mine.outputs), flatten(eager.outputs), strict=True))
    shared = [{storage_key(t) for t in (*flatten(run.outputs), *run.inputs)} for run in (mine, eager)]
    return any(not same_bits(a, b) or a.stride() != b.stride() for a, b in pairs) or len(set(map(len, shared))) == 2


def test_of_numbers_that_are_drawn_no_result_counts_as_known_in_a_later_call() -> None:
    """Some are infinite in all calls, of either sign by chance, and eager's sign is not put in place of another."""
    case = find_case("opinfo:normal:float32:0:arguments")
    assert run_case(case, load(f"{BACKEND_PREFIX}seeded_generator")).outcome is Outcome.PASS

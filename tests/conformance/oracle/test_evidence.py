"""What verdicts show of numbers that differ, and whose the error is: eager's is never put down to the backend."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.conformance.oracle.test_compare import A, B, X, Y, compare, one, several, with_element
from torchstone.conformance.execution.verdict import Kind, Outcome
from torchstone.conformance.oracle.compare import judge
from torchstone.conformance.oracle.evidence import FURTHER, SHOWN, Bounds, describe_worst, eager_is_further
from torchstone.conformance.oracle.finding import Finding, Observed
from torchstone.conformance.program.program import Ref
from torchstone.conformance.program.tensor_storage import copy_tensors

NAN, INF = math.nan, math.inf


def test_all_that_was_weighed_is_shown() -> None:
    finding = compare(one("add", X, Y), lambda x, y: with_element(7.5, 6)(with_element(1.0, 3)(x + y)), A, B)
    evidence, eager = finding.evidence, (A + B)[1, 1].item()
    exact = (A.double() + B.double())[1, 1].item()
    assert evidence["index"] == [1, 1] and evidence["actual"] == 7.5
    assert evidence["relative"] == pytest.approx(abs(7.5 - eager) / abs(eager))
    assert evidence["float64_error"] == pytest.approx(abs(7.5 - exact))
    assert evidence["eager_error"] == pytest.approx(abs(eager - exact), abs=1e-12)
    assert 0 < evidence["bound"] < 1e-5 < evidence["float64_error"]
    assert [row["index"] for row in evidence["first"]] == [[0, 3], [1, 1]]
    assert evidence["tolerance"]["ulps"] == 8
    assert "eager_further" not in evidence


def test_what_the_last_bit_of_an_input_decides_is_not_shown_before_what_is_wrong() -> None:
    """One ULP of the first input turns its tangent, which is further off in ULPs, by 4.8; of the second by 1e-10."""
    x = torch.tensor([-1.5706382989883423, -0.0012799501419067383])
    finding = compare(one("tan", X), lambda x: torch.tensor([-6326.25048828125, -0.0012798942625522614]), x)
    assert finding.outcome is Outcome.MISMATCH
    assert finding.evidence["index"] == [1] and finding.evidence["ulps"] < 500, finding


def test_what_is_shown_stays_small() -> None:
    finding = compare(one("add", X, 1), lambda x: x - 1, torch.ones(1000, 10))
    assert finding.evidence["count"] == 10000
    assert len(finding.evidence["first"]) == SHOWN
    assert len(json.dumps(finding.evidence)) < 2000


WRONG: dict[str, tuple[Tensor, Tensor, dict[str, Any]]] = {
    "an integer past float64": (
        torch.tensor([2**62, 5]), torch.tensor([2**62 + 1, 5]), {"error": 1, "index": [0], "count": 1}
    ),
    "a bool": (torch.tensor([True, False]), torch.tensor([True, True]), {"error": 1, "expected": False, "index": [1]}),
    "0-d": (torch.tensor(1.0), torch.tensor(2.0), {"index": [], "error": 1.0, "relative": 1.0, "count": 1, "of": 1}),
    "NaN before all": (
        torch.tensor([1.0, 1.0]), torch.tensor([100.0, NAN]), {"index": [1], "actual": "nan", "ulps": "inf"}
    ),
    "infinity": (torch.tensor([1.0]), torch.tensor([-INF]), {"actual": "-inf", "error": "inf", "relative": "inf"}),
    "where eager has none": (torch.tensor([INF]), torch.tensor([1.0]), {"expected": "inf", "relative": "inf"}),
    "beside zero": (torch.tensor([0.0]), torch.tensor([1.0]), {"relative": "inf", "error": 1.0}),
    "complex": (torch.tensor([3 + 4j]), torch.tensor([3 + 9j]), {"expected": "(3+4j)", "error": 5.0, "relative": 1.0}),
    "complex near the end": (
        torch.tensor([complex(1e308, 1e308)], dtype=torch.complex128),
        torch.tensor([complex(-1e308, -1e308)], dtype=torch.complex128),
        {"error": "inf"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_numbers_of_every_kind_are_shown_as_json(name: str) -> None:
    expected, actual, wanted = WRONG[name]
    finding = compare(one("clone"), lambda x: actual, expected)
    assert (finding.outcome, finding.kind) == (Outcome.MISMATCH, Kind.VALUE)
    assert {key: finding.evidence[key] for key in wanted} == wanted
    json.dumps(finding.evidence, allow_nan=False)


def test_nothing_differs_in_what_is_empty() -> None:
    assert compare(one("add", X, 1), lambda x: torch.empty(0, 3), torch.empty(0, 3)) == Finding(Outcome.PASS)


ELEMENTS = st.floats(-(2.0**120), 2.0**120, width=32) | st.sampled_from([0.0, -0.0, NAN, INF, -INF, 1e-45, 3e38])
COMPLEX = st.builds(complex, ELEMENTS, ELEMENTS)
PAIRS = (
    st.tuples(st.just(torch.float32), ELEMENTS, ELEMENTS)
    | st.tuples(st.just(torch.bfloat16), ELEMENTS, ELEMENTS)
    | st.tuples(st.just(torch.complex64), COMPLEX, COMPLEX)
    | st.tuples(st.just(torch.int64), st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
    | st.tuples(st.just(torch.bool), st.booleans(), st.booleans())
)


@given(PAIRS, st.sampled_from([(), (1,), (2, 3)]))
def test_any_two_numbers_can_be_shown(pair: tuple[torch.dtype, Any, Any], shape: tuple[int, ...]) -> None:
    dtype, e, b = pair
    expected, actual = torch.full(shape, e, dtype=dtype), torch.full(shape, b, dtype=dtype)
    bad = torch.ones(shape, dtype=torch.bool)
    message, evidence = describe_worst("output", expected, actual, bad, Bounds(), dtype)
    json.dumps(evidence, allow_nan=False)
    assert evidence["count"] == expected.numel() and "\n" not in message
    assert len(evidence["index"]) == len(shape)


FINITE = st.floats(-1e6, 1e6, width=32) | st.sampled_from([0.0, -0.0, 1e-40])


@settings(max_examples=60, deadline=None)
@given(FINITE, st.floats(-1e3, 1e3, width=32), st.floats(-1, 1))
def test_eager_further_off_is_never_the_backends_failure(truth: float, off: float, part: float) -> None:
    """Eager is off by some amount and the backend by a part of it, on either side: whatever the size, no failure."""
    x = torch.tensor([truth])
    program = several(("mul", X, 3.0), ("div", Ref("r0"), 3.0))  # x, by steps that round
    eager, backend = x + off, x + off * part
    closer = bool(eager_is_further(backend.double(), eager.double(), x.double()))
    same = torch.equal(eager, backend) and torch.equal(eager.signbit(), backend.signbit())
    assume(closer or same)  # not as far, on the other side: nobody can say who is right; the sign of a zero counts
    finding = judge(program, (x,), Observed(eager, copy_tensors((x,))), Observed(backend, copy_tensors((x,))))
    assert finding.outcome in (Outcome.PASS, Outcome.ILL_CONDITIONED)
    if finding.outcome is Outcome.ILL_CONDITIONED:
        assert finding.evidence["eager_further"] == FURTHER
    if finding.evidence.get("rule") == "float64" and "eager_further" in finding.evidence:
        assert closer and finding.evidence["eager_further"]["meaning"] == FURTHER

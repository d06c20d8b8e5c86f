"""Which failures are the same one."""

from __future__ import annotations

import pytest

from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.reducers.message import normalize
from torchstone.reducers.signature import signature


def _verdict(stage=Stage.COMPILE, outcome=Outcome.ERROR, kind="", message="", **evidence) -> Verdict:
    return Verdict("id", "backend", "source", "op", "float32", "default", stage, outcome, kind, message, evidence)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("expected 3 got 12", "expected 17 got 1"),
        ("bad shape [2, 3] for x0", "bad shape [1] for x12"),
        ("at 0x7f001234: boom", "at 0x55aa: boom"),
        ("see /tmp/a/b.mlir: boom", "see /var/x.mlir: boom"),
        ("boom\n  details of one", "boom\n  details of the other"),
        ("tensor<2x3xf32> refused", "tensor<?xf32> refused"),
        ("%12 = op", "%3 = op"),
    ],
)
def test_particulars_do_not_matter(one, other):
    assert normalize(one) == normalize(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("failed to legalize operation 'aten.sin'", "failed to legalize operation 'aten.cos'"),
        ("index out of range", "size out of range"),
        ("conv1d failed", "conv2d failed"),
    ],
)
def test_what_was_said_does(one, other):
    assert normalize(one) != normalize(other)


def test_stage_outcome_class_and_op_are_told_apart():
    base = _verdict(message="RuntimeError: boom", op="aten.sin")
    others = [
        _verdict(stage=Stage.RUN, message="RuntimeError: boom", op="aten.sin"),
        _verdict(outcome=Outcome.CRASH, message="RuntimeError: boom", op="aten.sin"),
        _verdict(message="ValueError: boom", op="aten.sin"),
        _verdict(message="RuntimeError: boom", op="aten.cos"),
        _verdict(message="RuntimeError: bang", op="aten.sin"),
    ]
    assert len({signature(v) for v in (base, *others)}) == 6
    assert signature(base).error == "RuntimeError"


def test_a_mismatch_is_its_kind():
    one = _verdict(Stage.COMPARE, Outcome.MISMATCH, "value", "element 3 is off by 12 ULP", worst=3)
    other = _verdict(Stage.COMPARE, Outcome.MISMATCH, "value", "element 0 is off by 9999 ULP")
    third = _verdict(Stage.COMPARE, Outcome.MISMATCH, "shape", "element 0 is off by 9999 ULP")
    assert signature(one) == signature(other) != signature(third)
    assert str(signature(one)) == "mismatch (value) at compare"


@pytest.mark.parametrize(
    ("expected", "actual", "more", "wrong"),
    [
        (1.0, 2.0, {}, ""),
        (1.0, "nan", {}, "NaN for a number"),
        ("inf", 1.0, {}, "a number for infinity"),
        ("-inf", "inf", {}, ""),
        ("(nan+0j)", "(1+2j)", {}, "a number for NaN"),
        (0.0, -0.0, {"note": "the sign of zero"}, "the sign of zero"),
        (1.0, 1.1, {"note": "no float64 run: …"}, ""),
        ("1.0", "nan", {"bytes": 4}, "a stray write"),
    ],
)
def test_how_a_number_is_wrong_is_part_of_it(expected, actual, more, wrong):
    told = _verdict(Stage.COMPARE, Outcome.MISMATCH, "value", "", expected=expected, actual=actual, **more)
    assert signature(told).wrong == wrong
    assert str(signature(told)) == f"mismatch (value{': ' if wrong else ''}{wrong}) at compare"

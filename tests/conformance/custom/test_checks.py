"""Ops that break a promise, each in its own way, and the check that says so; and what ends the process."""

from __future__ import annotations

import os
import signal

import pytest

from torchstone.conformance.custom import checks, registration, source
from torchstone.conformance.custom.apart import Died, Made, stream

pytestmark = pytest.mark.usefixtures("new_ops")


@pytest.mark.parametrize(
    ("op", "check", "dtype", "words"),
    [
        ("badly_faked", "fake kernel", "int64", "another dtype: torch.int64, eager torch.float32"),
        ("writes", "schema", "float32", "writes to an argument that its schema does not mark"),
        ("counts", "repeatable", "float32", "other numbers each time"),
        ("badly_derived", "reference", "float32", "differs from the reference in value"),
        ("badly_derived", "gradient", "float64", "not that of finite differences"),
    ],
)
def test_a_broken_promise_is_told(op, check, dtype, words, monkeypatch):
    monkeypatch.setattr(checks, "CHECKS", {check: checks.CHECKS[check]})
    (complaint,) = checks.check_op(registration.ask(f"newops::{op}"), [dtype], 60)
    assert complaint.check == check and complaint.blame
    assert complaint.case == f"custom:newops.{op}:{dtype}:0"
    assert words in complaint.message


def test_an_op_that_keeps_its_promises_has_no_complaint(monkeypatch):
    others = {name: row for name, row in checks.CHECKS.items() if name != "opcheck"}
    monkeypatch.setattr(checks, "CHECKS", others)
    op = registration.ask("newops::shifted")
    assert list(checks.check_op(op, source.dtypes_of(op.name)[:6], 60)) == []


def test_the_rules_of_opcheck_are_asked(monkeypatch):
    monkeypatch.setattr(checks, "CHECKS", {"opcheck": (checks.CHECKS["opcheck"][0], 1, 1)})
    found = list(checks.check_op(registration.ask("newops::writes"), ["float32"], 60))
    assert any("test_schema" in complaint.message for complaint in found)


def test_of_an_op_without_a_gradient_opcheck_asks_for_none(monkeypatch):
    monkeypatch.setattr(checks, "CHECKS", {"opcheck": (checks.CHECKS["opcheck"][0], 1, 1)})
    assert list(checks.check_op(registration.ask("newops::without_gradient"), ["float32"], 60)) == []


def test_what_has_no_fake_kernel_is_the_op_s_fault_and_not_that_of_a_compiler_that_cannot_capture_it():
    refused, taken = (source.case(f"newops.{op}", "float32", 0) for op in ("not_faked", "shifted"))
    complaint = checks.fake_error(refused)
    assert complaint is not None and complaint.blame and "no fakes" in complaint.message
    assert checks.fake_error(taken) is None


def test_a_step_that_ends_the_process_is_told_and_left_out():
    def make(steps):
        for step in ("one", "two", "three"):
            if not steps.begin(step):
                continue
            if step == "two":
                os.kill(os.getpid(), signal.SIGSEGV)
            yield Made(step, {"length": len(step)}, step.encode())

    assert list(stream(make)) == [
        Made("one", {"length": 3}, b"one"),
        Died("two", "killed by SIGSEGV"),
        Made("three", {"length": 5}, b"three"),
    ]


def test_a_stream_that_is_closed_ends_its_process():
    def make(steps):
        steps.begin("all")
        yield Made("pid", os.getpid())
        while True:
            yield Made(str(os.urandom(8)), None, bytes(1 << 16))

    made = stream(make)
    pid = next(made).told
    made.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)

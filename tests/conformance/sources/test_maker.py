"""Entries made in a child process: what ends it or hangs is told of the op, and the other ops are made."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest
import torch

from torchstone.conformance.errors import HarnessError, InputError, UnknownName
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.sources import find_case, maker, opinfo
from torchstone.conformance.sources.maker import CaseMaker
from torchstone.conformance.variants.apply import apply
from torchstone.conformance.variants.protocol import Variant
from torchstone.conformance.variants.registry import VARIANTS

OPS = {"test": ["first", "bad", "last"]}


def case_of(op: str, index: int) -> Case:
    program = Program(("x",), (Call("torch.neg", (Ref("x"),), {}, "y"),), Ref("y"))
    return Case(program, {"x": torch.full((2, 3), float(index)).T}, "test", op, "float32", index=index)


def ids(ops: dict[str, list[str]], fault: object) -> list[str]:
    """What a maker gives where ``fault()`` comes after the first case of the op "bad": ids, and reasons."""

    def make(source: str, op: str) -> Iterator[Case | Untested]:
        yield case_of(op, 0)
        if op == "bad":
            fault()  # type: ignore[operator]
        yield case_of(op, 1)

    return [entry.reason if isinstance(entry, Untested) else entry.id for entry in CaseMaker(make).entries(ops)]


def told(reason: str) -> list[str]:
    rest = ["test:last:float32:0", "test:last:float32:1"]
    return ["test:first:float32:0", "test:first:float32:1", "test:bad:float32:0", reason, *rest]


def abort() -> None:
    os.write(2, b"free(): invalid next size (fast)\n")
    os.abort()


def sleep() -> None:
    time.sleep(100)


def spin() -> None:
    while True:
        pass


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (abort, "making its inputs crashed eager: killed by SIGABRT: free(): invalid next size (fast)"),
        (lambda: ctypes.string_at(0), "making its inputs crashed eager: killed by SIGSEGV"),
        (lambda: os._exit(0), "making its inputs crashed eager: exited with code 0"),
        (lambda: 1 // 0, "making its inputs raises ZeroDivisionError: integer division or modulo by zero"),
    ],
)
def test_an_op_that_ends_its_process_is_told_of_and_the_others_are_made(fault: object, reason: str) -> None:
    assert ids(OPS, fault) == told(reason)


def test_an_op_that_hangs_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maker, "SECONDS", 0.5)
    assert ids(OPS, sleep) == told("making its inputs gave nothing for 0.5 s")
    monkeypatch.undo()
    monkeypatch.setattr(maker, "PROCESSOR_SECONDS", 0)
    assert ids(OPS, spin) == told("making its inputs took over 0 s of the processor's time")


def test_a_crash_for_what_an_op_before_has_done_is_not_told_of_the_op() -> None:
    here = os.getpid()
    made: list[str] = []

    def make(source: str, op: str) -> Iterator[Case]:
        made.append(op)
        yield case_of(op, 0)
        if made == ["first", "bad"]:
            os.kill(os.getpid() if os.getpid() != here else 0, signal.SIGSEGV)
        yield case_of(op, 1)

    found = [entry.id for entry in CaseMaker(make).entries(OPS)]
    assert found == [f"test:{op}:float32:{index}" for op in OPS["test"] for index in (0, 1)]


def test_what_the_user_is_to_put_right_is_raised() -> None:
    def make(source: str, op: str) -> Iterator[Case]:
        raise UnknownName("op", op, ["bed"])

    with pytest.raises(UnknownName, match=r'^unknown op "bad" \(did you mean "bed"\?\)$'):
        next(CaseMaker(make).entries({"test": ["bad"]}))
    with pytest.raises(InputError, match="add has no sample 999 for float32"):
        find_case("opinfo:add:float32:999")


@pytest.mark.parametrize("name", ["nn.functional.conv2d", "view_as_real"])
def test_a_case_is_the_same_made_here_and_in_a_child(name: str) -> None:
    torch.ones(1 << 20).exp().sum()  # the threads of this process are no concern of the child's
    dtype = opinfo.dtypes_of(name)[0]
    assert find_case(f"opinfo:{name}:{dtype}:1").to_bytes() == opinfo.case(name, dtype, 1).to_bytes()


def test_a_pass_that_is_left_can_be_followed_by_another_but_two_cannot_be_mixed() -> None:
    made = CaseMaker(lambda source, op: (case_of(op, index) for index in range(10**6)))
    passing = made.entries(OPS)
    assert next(passing).id == "test:first:float32:0"
    with pytest.raises(HarnessError, match="one pass"):
        next(made.entries(OPS))
    passing.close()  # type: ignore[attr-defined]
    assert next(made.entries({"test": ["last"]})).id == "test:last:float32:0"


def test_nothing_is_left_of_a_maker_and_files_of_its_owner_are_not_held_open() -> None:
    reading, writing = os.pipe()
    made = CaseMaker(lambda source, op: [case_of(op, 0)])
    passing = made.entries(OPS)
    next(passing)
    os.close(writing)
    closed = threading.Event()
    threading.Thread(target=lambda: (os.read(reading, 1), closed.set()), daemon=True).start()
    assert closed.wait(10)
    os.close(reading)
    passing.close()  # type: ignore[attr-defined]
    before = _children()
    made.close()
    assert len(_children()) == len(before) - 1


def _children() -> list[str]:
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return file.read().split()


@pytest.mark.few(1)
@pytest.mark.parametrize("whole", [True, False], ids=["every variant", "a plan"])
def test_a_variant_that_ends_the_process_is_told_of_and_the_others_are_made(
    whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told of once, whether its maker passes on what cannot be made or looks for something else."""
    monkeypatch.setitem(VARIANTS.rows, "fatal", f"{__name__}:FATAL")
    wanted = ["strided", "fatal", "offset"]

    def make(source: str, op: str) -> Iterator[Case | Untested]:
        found = [apply(case_of(op, index), variant) for index in range(2) for variant in wanted]
        yield from (entry for entry in found if whole or isinstance(entry, Case))

    entries = list(CaseMaker(make).entries({"test": ["bad"]}))
    made = [f"test:bad:float32:{index}:{name}" for index in range(2) for name in wanted]
    assert sorted(entry.id for entry in entries) == sorted(made)
    told = {entry.id: entry.reason for entry in entries if isinstance(entry, Untested)}
    reason = "making its inputs crashed eager: killed by SIGFPE"
    assert told == dict.fromkeys((name for name in made if name.endswith(":fatal")), reason)


FATAL = Variant("Ends the process.", lambda case: os.kill(os.getpid(), signal.SIGFPE))

"""Memory that each call keeps is told from memory that the first calls take for good."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch

from torchstone.conformance.execution.leak import _after_trim, _growth, _process_bytes
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref

MEGABYTE = 1 << 18
"""Elements of float32."""


class Keeping:
    """``neg``, and beside it ``keep(number of the call)`` numbers that are never freed."""

    name = "keeping"

    def __init__(self, keep: Any) -> None:
        self.keep = keep

    def compile(self, fn: Any, args: Any) -> Any:
        kept: list[torch.Tensor] = []

        def run(x: torch.Tensor) -> torch.Tensor:
            self.kept = kept
            kept.append(torch.ones(self.keep(len(kept))))
            return x.neg()

        return run


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "keep, outcome",
    [
        (lambda call: 4 * MEGABYTE, "mismatch"),
        (lambda call: 8 * MEGABYTE if call < 5 else 1, "pass"),
        (lambda call: 1, "pass"),
    ],
    ids=["each call", "the first calls", "hardly any"],
)
def test_what_grows_by_each_call(keep: Any, outcome: str) -> None:
    program = Program(("x",), (Call("torch.neg", (Ref("x"),), {}, "r"),), Ref("r"))
    case = Case(program, {"x": torch.randn(3)}, "test", "neg", "float32")
    verdict = run_case(case, Keeping(keep))
    assert verdict.outcome == outcome
    assert outcome == "pass" or (verdict.kind == "leak" and min(verdict.evidence["bytes"]) > 1 << 20)


def test_a_leak_out_of_memory_that_was_freed_before() -> None:
    """As much as the calls will keep is free, and resident, when they begin: the process need not grow."""
    torch.ones(7 * MEGABYTE)  # once freed, glibc gives blocks of up to its size out of memory that it keeps
    *blocks, last = [torch.ones(4 * MEGABYTE) for _ in range(16)]
    del blocks
    assert len(last) == 4 * MEGABYTE, "which keeps the end of the heap, and all below it"
    test_what_grows_by_each_call(lambda call: 4 * MEGABYTE, "mismatch")


class Lending:
    """``neg``, and what it keeps of a call goes when the call's argument does.

    So does glibc's heap: a free result may be too little at its end to give back, a result and its argument enough.
    """

    name = "lending"

    def compile(self, fn: Any, args: Any) -> Any:
        kept: dict[int, torch.Tensor] = {}

        def run(x: torch.Tensor) -> torch.Tensor:
            self.kept = kept
            kept[id(x)] = torch.ones(4 * MEGABYTE)
            weakref.finalize(x, kept.pop, id(x), None)  # a call may be made on the tensor of one before
            return x.neg()

        return run


def test_memory_that_is_given_back_with_the_arguments() -> None:
    program = Program(("x",), (Call("torch.neg", (Ref("x"),), {}, "r"),), Ref("r"))
    case = Case(program, {"x": torch.randn(3)}, "test", "neg", "float32")
    assert _growth(case, Lending().compile(program, ())) > 3 << 20, "which is looked into"
    assert run_case(case, Lending()).outcome == "pass"


def test_memory_that_the_allocator_keeps_is_nobodys() -> None:
    before = _after_trim()
    *blocks, last = [torch.ones(MEGABYTE // 64) for _ in range(64 * 64)]
    most = _process_bytes()
    blocks.clear()
    assert all(most > then + (60 << 20) for most, then in zip(most, before, strict=True))
    assert len(last) and all(now < then + (2 << 20) for now, then in zip(_after_trim(), before, strict=True))


class Hoarding:
    """``neg``, and it keeps the arguments of each call."""

    name = "hoarding"

    def compile(self, fn: Any, args: Any) -> Any:
        kept: list[torch.Tensor] = []

        def run(x: torch.Tensor) -> torch.Tensor:
            self.kept = kept
            kept.append(x)
            return x.neg()

        return run


@pytest.mark.torture
def test_arguments_that_each_call_keeps() -> None:
    program = Program(("x",), (Call("torch.neg", (Ref("x"),), {}, "r"),), Ref("r"))
    case = Case(program, {"x": torch.ones(8 * MEGABYTE)}, "test", "neg", "float32")
    verdict = run_case(case, Hoarding())
    assert verdict.kind == "leak" and min(verdict.evidence["bytes"]) >= 8 << 20

"""Memory that each call keeps is told from memory that the first calls take for good."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchstone.conformance.case import Case
from torchstone.conformance.program import Call, Program, Ref
from torchstone.conformance.trial import try_case

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
    verdict = try_case(case, Keeping(keep))
    assert verdict.outcome == outcome
    assert outcome == "pass" or (verdict.kind == "leak" and min(verdict.evidence["bytes"]) > 1 << 20)


def test_a_leak_out_of_memory_that_was_freed_before() -> None:
    """As much as the calls will keep is free, and resident, when they begin: the process need not grow."""
    torch.ones(7 * MEGABYTE)  # once freed, glibc gives blocks of up to its size out of memory that it keeps
    *blocks, last = [torch.ones(4 * MEGABYTE) for _ in range(16)]
    del blocks
    assert len(last) == 4 * MEGABYTE, "which keeps the end of the heap, and all below it"
    test_what_grows_by_each_call(lambda call: 4 * MEGABYTE, "mismatch")

"""Cases for the torture backend: ``x + x``, where ``x[0]`` is the number of a deed. And time that flies."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torture_backend import DEEDS

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.runner.slot import WorkerSlot

__all__ = ["DEEDS", "let_time_be_up", "torture_case"]


def torture_case(deed: str, index: int = 0, tensor: torch.Tensor | None = None) -> Case:
    program = Program(("x",), (Call("torch.add", (Ref("x"), Ref("x")), {}, "y"),), Ref("y"))
    x = torch.zeros(4) if tensor is None else tensor
    x[0] = DEEDS.index(deed)
    return Case(program, {"x": x}, source="torture", op=deed, dtype="float32", index=index)


def let_time_be_up(monkeypatch: pytest.MonkeyPatch, when: Callable[[WorkerSlot], bool]) -> None:
    """Let the time of a worker be up as soon as the pool sees that it has come so far, and never before.

    With a clock a test would have to wait, and on a busy machine not long enough.
    """

    def look(slot: WorkerSlot, found: Callable[[WorkerSlot], str] = WorkerSlot.limit_exceeded) -> str:
        if slot.worker is not None and when(slot):
            slot.deadline = 0.0
        return found(slot)

    monkeypatch.setattr(WorkerSlot, "limit_exceeded", look)

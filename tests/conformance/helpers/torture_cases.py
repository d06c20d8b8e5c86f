"""Cases for the torture backend: ``x + x``, where ``x[0]`` is the number of a deed."""

from __future__ import annotations

import torch
from torture_backend import DEEDS

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref

__all__ = ["DEEDS", "torture_case"]


def torture_case(deed: str, index: int = 0, tensor: torch.Tensor | None = None) -> Case:
    program = Program(("x",), (Call("torch.add", (Ref("x"), Ref("x")), {}, "y"),), Ref("y"))
    x = torch.zeros(4) if tensor is None else tensor
    x[0] = DEEDS.index(deed)
    return Case(program, {"x": x}, source="torture", op=deed, dtype="float32", index=index)

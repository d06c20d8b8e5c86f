"""Cases of one call, asked in variants."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.variants.apply import apply


def case(target: str, *inputs: Tensor, args: tuple = (), index: int = 0, **kwargs: object) -> Case:
    names = tuple(f"x{i}" for i in range(len(inputs)))
    call = Call(target, (*(Ref(name) for name in names), *args), kwargs, "r0")
    program = Program(names, (call,), Ref("r0"))
    return Case(program, dict(zip(names, inputs, strict=True)), "test", "op", "float32", index=index)


def asked(given: Case, name: str) -> Case:
    found = apply(given, name)
    assert isinstance(found, Case), found
    return found


def own(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.linspace(2, 7, math.prod(shape), dtype=torch.float64).reshape(shape).to(dtype)

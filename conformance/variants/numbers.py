"""The variant ``numbers``: numbers among the arguments are read from 0-d tensors when the program runs.

A number that a compiler sees is folded into its code, or decides which code there is. One that comes out of a tensor is
known at run time alone: a compiler computes with it as it computes with sizes, takes the value of the example for
granted and has to check that, or refuses it.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.variants.arguments import given_more
from torchstone.conformance.variants.protocol import NotApplicable, Variant
from torchstone.conformance.variants.support import taken, together

ITEM = "torch.Tensor.item"
DTYPES = {float: torch.float64, int: torch.int64}
"""The kinds of numbers, and the dtypes that hold them as Python does."""
PROGRAMS = 3
"""Programs that are asked: the case's own, and those with numbers given that it leaves out."""
TRIED = 12


def numbers(case: Case) -> Case:
    """Parts in which all fractions, or all whole numbers, of a program are read: as many as eager takes."""
    programs = itertools.islice(itertools.chain([case.program], given_more(case)), TRIED)
    ways = (_read(case.replace(program=program), kind) for program in programs for kind in DTYPES)
    found = list(itertools.islice((way for way in ways if way is not None and taken(way)), PROGRAMS))
    if not found:
        raise NotApplicable("no number among the arguments that might come from a tensor")
    return together(found)


def _read(case: Case, kind: type) -> Case | None:
    """The case with its numbers of a kind read from inputs; None where there is none."""
    inputs: dict[str, Tensor] = dict(case.inputs)
    calls: list[Call] = []

    def leaf(value: Any) -> Any:
        if type(value) is not kind:
            return value
        name = f"n{len(inputs) - len(case.inputs)}"
        inputs[name] = torch.tensor(value, dtype=DTYPES[kind])
        calls.append(Call(ITEM, (Ref(name),), {}, f"{name}_read"))
        return Ref(f"{name}_read")

    for call in case.program.calls:
        changed = call.map_arguments(leaf)  # which reads before the call
        calls.append(changed)
    if len(inputs) == len(case.inputs):
        return None
    return case.replace(program=Program(tuple(inputs), tuple(calls), case.program.outputs), inputs=inputs)


NUMBERS = Variant("Numbers among the arguments are read from 0-d tensors as the program runs.", numbers)

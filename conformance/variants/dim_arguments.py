"""The variant ``dims``: over the middle dim, counted from the end.

Most samples name the first dim or the last one. A backend that takes every dim for the last passes them, and so does
one that makes rows of what lies behind a dim.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from torchstone.compiler._torch.operators import schema_of
from torchstone.conformance.program.call_targets import resolve
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.program.program import Call
from torchstone.conformance.variants.protocol import NotApplicable, Variant
from torchstone.conformance.variants.support import resized, taken

NAMES = ("dim", "axis", "dims")
RANK = 3
"""Dims that an input needs to have one in the middle."""


def dims(case: Case) -> Case:
    """The case with another dim, or list of dims, for the one that a call is given or leaves out."""
    rank = max((tensor.dim() for tensor in case.args), default=0)
    for start in (_stacked(case), case) if 0 < rank < RANK else (case,) if rank else ():
        for call in start.program.calls:
            for changed in _told(call, max(rank, RANK) if start is not case else rank):
                told = start.replace(program=start.program.rewrite(lambda c, a=call, b=changed: b if c is a else c))
                if changed != call and taken(told):
                    return told
    raise NotApplicable("no call takes a dim, or eager takes no other")


def _stacked(case: Case) -> Case:
    """The case with dims before those of its inputs, of two elements each, until there are three."""
    rank = max(tensor.dim() for tensor in case.args)

    def stacked(tensor: Tensor) -> Tensor:
        if tensor.dim() < rank:
            return tensor
        for _ in range(RANK - rank):
            tensor = resized(tensor[None], 0, 2)
        return tensor

    return case.replace(inputs={name: stacked(tensor) for name, tensor in case.inputs.items()})


def _told(call: Call, rank: int) -> Iterator[Call]:
    """The call with the middle dim of so many, counted from the end, for its dim; of several, those after it too."""
    return with_dim(call, rank // 2 - rank)


def with_dim(call: Call, dim: int) -> Iterator[Call]:
    """The call with another dim in the place of its own, given or left out; of several, those after it too."""
    for names in _signatures(call):
        wanted = next((name for name in names if name in NAMES), None)
        if wanted is None:
            continue
        place = names.index(wanted)
        given = call.args[place] if place < len(call.args) else call.kwargs.get(wanted)
        if isinstance(given, Ref | str | bool | Tensor):
            continue
        count = len(given) if isinstance(given, list | tuple) else 1
        value = type(given)(range(dim, dim + count)) if isinstance(given, list | tuple) else dim
        if place < len(call.args):
            yield replace(call, args=(*call.args[:place], value, *call.args[place + 1 :]))
        else:
            yield replace(call, kwargs={**call.kwargs, wanted: value})


def _signatures(call: Call) -> Iterator[list[str]]:
    """The names of the arguments, in order: of a function written in Python its own, else those of ATen's schemas.

    What may be a symbol is a size, whatever it is called: the ``dims`` of ``tile`` are how often it repeats.
    """
    function = resolve(call.target)
    if inspect.isfunction(function):
        yield list(inspect.signature(function).parameters)
        return
    packet = getattr(torch.ops.aten, call.operator, None)
    for overload in packet.overloads() if packet is not None and hasattr(packet, "overloads") else ():
        schema = schema_of(getattr(packet, overload))
        if not any(argument.is_out for argument in schema.arguments):
            sizes = re.findall(r"SymInt\S* (\w+)", str(schema))
            yield ["" if argument.name in sizes else argument.name for argument in schema.arguments]


DIMS = Variant("Over the middle dim, counted from the end.", dims)

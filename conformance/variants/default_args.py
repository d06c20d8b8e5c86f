"""The variant ``optional``: arguments that a sample leaves out are given, by the schemas of ATen."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from torchstone.compiler._torch.operators import schema_of
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program
from torchstone.conformance.variants.protocol import NotApplicable, Variant
from torchstone.conformance.variants.support import answer, same
from torchstone.conformance.variants.values import special


def optional(case: Case, special: Callable[[Case], Case]) -> Case:
    """The case with arguments that make a difference; all of a schema that eager takes, or the first one.

    Some make one for special values alone (what to put for NaN), which ``special`` puts into an input.
    """
    for start in _starts(case, special):
        without = answer(start)
        if without is None:
            continue
        for program in _programs(case.program):
            given = start.replace(program=program)
            found = answer(given)
            if found is not None and not same(found, without):
                return given
    raise NotApplicable("no argument is left out that would make a difference")


def _starts(case: Case, special: Callable[[Case], Case]) -> Iterator[Case]:
    yield case
    with contextlib.suppress(NotApplicable):
        yield special(case)


def _programs(program: Program) -> Iterator[Program]:
    """The program with arguments of its last call given: all that a schema has, then one after the other."""
    for call in reversed(program.calls):
        for schema in _schemas(call):
            free = {
                argument.name: value
                for argument in schema.arguments[len(call.args) :]
                if argument.name not in call.kwargs and (value := _other(argument)) is not None
            }
            for some in (free, *({name: value} for name, value in free.items())) if free else ():
                given = replace(call, kwargs={**call.kwargs, **some})
                yield program.rewrite(lambda c, call=call, given=given: given if c is call else c)


def _schemas(call: Call) -> list[Any]:
    packet = getattr(torch.ops.aten, call.operator, None)
    if packet is None or call.target.startswith("torch.ops."):
        return []
    schemas = [schema_of(getattr(packet, overload)) for overload in packet.overloads()]
    return [schema for schema in schemas if not any(argument.is_out for argument in schema.arguments)]


def _other(argument: Any) -> Any:
    """Another number than an argument's default; None for one that has none, or is no number."""
    if not argument.has_default_value():
        return None
    default, kind = argument.default_value, str(argument.type).removeprefix("Optional[").removesuffix("]")
    if kind == "bool":
        return not default
    if kind in ("float", "number"):
        return 0.75 if default is None else default + 2
    if kind == "int" and default is not None:
        return default + 1
    return None


OPTIONAL = Variant("Arguments given that a sample leaves out.", lambda case: optional(case, special))

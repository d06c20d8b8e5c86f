"""The variant ``many``: lists of many tensors.

A sample joins two or three. Compilers join many of them in groups, pass them in a table, or give a name to each.
"""

from __future__ import annotations

from typing import Any

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.variants.long_dim import fits
from torchstone.conformance.variants.protocol import NotApplicable, Variant

COUNT = 33
"""Tensors of a list: one more than groups of 4, 8, 16 and 32 come to."""
ROOM = 1 << 20
"""Elements of a result: some ops give as many as the product of all sizes."""


def many(case: Case) -> Case:
    """The case with each list of tensors among its arguments repeated."""

    def repeated(value: Any) -> Any:
        if not isinstance(value, list | tuple) or not value or not all(isinstance(each, Ref) for each in value):
            return value
        return (value * COUNT)[:COUNT]

    if any(call.target.endswith("_") for call in case.program.calls):
        raise NotApplicable("what is written to would be there many times")
    program = case.program.rewrite(lambda call: call.map_arguments(repeated, nested=False))
    if program == case.program:
        raise NotApplicable("no list of tensors")
    changed = case.replace(program=program)
    if not fits(changed, room=ROOM, left_to_eager=False):
        raise NotApplicable("a result would be too large")
    return changed


MANY = Variant("Lists of many tensors.", many)

"""Simplify the literal arguments of calls: leave them out, or use smaller numbers, shorter lists, False."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import torch

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref, leaves
from torchstone.conformance.program.program import Call
from torchstone.reducers.edit import prune_and_rename
from torchstone.reducers.problem import Rewrite


def simplify_literals(case: Case) -> Rewrite[Case]:
    """Try each call's arguments, one change at a time, until none of them helps."""
    at = 0
    while at < len(case.program.calls):
        call = case.program.calls[at]
        for simpler in _simpler(call):
            program = case.program.rewrite(lambda c, old=call, new=simpler: new if c is old else c)
            candidate = prune_and_rename(case, program, case.inputs)
            if (yield candidate):
                case = candidate
                at = min(at, len(case.program.calls)) - 1  # the same call again: there may be more to take away
                break
        at += 1


def _simpler(call: Call) -> Iterator[Call]:
    for key in call.kwargs:
        yield dataclasses.replace(call, kwargs={name: value for name, value in call.kwargs.items() if name != key})
    if len(call.args) > 1:
        yield dataclasses.replace(call, args=call.args[:-1])
    for args in _variants(call.args):
        if len(args) == len(call.args):
            yield dataclasses.replace(call, args=args)
    for kwargs in _variants(call.kwargs):
        yield dataclasses.replace(call, kwargs=kwargs)


def _variants(value: Any) -> Iterator[Any]:
    """Yield values like ``value`` but for one leaf or one list that is simpler."""
    if isinstance(value, list | tuple):
        if not any(isinstance(leaf, Ref) for leaf in leaves(value)) or len(value) > 1:
            for at in range(len(value)):
                yield type(value)([*value[:at], *value[at + 1 :]])
        for at, item in enumerate(value):
            for simpler in _variants(item):
                yield type(value)([*value[:at], simpler, *value[at + 1 :]])
    elif isinstance(value, dict):
        for key, item in value.items():
            for simpler in _variants(item):
                yield {**value, key: simpler}
    elif isinstance(value, bool):
        if value:
            yield False
    elif isinstance(value, int):
        yield from (n for n in dict.fromkeys((0, 1, -1, value // 2, value - 1, -value)) if n != value)
    elif isinstance(value, float):
        finite = value == value and abs(value) != float("inf")
        smaller = (float(int(value)), round(value, 1), round(value, 3)) if finite else ()
        yield from (n for n in dict.fromkeys((0.0, 1.0, *smaller)) if n != value)
    elif isinstance(value, torch.dtype) and value != torch.float32:
        yield torch.float32
    elif isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        for at, part in itertools.product(range(3), (None, 0, 1)):
            if parts[at] is not None and parts[at] != part:
                start, stop, step = (*parts[:at], part, *parts[at + 1 :])
                yield slice(start, stop, step)

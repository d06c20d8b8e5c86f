"""Calls with arguments that no family draws: what the call leaves out, and others in the place of a number or a name.

What these may be is what the suite's variant ``arguments`` asks. Whether eager takes them is asked in another process:
some of its kernels end theirs.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from torchstone.conformance.execution.apart import ask_apart
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref, leaves
from torchstone.conformance.program.program import Call, Program
from torchstone.conformance.variants.arguments import in_place_of, other_than
from torchstone.conformance.variants.defaults import left_out
from torchstone.fuzz.generator.choices import Choices
from torchstone.fuzz.generator.draft import Arguments, DraftValue
from torchstone.fuzz.generator.in_a_variant import SECONDS

OTHER = 25
"""Of a hundred calls, for how many it is tried."""
TWO = 30
"""Of these, for how many of a hundred two arguments are changed."""


def with_others(choices: Choices, target: str, drawn: Arguments) -> Arguments | None:
    """Return the arguments of a call with one or two others, more, or less; None where eager does not take them."""
    call = Call(target, drawn.args, drawn.kwargs, "v0")
    for _ in range(1 + choices.chance(TWO)):
        ways = [*_replaced(call), *_given(call), *_left_out(call)]
        if not ways:
            return None
        call = choices.pick(choices.pick(ways))()
    return Arguments(call.args, call.kwargs, drawn.exact) if _is_taken(call) else None


Ways: TypeAlias = Iterator[list[Callable[[], Call]]]
"""For each place in a call: the calls with something else there."""


def _replaced(call: Call) -> Ways:
    for at, leaf in enumerate(leaves((call.args, call.kwargs))):
        if values := list(in_place_of(leaf)):
            yield [functools.partial(_with, call, at, value) for value in values]


def _given(call: Call) -> Ways:
    for free in left_out(call):
        for name, default in free.items():
            if values := list(other_than(default)):
                yield [functools.partial(_named, call, {**call.kwargs, name: value}) for value in values]


def _left_out(call: Call) -> Ways:
    for name, value in call.kwargs.items():
        if not any(isinstance(leaf, DraftValue) for leaf in leaves(value)):
            yield [functools.partial(_named, call, {k: v for k, v in call.kwargs.items() if k != name})]


def _with(call: Call, place: int, value: Any) -> Call:
    count = itertools.count()
    return call.map_arguments(lambda leaf: value if next(count) == place else leaf)


def _named(call: Call, kwargs: dict[str, Any]) -> Call:
    return replace(call, kwargs=kwargs)


def _is_taken(call: Call) -> bool:
    """Whether eager makes a call whose operands are values of a draft."""
    operands = [leaf for leaf in leaves((call.args, call.kwargs)) if isinstance(leaf, DraftValue)]
    names = {value.ref: f"x{at}" for at, value in enumerate({value.ref: value for value in operands}.values())}
    named = call.map_arguments(lambda leaf: Ref(names[leaf.ref]) if isinstance(leaf, DraftValue) else leaf)
    inputs = {names[value.ref]: value.tensor for value in operands}
    case = Case(Program(tuple(inputs), (named,), Ref(call.result)), inputs, "fuzz", call.operator, "none")
    return ask_apart(_runs, case, seconds=SECONDS) is True


def _runs(case: Case, _: str) -> bool:
    with torch.random.fork_rng(devices=[]):
        case.program(*case.fresh_args())
    return True

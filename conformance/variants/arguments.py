"""The variant ``arguments``: one program that makes a case's call with other numbers, flags and names in its arguments.

Samples give few of the numbers that kernels treat in a way of their own: an exponent of -0.5, a size of 0, a bound that
is NaN. Each number of a call is replaced by these in turn, each flag by the other, each name by those of its kind, and
what a sample leaves out is given, and what it gives is left out. Which of them an op takes, eager is asked.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref, leaves
from torchstone.conformance.program.program import Call, Program
from torchstone.conformance.variants.defaults import left_out
from torchstone.conformance.variants.forked import answers
from torchstone.conformance.variants.laid_out import laid_out_by_turns
from torchstone.conformance.variants.protocol import NotApplicable, Variant
from torchstone.conformance.variants.shapes import emptied, without_columns
from torchstone.conformance.variants.support import answer, same, taken, together
from torchstone.conformance.variants.ties import tied
from torchstone.conformance.variants.values import extremes_placed, special

WHOLE = (0, 1, 2, -1, 70)
FRACTIONS = (0.5, 0.0, -0.5, 1.0, math.nan, 2.0, math.inf, -1.0, -math.inf, -0.0, 1000.3, 1e-39)
"""Numbers that kernels treat in a way of their own, those first that say most of an op; 70 is beyond any vector, and
1000.3 is in no binary dtype."""

NAMES = (
    ("none", "mean", "sum"),
    ("none", "tanh"),
    ("floor", "trunc"),
    ("sum", "prod", "mean", "amax", "amin"),
    ("linear", "lower", "higher", "midpoint", "nearest"),
    ("nearest", "nearest-exact", "bilinear", "bicubic", "area", "linear", "trilinear"),
    ("zeros", "border", "reflection"),
    ("constant", "reflect", "replicate", "circular"),
    ("backward", "ortho", "forward"),
    ("reduced", "complete", "r"),
    ("fro", "nuc"),
    ("L", "U"),
    ("ij", "xy"),
)
"""Names that PyTorch's ops take in one place."""

DTYPES_NAMED = tuple(
    getattr(torch, name)
    for name in (
        "float64", "float32", "int64", "float8_e4m3fn", "uint16", "complex64", "bfloat16", "bool", "float8_e5m2",
        "uint64", "int8", "float8_e4m3fnuz", "uint32", "float16", "uint8", "float8_e5m2fnuz", "int16", "complex128",
        "float8_e8m0fnu",
    )
    if hasattr(torch, name)
)  # fmt: skip
"""Dtypes that an argument may name; other samples begin with others of them."""

MOST, MOST_SPECIAL, MOST_EMPTY = 12, 12, 3
"""Programs in a case on its own inputs, on special ones, and on inputs without rows or columns."""
CALLS = 60
"""Calls that these programs have together, on each kind of inputs: a long one is judged for long."""
FURTHER = 5
"""How many places further on in a list the next sample begins, or a few more: so that all places have their turn."""
MOST_TRIED = 80
"""Programs that eager is asked about."""
MOST_SIZE = 64
"""Sizes up to which a number beyond all of them is tried."""
ROOM = 1 << 16
"""Elements of the results of one program."""


def arguments(case: Case) -> Case:
    """The case's program with other arguments, as often as eager takes and tells apart, on its own and special inputs.

    Some arguments make a difference for special values alone: what to put for NaN.
    """
    programs = list(itertools.islice(_programs(case), MOST_TRIED))
    starts = _starts(case) if programs else ()
    room = max(1, CALLS // len(case.program.calls))
    told = [_telling(start, programs, min(most, room)) for start, most in starts]
    chosen = [given for turned in (*map(laid_out_by_turns, told[:1]), *told[1:]) for given in turned]
    if not chosen:
        raise NotApplicable("no argument might be another and make a difference")
    return _read(together(chosen))


def _read(case: Case) -> Case:
    """The case without inputs that nothing reads."""
    used = {ref.name for call in case.program.calls for ref in call.refs()}
    inputs = {name: tensor for name, tensor in case.inputs.items() if name in used}
    return case.replace(program=case.program.rewrite(lambda call: call, inputs=inputs), inputs=inputs)


def _telling(start: Case, programs: list[Program], most: int) -> list[Case]:
    """The case with each program that eager takes and whose results are those of none before."""
    if not answers([partial(taken, start)], 1)[0] or (first := answer(start)) is None:
        return []
    seen, cases = [first], [start.replace(program=program) for program in programs]

    def tells(case: Case) -> bool:
        found = answer(case)
        if found is None or not fits_room(found) or any(same(found, other) for other in seen):
            return False
        seen.append(found)
        return True

    told = answers([partial(tells, case) for case in cases], most)
    return [case for case, yes in zip(cases, told, strict=False) if yes]


def _starts(case: Case) -> Iterator[tuple[Case, int]]:
    """The case as it is or with elements that are equal, every other sample; with special values; and empty.

    Each with how many programs it is asked in, at most.
    """
    with contextlib.suppress(NotApplicable):
        case = tied(case) if case.index % 2 else case
    yield case, MOST
    for placed in (special, extremes_placed):
        with contextlib.suppress(NotApplicable):
            yield placed(case, most=1), MOST_SPECIAL
            break
    with contextlib.suppress(NotApplicable):
        yield (emptied if case.index % 2 else without_columns)(case), MOST_EMPTY


def fits_room(results: list[Any]) -> bool:
    """Whether results are few numbers: a size or a factor among the arguments may be made large."""
    return sum(leaf.numel() for leaf in results if isinstance(leaf, Tensor)) <= ROOM


def _programs(case: Case) -> Iterator[Program]:
    """By turns: all that is left out of a call given, what is given left out, several arguments changed at once, one
    place after the other."""
    ways = [given_more(case), given_less(case), drawn_arguments(case), *_replaced(case), _numbers_for_inputs(case)]
    for group in itertools.zip_longest(*ways):
        yield from (program for program in group if program is not None)


def _replaced(case: Case) -> list[Iterator[Program]]:
    """For each literal, the programs with others in its place; samples begin with different ones."""

    return [
        (_changed(case.program, {place: other}) for other in _turned(others, case.index))
        for place, others in _choices(case).items()
    ]


def _turned(others: list[Any], index: int) -> list[Any]:
    """A list that begins at another place for each sample."""
    step = next(step for step in itertools.count(FURTHER) if math.gcd(step, max(1, len(others))) == 1)
    start = index * step % max(1, len(others))
    return others[start:] + others[:start]


def _choices(case: Case) -> dict[int, list[Any]]:
    """What may be in the place of each literal that there is something else for."""
    largest = max((size for tensor in case.args for size in tensor.shape), default=0)
    near = (largest, largest + 1, -largest - 1) if largest < MOST_SIZE else ()
    values = [value for call in case.program.calls for value in leaves((call.args, call.kwargs))]
    found = {at: [*in_place_of(value), *(near if type(value) is int else ())] for at, value in enumerate(values)}
    return {at: others for at, others in found.items() if others}


def _changed(program: Program, others: Mapping[int, Any]) -> Program:
    count = itertools.count()
    return program.rewrite(lambda call: call.map_arguments(lambda value: others.get(next(count), value)))


def drawn_arguments(case: Case) -> Iterator[Program]:
    """Programs with about half of all arguments changed or given: pairs of them that no sample has."""
    choices = _choices(case)
    for _ in range(MOST_TRIED):
        changed = {at: random.choice(others) for at, others in choices.items() if random.random() < 0.5}
        program = _changed(case.program, changed)
        free = next((free for call in program.calls[-1:] for free in left_out(call) if free), {})
        given = {name: value for name in free if random.random() < 0.5 for value in [_some(name, free[name])]}
        if changed or given:
            yield program.rewrite(lambda call, given=given, last=program.calls[-1]: _with(call, given, last))


def _with(call: Call, given: dict[str, Any], last: Call) -> Call:
    return replace(call, kwargs={**call.kwargs, **given}) if call is last else call


def _some(name: str, default: Any) -> Any:
    return random.choice([*other_than(default)] or [default])


def _numbers_for_inputs(case: Case) -> Iterator[Program]:
    """The program with a number in the place of its last input, of its first, then for all but the first."""
    names = list(case.inputs)
    if len(names) < 2:
        return
    of_first = itertools.cycle(_turned([1, 0, *FRACTIONS, 2], case.index))
    for of_last, number in zip((0, *FRACTIONS, 3), of_first, strict=False):
        yield _without_inputs(case.program, {names[-1]: of_last})
        yield _without_inputs(case.program, {names[0]: number})
        if len(names) > 2:
            yield _without_inputs(case.program, {name: random.choice((0, *FRACTIONS)) for name in names[1:]})


def _without_inputs(program: Program, numbers: Mapping[str, float]) -> Program:
    def leaf(value: Any) -> Any:
        return numbers.get(value.name, value) if isinstance(value, Ref) else value

    return program.rewrite(lambda call: call.map_arguments(leaf))


def in_place_of(value: Any) -> Iterator[Any]:
    """What may stand in the place of a literal: other numbers and dtypes, the other flag, names of its kind."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (other for other in (*WHOLE, 0.5, -0.5, math.nan) if other != value)
        yield [0, -1]  # where several dims are taken, too
    elif isinstance(value, float):
        yield from (other for other in FRACTIONS if repr(other) != repr(value))
    elif isinstance(value, torch.dtype):
        yield from (other for other in DTYPES_NAMED if other != value)
    elif isinstance(value, str):
        found = [name for names in NAMES if value in names for name in names if name != value]
        yield from dict.fromkeys(found)


def given_more(case: Case) -> Iterator[Program]:
    """The case's program with arguments of its last call given: all that it leaves out, then each alone, by turns.

    What each is given begins at another place for each sample.
    """
    program = case.program
    for call in reversed(program.calls):
        for free in left_out(call):
            first = {
                name: value for name, default in free.items() if (value := next(other_than(default), None)) is not None
            }
            ways = [first] if first else []
            rows = [
                [{name: value} for value in _turned(list(other_than(default)), case.index)]
                for name, default in free.items()
            ]
            ways += [way for turn in itertools.zip_longest(*rows) for way in turn if way is not None]
            for some in ways:
                given = replace(call, kwargs={**call.kwargs, **some})
                yield program.rewrite(lambda c, call=call, given=given: given if c is call else c)


def given_less(case: Case) -> Iterator[Program]:
    """The case's program without one of the literals that its last call is given by name or last."""
    program, last = case.program, case.program.calls[-1]
    names = [name for name, value in last.kwargs.items() if not any(isinstance(leaf, Ref) for leaf in leaves(value))]
    less = [replace(last, kwargs={k: v for k, v in last.kwargs.items() if k != name}) for name in names]
    if last.args and not isinstance(last.args[-1], Ref):
        less.append(replace(last, args=last.args[:-1]))
    for call in _turned(less, case.index):
        yield program.rewrite(lambda each, call=call: call if each is last else each)


def other_than(default: Any) -> Iterator[Any]:
    """Others than a default: first a number that is near it and no special one."""
    if type(default) is int:
        yield default + 1
    elif type(default) is float:
        yield default + 2
    elif default is None:
        yield from (0.75, math.inf, 2, -math.inf, 0.0, -1, math.nan)
        return
    yield from in_place_of(default)


ARGUMENTS = Variant(
    "Other numbers, flags and names among the arguments, those given that a sample leaves out, and the reverse.",
    arguments,
)

"""The variants ``pairs`` and ``mixes``: what others change one at a time, two or several of it at once, in each part.

Most bugs that one change does not show need two: gradients in 16 bits, an argument that nobody gives on an empty input,
equal elements where another mode has a gradient. All combinations are far too many. So the parts of one program are
rows of a covering array. Its factors are the sample, the dtype, what is changed ``FIRST``, what is changed ``ON_TOP``
and where the inputs lie in memory. Of each factor row ``n`` has level ``n`` modulo the number of its levels. No two of
these numbers have a common divisor, so all pairs of levels come by equally often: over the ops, whose rows begin at
different numbers, and over the samples of an op, which go on with the next rows.

The rows of ``mixes`` are drawn: each factor is as likely to be changed as not.

Eager decides which rows are cases. A dtype that it does not take with the others gives way to the sample's own.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from torchstone.conformance.program.case import Case
from torchstone.conformance.sources.sampling import seeded
from torchstone.conformance.variants.arguments import drawn_arguments, fits_room
from torchstone.conformance.variants.backward import backward
from torchstone.conformance.variants.bundles import draws
from torchstone.conformance.variants.dtypes import mixed_operands, narrow_places
from torchstone.conformance.variants.forked import answers
from torchstone.conformance.variants.laid_out import laid_out_by_turns
from torchstone.conformance.variants.protocol import NotApplicable, Variant
from torchstone.conformance.variants.registry import VARIANTS
from torchstone.conformance.variants.samples import KINDS, in_each_kind, is_large
from torchstone.conformance.variants.shapes import emptied, other_ranks, without_columns
from torchstone.conformance.variants.support import answer, change_inputs, reads_beyond, taken, together
from torchstone.conformance.variants.ties import tied
from torchstone.conformance.variants.values import extremes_placed, special

PARTS, ROWS = 12, 40
"""Parts of a program, and rows of the array that are tried for them."""
STEP = 23
"""Rows further on the next sample of an op begins: about as many as one takes, and no divisor of the rows there are."""
CHANGED = 0.5
"""How likely a factor of a row of ``mixes`` is to be changed."""
DRAWN, WAYS = 8, 16
"""Ways to draw arguments, or the dtypes of all operands, and ways that a row has in all: the first that eager takes is
asked."""

FIRST = (
    "", "empty", "ties", "arguments", "", "scalar", "mixed", "halves", "columns", "", "single", "places", "odd", "wide",
    "dims",
)  # fmt: skip
ON_TOP = ("gradients", "special", "arguments", "extremes", "gradients", "magnitudes", "arguments", "negative")
"""What is changed, and what is changed on top of it. Nothing leaves a sample and a dtype as they are. Gradients and
arguments have more turns: they are other code, where numbers and sizes are other paths through the same."""


Way: TypeAlias = tuple[int, str, Case, bool]
"""The number of a row, a name, the case changed but for its gradients, and whether these are asked."""


class Level(NamedTuple):
    """What a row may have of a factor: the case changed so, in one way or in several, of which eager takes some."""

    factor: str
    ways: Callable[[Case], Iterable[Case]]


FACTORS = ("sizes", "operands", "values", "arguments", "gradients")
"""In the order in which they are changed: numbers are placed in the inputs that there are."""


class Row(NamedTuple):
    """What is asked together: levels of several factors, by name, on samples of a kind of dtype."""

    number: int
    kind: int
    levels: tuple[str, ...]


def pairs(case: Case) -> Case:
    """Parts of two changes each, as many as eager takes of the rows that the case's op and index begin with."""
    begin = STEP * (_hash(case.op) + case.index)
    numbers = itertools.count(begin)
    changes = ((n, (FIRST[n % len(FIRST)], ON_TOP[n % len(ON_TOP)])) for n in numbers)
    return _together(case, (Row(n, n, tuple(filter(None, names))) for n, names in changes))


def mixes(case: Case) -> Case:
    """Parts of several changes each, which are drawn: as many as eager takes of so many rows."""
    drawn = random.Random(_hash(f"{case.op}:{case.dtype}:{case.index}"))
    return _together(case, (Row(n, *_draw(drawn)) for n in itertools.count()))


def _draw(drawn: random.Random) -> tuple[int, tuple[str, ...]]:
    """A kind of dtype, the sample's own in half of the rows, and a level of each factor or none.

    Never ``extremes``: beside other changes, what overflows on the way is a matter of the order of steps, of which an
    op with odd arguments has many.
    """
    kind = drawn.choice((0, drawn.randrange(len(KINDS))))
    names = [
        [name for name, level in LEVELS.items() if level.factor == factor and name != "extremes"] for factor in FACTORS
    ]
    return kind, tuple(drawn.choice(of_one) for of_one in names if drawn.random() < CHANGED)


def _together(case: Case, rows: Iterator[Row]) -> Case:
    if is_large(case) or draws(case):
        raise NotApplicable("it is large, or draws random numbers, which are compared call by call")
    samples, found = in_each_kind(case), dict[str, Case]()
    rows = itertools.islice(rows, ROWS)
    while len(found) < PARTS and (chunk := list(itertools.islice(rows, PARTS))):
        ways = [way for row in chunk for way in _ways(row, samples)]
        found |= _taken(case, ways, PARTS - len(found))
    if not found:
        raise NotApplicable("eager takes no such changes at once")
    return together(laid_out_by_turns(list(found.values())), list(found))


def _taken(case: Case, ways: Sequence[Way], most: int) -> dict[str, Case]:
    """Of each row the first way that eager takes, ``most`` of them; by a name that says what is changed."""
    done: set[int] = set()

    def takes(number: int, changed: Case, differentiated: bool) -> bool:
        if number in done or not _is_taken(changed, differentiated):
            return False
        done.add(number)
        return True

    told = answers([partial(takes, number, changed, grad) for number, _, changed, grad in ways], most)
    found: dict[int, tuple[str, Case]] = {}
    for (number, name, changed, differentiated), yes in zip(ways, told, strict=False):
        if yes and number not in found:
            with seeded(f"{case.id}:{name}"):
                found[number] = name, backward(changed) if differentiated else changed
    return dict(found.values())


def _is_taken(case: Case, differentiated: bool) -> bool:
    results = answer(case)
    if results is None or not fits_room(results) or draws(case):
        return False
    if any(not tensor.numel() for tensor in case.args) and reads_beyond(case):  # places in a table of nothing
        return False
    if not differentiated:
        return True
    found = answer(backward(case))  # a gradient that is sparse is one argument's matter, and few backends take it
    return found is not None and all(leaf.layout is torch.strided for leaf in found if isinstance(leaf, Tensor))


def _ways(row: Row, samples: Sequence[Sequence[Case]]) -> Iterator[Way]:
    """What a row may be, best first: in its dtype, or in the case's own."""
    levels = {LEVELS[name].factor: LEVELS[name].ways for name in row.levels}
    if len(levels) < len(row.levels):  # two of one factor are no pair
        return
    for known in filter(None, (samples[row.kind % len(samples)], samples[0])):
        start = known[_hash(str(row.number)) % len(known)]  # by turns, samples would go with some of the levels alone
        name = "_".join((f"row{row.number % ROUND}", start.dtype, *row.levels))
        for changed in _changed(start, levels, name):
            yield row.number, name, changed, "gradients" in levels


def _changed(start: Case, levels: Mapping[str, Callable[[Case], Iterable[Case]]], name: str) -> list[Case]:
    """The ways that a sample is changed in; none where a level has nothing to change."""
    cases = [start]
    # The second is eager's, of a dtype that it hardly has anything for.
    with contextlib.suppress(NotApplicable, NotImplementedError), seeded(f"{start.id}:{name}"):
        for factor in FACTORS:
            if factor not in levels:
                continue
            if factor == "values" and start not in cases:  # where numbers go, eager is asked in this process
                told = answers([partial(taken, each) for each in cases], most=1)
                cases = [each for each, yes in zip(cases, told, strict=False) if yes]
            cases = [way for each in cases for way in levels[factor](each)][:WAYS]
        return cases
    return []


def _hash(text: str) -> int:
    return zlib.crc32(text.encode())


def _negative(case: Case) -> Case:
    """The case with numbers below 0 alone, where there are any: nothing begins at 0 then."""
    floats = any(tensor.is_floating_point() for tensor in case.args)

    def turned(tensor: Tensor) -> Tensor:
        signed = tensor.is_floating_point() if floats else tensor.dtype.is_signed and not tensor.is_complex()
        return -tensor.abs() - 1 if signed and tensor.numel() else tensor

    return change_inputs(case, turned, "no input of signed numbers")


def _emptied(whole: Callable[[Case], Case], cut: Callable[[Tensor], Tensor]) -> Callable[[Case], Iterable[Case]]:
    """Nothing in all inputs that go together, or else in one input alone: a table, what is looked up in it."""

    def ways(case: Case) -> Iterator[Case]:
        with contextlib.suppress(NotApplicable):
            yield whole(case)
        for name, tensor in case.inputs.items():
            if tensor.dim() and tensor.numel():
                yield case.replace(inputs={**case.inputs, name: cut(tensor).clone()})

    return ways


def _one(change: Callable[[Case], Case]) -> Callable[[Case], Iterable[Case]]:
    return lambda case: [change(case)]


def _variant(name: str) -> Callable[[Case], Iterable[Case]]:
    return lambda case: [VARIANTS.load(name).make(case)]


def _drawn(case: Case) -> Iterable[Case]:
    return [case.replace(program=program) for program in itertools.islice(drawn_arguments(case), DRAWN)]


LEVELS = {
    "empty": Level("sizes", _emptied(emptied, lambda tensor: tensor[:0])),
    "columns": Level("sizes", _emptied(without_columns, lambda tensor: tensor[..., :0])),
    **{name: Level("sizes", _variant(name)) for name in ("scalar", "single", "line", "odd", "dims")},
    "ranks": Level("sizes", other_ranks),
    "mixed": Level("operands", lambda case: mixed_operands(case, DRAWN)),
    "places": Level("operands", _one(narrow_places)),
    "wide": Level("operands", _variant("wide")),
    "special": Level("values", _one(partial(special, most=1))),
    "extremes": Level("values", _one(partial(extremes_placed, most=1))),
    "ties": Level("values", _one(tied)),
    "negative": Level("values", _one(_negative)),
    **{name: Level("values", _variant(name)) for name in ("halves", "magnitudes")},
    "arguments": Level("arguments", _drawn),
    "gradients": Level("gradients", lambda case: [case]),
}
"""What may be changed, by name: some of it in ``mixes`` alone."""

ROUND = len(KINDS) * len(FIRST) * len(ON_TOP)
"""Rows, after which they begin anew."""

PAIRS = Variant("Two changes at once, other ones in each part of one program.", pairs, try_eager=False)
MIXES = Variant("Several changes at once, drawn, other ones in each part of one program.", mixes, try_eager=False)
"""The variant ``mixes``."""

"""Variants that ask several samples of an op in one program: ``samples``, ``gradients``, ``dtypes``, ``layouts``.

What a call costs is mostly what a program costs: to compile it, to call it again in other ways, to isolate it. So one
program makes the calls of several samples, those first whose arguments differ most from those before:

    r0_3 = softmax(x0_3, -1)
    r0_7 = softmax(x0_7, 0, dtype=torch.float64)

Where a backend refuses it, it is asked for its parts (``execution.run_case``).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import zlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from torchstone.conformance.program.case import Case
from torchstone.conformance.selection.features import Feature, features
from torchstone.conformance.sources import SOURCES, load
from torchstone.conformance.sources.sampling import seeded
from torchstone.conformance.variants.arguments import drawn_arguments, fits_room, given_less, given_more
from torchstone.conformance.variants.backward import backward, with_gradients
from torchstone.conformance.variants.bundles import bundled, draws
from torchstone.conformance.variants.defaults import left_out
from torchstone.conformance.variants.forked import answers
from torchstone.conformance.variants.laid_out import laid_out_by_turns
from torchstone.conformance.variants.protocol import NotApplicable, Variant
from torchstone.conformance.variants.registry import VARIANTS
from torchstone.conformance.variants.shapes import emptied
from torchstone.conformance.variants.support import answer, taken, together
from torchstone.conformance.variants.ties import tied
from torchstone.conformance.variants.values import special

TOGETHER = 12
"""Samples in one program, at most."""
MORE = 4
"""Programs with arguments given that a sample leaves out, or left out that it gives."""
DRAWN, DRAWN_OF = 3, 24
"""Programs with several arguments changed: so many of those drawn that eager takes."""
ELEMENTS = 1 << 14
"""Elements of their inputs together; a larger sample is asked alone."""
ROUND = 3
"""Of the largest samples of another dtype that many take turns, if they are about as large: a variant has something to
change in many numbers, and nothing in none."""
KINDS = (
    ("",), ("float16",), ("int32", "int64", "int16", "int8"), ("",), ("bfloat16",), ("complex64",),
    ("uint8", "uint16", "uint32", "uint64"),
)  # fmt: skip
"""Kinds of dtype that take turns where a sample is asked in one of them; "" is the sample's own."""
TRIED = 64
"""Samples of an op that are looked at; of each other dtype, a quarter."""


def samples(case: Case) -> Case:
    """The case and other samples of its op and dtype, in one program."""
    cases = _unlike(case)
    if len(cases) < 2:
        raise NotApplicable("it has no other samples that eager takes in one program")
    return together(cases, [str(each.index) for each in cases])


def gradients(case: Case) -> Case:
    """Gradients of the case and other samples, and of what makes other formulas of them.

    That is other arguments, more and fewer: each has a gradient of its own. Equal elements, where kinks are. Special
    values: what asks on which side of a number x is has an answer of its own for NaN. And no elements.
    """
    found = {str(each.index): each for each in _unlike(case)}
    turns = itertools.zip_longest(given_more(case), given_less(case))
    more = itertools.islice((program for turn in turns for program in turn if program is not None), MORE)
    found |= {f"given{at}": case.replace(program=program) for at, program in enumerate(more)}
    with seeded(f"{case.id}:drawn"):
        drawn = [case.replace(program=program) for program in itertools.islice(drawn_arguments(case), DRAWN_OF)]
    told = answers([partial(_has_gradients, each) for each in drawn], most=DRAWN)
    found |= {f"drawn{at}": drawn[at] for at, yes in enumerate(told) if yes}
    for name, change in (("ties", tied), ("empty", emptied), ("special", partial(special, most=1))):
        with contextlib.suppress(NotApplicable), seeded(f"{case.id}:{name}"):
            found[name] = change(case)
    asked = answers([partial(_has_gradients, each) for each in found.values()], most=len(found))
    turned = {}
    for (name, each), yes in zip(found.items(), asked, strict=True):
        if yes:
            with seeded(f"{case.id}:{name}"):
                turned[name] = backward(each)
    if not turned:
        raise NotApplicable("it has no gradients")
    return together(laid_out_by_turns(list(turned.values())), list(turned))


def _has_gradients(case: Case) -> bool:
    found = answer(case)
    return found is not None and fits_room(found) and taken(backward(case))


def layouts(case: Case) -> Case:
    """The case in each layout, and other samples in one each by turns: what reads memory depends on arguments."""
    others = _unlike(case) if _size(case) <= ELEMENTS else []
    return bundled(case, "layouts", [each for each in others if each.index != case.index])


def dtypes(case: Case) -> Case:
    """The case's sample in the op's other dtypes: as it is where these are exact, and with the values that tell."""
    found = {}
    for dtype in load(case.source).dtypes_of(case.op):
        if dtype == case.dtype or dtype not in _ASKED:
            continue
        known = [
            each
            for each in _siblings(case.source, case.op, dtype, TRIED // 4)
            if each.args and _size(each) <= ELEMENTS // 4
        ]
        most = max(map(_size, known), default=0)
        largest = sorted((each for each in known if 4 * _size(each) >= most), key=_size, reverse=True)[:ROUND]
        if not largest or draws(sample := largest[case.index % len(largest)]):
            continue
        for name in _ASKED[dtype] if _keeps_integers(sample) else ("default",):
            with contextlib.suppress(NotApplicable), seeded(f"{sample.id}:{name}"):
                found[f"{dtype}_{name}"] = (
                    _differentiated(sample) if name == "backward" else VARIANTS.load(name).make(sample)
                )
    found |= _integers_computed_as_floats(case) if "int64" not in load(case.source).dtypes_of(case.op) else {}
    asked = answers([partial(taken, changed) for changed in found.values()], most=len(found))
    chosen = {name: changed for (name, changed), yes in zip(found.items(), asked, strict=True) if yes}
    if not chosen:
        raise NotApplicable("it has no other dtypes that eager takes")
    return together(laid_out_by_turns(list(chosen.values())), list(chosen))


def _integers_computed_as_floats(case: Case) -> dict[str, Case]:
    """The case with whole numbers in its inputs, the dtype of its floats named: ``mean(x, dtype=torch.float32)``."""
    last, dtype = case.program.calls[-1], getattr(torch, case.dtype)
    inputs = {name: x.to(torch.int64) if x.dtype is dtype else x for name, x in case.inputs.items()}
    if not dtype.is_floating_point or not any("dtype" in free for free in left_out(last)):
        return {}
    named = replace(last, kwargs={**last.kwargs, "dtype": dtype})
    program = case.program.rewrite(lambda call: named if call is last else call)
    return {"int64_named": case.replace(program=program, inputs=inputs)}


def _differentiated(sample: Case) -> Case:
    if (case := with_gradients(sample)) is sample:
        raise NotApplicable("it has no gradients")
    return case


_ASKED = {
    "float64": ("default", "small"),
    "float16": ("magnitudes", "extremes", "scalar"),
    "bfloat16": ("special", "backward"),
    "complex64": ("special", "backward"),
    "int64": ("default", "extremes", "uniform"),
    "int32": ("default", "extremes"),
    "int8": ("default", "extremes"),
    "uint8": ("default", "extremes"),
    "bool": ("default",),
}
"""The variants in each dtype. Integers are exact, and are asked as they are, too, and as rows of nothing but the
smallest one. In 16 bits an op of one element may take a way of its own, on which it has to compute as wide; in 64 there
are numbers that no narrower dtype tells apart. Gradients are asked where they round, and where they are conjugated."""


def _keeps_integers(sample: Case) -> bool:
    """Whether the results of integers are integers. Where an op takes them for floats, those at the ends of their range
    are numbers without digits: what rounding them leaves is no question of the dtype."""
    return any(map(_is_float, sample.args)) or not any(map(_is_float, answer(sample) or []))


def _is_float(leaf: object) -> bool:
    return isinstance(leaf, float | complex) or (
        isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex())
    )


def _unlike(case: Case) -> list[Case]:
    """The case and others, each the one with most that is new; those that eager does not take left out."""
    if is_large(case) or draws(case):
        raise NotApplicable("it is large, or draws random numbers, which are compared call by call")
    found, room = [case], ELEMENTS - _size(case)
    for best in _most_unlike(case, TRIED):
        if len(found) < TOGETHER and _size(best) <= room and taken(best):
            found.append(best)
            room -= _size(best)
    return sorted(found, key=lambda each: each.index)


def _most_unlike(case: Case, tried: int) -> Iterator[Case]:
    """Others of the first samples of a case's op and dtype, each the one with most that none before it has."""
    facts = _facts(case.source, case.op, case.dtype, tried)
    others = {each.index: each for each in _siblings(case.source, case.op, case.dtype, tried) if each.args}
    others.pop(case.index, None)
    met = set(features(case))
    while others:
        best = max(others.values(), key=lambda each: (len(facts[each.index] - met), -each.index))
        if not facts[best.index] - met:
            return
        met |= facts[best.index]
        yield others.pop(best.index)


def in_each_kind(case: Case) -> list[list[Case]]:
    """Samples of the case's op in one dtype of each of ``KINDS``, those first whose arguments differ most.

    The first of the case's own dtype is the case, and a kind's turn at that dtype has none. None where the op has no
    such dtype; large samples are left out.
    """
    turn = zlib.crc32(case.op.encode()) + case.index
    return [_in_dtype(case, kind[turn % len(kind)]) for kind in KINDS]


def _in_dtype(case: Case, dtype: str) -> list[Case]:
    own = not dtype
    if own:
        first = case
    elif dtype != case.dtype and case.source in SOURCES and dtype in load(case.source).dtypes_of(case.op):
        known = _siblings(case.source, case.op, dtype, TRIED // 4)
        first = next((each for each in known if each.args and not is_large(each)), None)
    else:
        first = None
    if first is None:
        return []
    more = (each for each in _most_unlike(first, TRIED if own else TRIED // 4) if 4 * _size(each) <= ELEMENTS)
    return [first, *itertools.islice(more, TOGETHER - 1)]


def unlike_by_turns(case: Case, most: int) -> list[Case]:
    """So many samples of the case's op beside it: kinds of dtype take turns, and another one is first for each case."""
    own, *others = in_each_kind(case)
    rows = [own[1:], *(known for known in others if known and known[0] is not case)]
    start = case.index % len(rows)
    turns = (each for turn in itertools.zip_longest(*rows[start:], *rows[:start]) for each in turn)
    return list(itertools.islice((each for each in turns if each is not None), most))


def is_large(case: Case) -> bool:
    """Whether a case is asked alone, and not with others in one program."""
    return _size(case) > ELEMENTS


@functools.lru_cache(maxsize=16)
def _facts(source: str, op: str, dtype: str, most: int) -> dict[int, frozenset[Feature]]:
    return {each.index: features(each) for each in _siblings(source, op, dtype, most)}


@functools.lru_cache(maxsize=16)
def _siblings(source: str, op: str, dtype: str, most: int) -> tuple[Case, ...]:
    if source not in SOURCES:
        return ()
    entries = load(source).iterate([op], [dtype], most)
    return tuple(entry for entry in entries if isinstance(entry, Case))


def _size(case: Case) -> int:
    return sum(tensor.numel() for tensor in case.args)


LAYOUTS = Variant(
    "Variants of where the inputs of several samples lie in memory, in one program.", layouts, try_eager=False
)
SAMPLES = Variant("Several samples of the op, whose arguments differ most, in one program.", samples, try_eager=False)
GRADIENTS = Variant("The gradients of several samples, in one program.", gradients, try_eager=False)
OTHER_DTYPES = Variant("The sample in the op's other dtypes, in one program.", dtypes, try_eager=False)

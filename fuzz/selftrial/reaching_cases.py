"""What a syntactic mutant is tried on: cases of the ops that run its line, the rarest of these ops first."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchstone.conformance.mutants.syntactic.mutation import Mutation
from torchstone.conformance.program.case import Case
from torchstone.conformance.sources import iterate, load
from torchstone.conformance.variants.registry import DEFAULT, VARIANTS, apply
from torchstone.fuzz.selftrial.cases import programs_of
from torchstone.fuzz.selftrial.line_map import Kind, LineMap


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a mutant is tried on, at most: the fields bound the steps of ``reaching_cases``."""

    limit: int = 3
    ops: int = 12
    dtypes: int = 5
    varied_ops: int = 4
    variants: int = 160
    programs: int = 20


def reaching_kinds(lines: LineMap, mutation: Mutation, function: tuple[int, int]) -> list[Kind]:
    """The kinds that run a mutation's lines, those first that run the fewest others.

    Where no first sample does, those that run another line of the function, and else of the file: in a variant, or
    with other arguments, they may come by.
    """
    for first, last in ((mutation.line, mutation.last), function, (1, 1 << 30)):
        if kinds := lines.covering(mutation.path, first, last):
            return kinds
    return []


def reaching_cases(kinds: Sequence[Kind], effort: Effort) -> Iterator[Case]:
    """What is tried, in this order, and nothing twice.

    The first sample of each of ``ops`` ops, and the next ones up to ``limit`` of ``varied_ops``, in ``dtypes`` dtypes;
    what these have to refuse; ``variants`` of their samples in variants, of each variant one after the other; and so
    many programs of the fuzzer that call them.
    """
    by_op: dict[str, list[str]] = {}
    for op, dtype in kinds:
        by_op.setdefault(op, []).append(dtype)
    chosen = {op: _spread(dtypes, effort.dtypes) for op, dtypes in list(by_op.items())[: effort.ops]}
    few = dict(list(chosen.items())[: effort.varied_ops])
    for op, dtypes in chosen.items():
        yield from _samples(op, dtypes, 1)
    samples = {op: list(_samples(op, dtypes, effort.limit)) for op, dtypes in few.items()}
    for of_op in samples.values():
        yield from (case for case in of_op if case.index)
    refused = sorted(set(few) & set(load("errors").op_names()))
    yield from (case for case in iterate({"errors": refused}, None, effort.limit) if isinstance(case, Case))
    yield from itertools.islice(_varied(samples), effort.variants)
    yield from programs_of(few, effort.programs)


def _samples(op: str, dtypes: Iterable[str], limit: int) -> Iterator[Case]:
    for dtype in dtypes:
        yield from (case for case in iterate({"opinfo": [op]}, [dtype], limit) if isinstance(case, Case))


_CATEGORIES = ("float32", "int64", "complex64", "bool", "bfloat16", "uint8", "float64", "int8", "float16", "complex128")


def _spread(dtypes: Iterable[str], most: int) -> list[str]:
    """Some of the dtypes, as different from each other as may be."""
    rank = {name: at for at, name in enumerate(_CATEGORIES)}
    return sorted(dtypes, key=lambda name: (rank.get(name, len(rank)), name))[:most]


def _varied(samples: Mapping[str, Sequence[Case]]) -> Iterator[Case]:
    """Samples in variants: of each op one in each variant, then the next one in each, until there are no more."""
    names = [name for name in VARIANTS.rows if name != DEFAULT]
    rows = [_in_variant(_turned(cases, at), name) for at, name in enumerate(names) for cases in samples.values()]
    while rows:
        left = []
        for row in rows:
            if (case := next(row, None)) is not None:
                yield case
                left.append(row)
        rows = left


def _turned(cases: Sequence[Case], places: int) -> list[Case]:
    """The first samples of each dtype before the second ones, and another dtype in front for another variant."""
    by_index: dict[int, list[Case]] = {}
    for case in cases:
        by_index.setdefault(case.index, []).append(case)
    return [case for row in by_index.values() for case in (*row[places % len(row) :], *row[: places % len(row)])]


def _in_variant(cases: Iterable[Case], name: str) -> Iterator[Case]:
    for case in cases:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            varied = apply(case, name)
        if isinstance(varied, Case):
            yield varied

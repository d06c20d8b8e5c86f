"""What a syntactic mutant is tried on: the cases that run its line, and more like them."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchstone.conformance.mutants.syntactic.mutation import Mutation
from torchstone.conformance.program.case import Case
from torchstone.conformance.sources import find_case, iterate, load
from torchstone.conformance.sources.names import OF_OPS
from torchstone.conformance.variants.apply import apply
from torchstone.conformance.variants.registry import BUNDLES, DEFAULT, VARIANTS
from torchstone.fuzz.selftrial.cases import programs_of
from torchstone.fuzz.selftrial.line_map import LineMap, database_of, spaced, spread, unlike_samples

PROGRAM_OPS = 40
"""Ops that the random programs call: what many ops run is asked in programs of unlike ones."""

POOL = 4
"""Ops that are asked in variants, in times of those that are asked in one."""


OTHER_CODE = ("dynamic", "backward", "arguments", "empty", "scalar")
"""The variants in which the compiler takes other ways, not other numbers: they are the first."""

OTHER_WAYS = ("dynamic", "arguments", "gradients", "samples", "operands", "dtypes", "sizes")
"""The variants in which an op is called with what takes other ways in its own expansion, several in one program."""

WIDELY = 2
"""Ops that are asked in each of these where no traced case runs the line, in times of those of other mutations."""

AS_IT_IS = 3
"""Colons in the id of a case that no variant changes."""

OF_EACH_VARIANT = 5
"""Cases of each variant that are tried where it runs the line: a size that is known at run time only is one in a
hundred of what runs a line that all ops run."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a mutant is tried on, at most: the fields bound the steps of ``reaching_cases``.

    After ``patience`` cases that do not come to the mutated code, the trial ends.
    """

    ops: int = 12
    reaching: int = 30
    limit: int = 3
    dtypes: int = 5
    varied_ops: int = 4
    variants: int = 120
    programs: int = 12
    patience: int = 80


def reaching_ids(
    lines: LineMap, mutation: Mutation, functions: Iterable[tuple[int, int]]
) -> tuple[list[str], list[str]]:
    """The cases that run a mutation's lines, those first that run the fewest others; and all that are near to it.

    Near are those that run its lines. Where there is none, near are those that run a line of the first of ``functions``
    of which one runs, and else of the file: in another variant, or with other arguments, they may come by.
    """
    reaching = lines.covering(mutation.path, mutation.line, mutation.last)
    spans = ((mutation.line, mutation.last), *functions, (0, 1 << 30))
    return reaching, next(filter(None, (lines.covering(mutation.path, *span) for span in spans)), [])


def reaching_cases(
    reaching: Sequence[str], ops: Sequence[str], effort: Effort, near: Sequence[str] = ()
) -> Iterator[Case]:
    """What is tried, in this order, and nothing twice.

    Of the cases that run the line, so many of so many ops, by turns, and a few in each variant that runs it. Of a few
    of ``ops``, the first of them foremost: the first ``limit`` samples in ``dtypes`` dtypes, what they have to refuse,
    ``variants`` of their samples in variants, of each variant one after the other, and so many programs of the fuzzer.
    Where there are few ops, programs and modules that are ``near`` are asked in variants as well.
    """
    seen: set[str] = set()
    for case in _all_of(reaching, ops, effort, near):
        if case.id not in seen:
            seen.add(case.id)
            yield case


def _all_of(reaching: Sequence[str], ops: Sequence[str], effort: Effort, near: Sequence[str]) -> Iterator[Case]:
    by_op: dict[str, list[str]] = {}
    for name in reaching:
        by_op.setdefault(name.split(":")[1], []).append(name)
    rows = [_by_dtype(by_op[op]) for op in spaced(list(by_op), effort.ops)]
    turns = (name for turn in itertools.zip_longest(*rows) for name in turn if name is not None)
    yield from map(find_case, itertools.islice(turns, effort.reaching))
    yield from map(find_case, _of_each_variant(reaching))

    pool: dict[str, Iterable[Case]] = {op: _Lazy(_samples(op, effort)) for op in spaced(ops, POOL * effort.varied_ops)}
    few = list(pool)[:: max(1, len(pool) // max(1, effort.varied_ops))][: effort.varied_ops]
    others = [name for name in near if name.split(":")[0] not in OF_OPS and name.count(":") == AS_IT_IS]
    for name in spaced(others, max(0, effort.varied_ops - len(few))):
        pool[name] = _Lazy(map(find_case, [name]))
    if not reaching:  # so a variant may: it is asked of more ops, before the patience ends
        yield from itertools.islice(_varied(pool, WIDELY * effort.varied_ops, OTHER_WAYS), effort.variants // 2)
    for op in few:
        yield from pool[op]
    refused = sorted(set(few) & set(load("errors").op_names()))
    yield from (case for case in iterate({"errors": refused}, None, effort.limit) if isinstance(case, Case))
    yield from itertools.islice(_varied(pool, effort.varied_ops, _names()), effort.variants)
    yield from programs_of(spaced(ops, PROGRAM_OPS), effort.programs)


def _of_each_variant(names: Iterable[str]) -> Iterator[str]:
    """A few of the ids in each variant, as unlike as may be: there a line does what it does in no case as it is."""
    rows: dict[str, list[str]] = {}
    for name in names:
        if name.count(":") > AS_IT_IS:
            rows.setdefault(name.split(":")[AS_IT_IS + 1], []).append(name)
    for row in rows.values():
        yield from spaced(row, OF_EACH_VARIANT)


def _by_dtype(names: Iterable[str]) -> list[str]:
    """Case ids, one of each dtype before the second ones, and samples as they are before those in variants."""
    rows: dict[str, list[str]] = {}
    for name in sorted(names, key=lambda name: name.count(":")):
        rows.setdefault(name.split(":")[2], []).append(name)
    ordered = [rows[dtype] for dtype in spread(rows)]
    return [name for turn in itertools.zip_longest(*ordered) for name in turn if name is not None]


def _samples(op: str, effort: Effort) -> Iterator[Case]:
    """Samples of an op: twice ``limit`` of its first dtype, where arguments differ."""
    for number, dtype in enumerate(spread(database_of(op).dtypes_of(op))[: effort.dtypes]):
        yield from unlike_samples(op, dtype, effort.limit if number else 2 * effort.limit)


def _names() -> list[str]:
    """The variants in order. Those of one kind are asked together, in one program."""
    bundled = {name for names in BUNDLES.values() for name in names}
    others = [name for name in VARIANTS.rows if name not in (DEFAULT, *OTHER_CODE, *BUNDLES) and name not in bundled]
    return [*OTHER_CODE, *BUNDLES, *others]


def _varied(pool: Mapping[str, Iterable[Case]], ops: int, names: Sequence[str]) -> Iterator[Case]:
    """Samples in variants: in each variant one of so many ops, then the next one of each, until there are no more.

    The first op is asked in every variant, and others of the pool in each: what many ops run is asked of unlike ones.
    """
    first, others = list(pool)[:1], list(pool)[1:]
    rows = []
    for at, name in enumerate(names):
        turned = [others[(at * (ops - 1) + n) % len(others)] for n in range(min(ops - 1, len(others)))]
        rows += [_in_variant_or_parts(pool[op], at, name) for op in (*first, *turned)]
    while rows:
        left = []
        for row in rows:
            if (case := next(row, None)) is not None:
                yield case
                left.append(row)
        rows = left


class _Lazy:
    """Cases that are made when they are first asked for."""

    def __init__(self, cases: Iterator[Case]) -> None:
        self._cases = cases
        self._made: list[Case] | None = None

    def __iter__(self) -> Iterator[Case]:
        if self._made is None:
            self._made = list(self._cases)
        return iter(self._made)


def _turned(cases: Sequence[Case], places: int) -> list[Case]:
    """One sample of each dtype before the second ones, and another dtype in front for another variant."""
    by_dtype: dict[str, list[Case]] = {}
    for case in cases:
        by_dtype.setdefault(case.dtype, []).append(case)
    rows = [[case for case in row if case is not None] for row in itertools.zip_longest(*by_dtype.values())]
    return [case for row in rows for case in (*row[places % len(row) :], *row[: places % len(row)])]


def _in_variant_or_parts(samples: Iterable[Case], at: int, name: str) -> Iterator[Case]:
    """Samples in the variant of a number; where that is several in one and takes none, in each of the several."""
    cases = _turned(list(samples), at)
    whole = _in_variant(cases, name)
    if (first := next(whole, None)) is not None:
        yield first
        yield from whole
    else:
        for part in BUNDLES.get(name, ()):
            yield from _in_variant(cases, part)


def _in_variant(cases: Iterable[Case], name: str) -> Iterator[Case]:
    for case in cases:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            varied = apply(case, name)
        if isinstance(varied, Case):
            yield varied

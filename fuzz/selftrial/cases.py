"""What a mutant is tried on: it follows from its ops, and from nothing else."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator

from torchstone.conformance.errors import InputError
from torchstone.conformance.mutants import Mutant
from torchstone.conformance.program.case import Case
from torchstone.conformance.sources import iterate, load
from torchstone.conformance.variants.apply import apply
from torchstone.conformance.variants.registry import DEFAULT, VARIANTS

SEED = 0
MAX_OPS = 3

VALUE_VARIANTS = ("extremes", "special", "uniform", "magnitudes", "shifted", "long", "small")
"""Variants in which numbers decide: in every dtype."""

DTYPE_VARIANTS = ("mixed", "wide")
"""Variants in which dtypes decide: all samples, in every dtype."""

ARGUMENT_VARIANTS = ("backward", "arguments", "constants", "outside", "square", "lazy", "dims", "same", "inplace")
"""Variants in which arguments decide: all samples of the first dtype."""

OTHER_VARIANT_DTYPES = ("float32", "int64", "complex64", "bool")
"""The dtypes of all other variants, which are about places and sizes."""

ARGUMENT_SAMPLES = 24
"""Samples of the first dtype of an op for `ARGUMENT_VARIANTS`, at most, whatever the limit."""


def trial_cases(mutant: Mutant, limit: int, programs: int, most: int) -> Iterator[Case]:
    """What is tried, in this order.

    The first ``limit`` samples of each op and dtype; what the ops have to refuse; ``most`` of the samples in variants;
    so many programs of the fuzzer.
    """
    ops = list(mutant.ops)
    samples = []
    for entry in iterate({"opinfo": ops}, None, limit):
        if isinstance(entry, Case):
            samples.append(entry)
            yield entry
    refused = sorted(set(ops) & set(load("errors").op_names()))
    yield from (entry for entry in iterate({"errors": refused}, None, limit) if isinstance(entry, Case))
    yield from itertools.islice(_varied(ops, samples), most)
    if programs:
        yield from programs_of(ops, programs)


def _varied(ops: Iterable[str], samples: Iterable[Case]) -> Iterator[Case]:
    """The samples in variants: the largest of each op and dtype in all that suit it, then the next one."""
    by_kind: dict[tuple[str, str], list[Case]] = {}
    for case in sorted(samples, key=lambda case: -sum(tensor.numel() for tensor in case.args)):
        by_kind.setdefault((case.op, case.dtype), []).append(case)
    first: dict[str, str] = {}
    for op, dtype in sorted(by_kind, key=lambda kind: kind[1] != "float32"):
        first.setdefault(op, dtype)
    decided = (DEFAULT, *VALUE_VARIANTS, *DTYPE_VARIANTS, *ARGUMENT_VARIANTS)
    others = [name for name in VARIANTS.rows if name not in decided]
    for turn, row in enumerate(itertools.zip_longest(*by_kind.values())):
        given = [case for case in row if case is not None]
        yield from _in_variants(given, VALUE_VARIANTS)
        if not turn:
            yield from _in_variants([case for of_kind in by_kind.values() for case in of_kind], DTYPE_VARIANTS)
            for op, dtype in first.items():
                pool = (case for case in iterate({"opinfo": [op]}, [dtype], ARGUMENT_SAMPLES) if isinstance(case, Case))
                yield from _in_variants(
                    sorted(pool, key=lambda case: -sum(t.numel() for t in case.args)), ARGUMENT_VARIANTS
                )
        yield from _in_variants(
            [case for case in given if case.dtype in OTHER_VARIANT_DTYPES or case.dtype == first[case.op]], others
        )


def _in_variants(samples: Iterable[Case], names: Iterable[str]) -> Iterator[Case]:
    """The samples in these variants, where they apply."""
    samples = list(samples)
    for name in names:
        for case in samples:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                varied = apply(case, name)
            if isinstance(varied, Case):
                yield varied


def programs_of(ops: Iterable[str], count: int) -> Iterator[Case]:
    from torchstone.fuzz.generator.catalog import select_rules
    from torchstone.fuzz.generator.generate import NothingGenerated, nth_program

    known = []
    for op in ops:
        try:
            known += select_rules([op])
        except InputError:  # the fuzzer has no rule for it
            continue
    for index in range(count if known else 0):
        try:
            yield nth_program(SEED, index, (), MAX_OPS, known, index % 2 == 1)
        except NothingGenerated:  # of the op that was to be called: another one is drawn next
            continue

"""Which cases a run with an effort asks: a budget for each op, spent on cases that differ in as much as they can.

A case has three factors: the sample, the variant it is asked in, and the dtype. All of their combinations are far too
many. As in a covering array, one case stands for a level of each factor at a time, so that a few cases meet every
variant, every kind of dtype and every kind of argument once before any of them is met twice. What is worth more is met
more often: levels take turns in proportion to their weight (the method of D'Hondt). Equal levels take turns in an order
that the name of the op decides, so that the ops together meet what one op has no budget for.

A plan depends on the op, its samples and the variants there are: never on a backend, a clock or a random number.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from torchstone.conformance.execution.verdict import REFUSED
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.selection.effort import Effort
from torchstone.conformance.selection.features import Feature, features
from torchstone.conformance.sources import Source
from torchstone.conformance.variants.apply import apply
from torchstone.conformance.variants.registry import DEFAULT

Level = TypeVar("Level", bound=Hashable)


ATTEMPTS = 3
"""How many samples are tried for a variant and a dtype, and the largest, before these are held not to go together."""

DTYPE_KINDS: tuple[tuple[float, tuple[str, ...]], ...] = (
    (4.0, ("float32",)),
    (1.0, ("float64",)),
    (1.0, ("bfloat16", "float16")),
    (1.0, ("complex64", "complex128", "complex32")),
    (1.0, ("int64", "int32", "int16", "int8")),
    (1.0, ("uint8", "uint16", "uint32", "uint64")),
    (1.0, ("bool",)),
)
"""Kinds of dtype, each with its weight. float32 is what most programs compute in, and it is held to the most digits."""

VARIANT_WEIGHTS = {DEFAULT: 4.0, "special": 3.0, "backward": 3.0, "extremes": 2.0}
"""The weights of variants; 1 where none is given. Those have more that alone show the most planted bugs."""


class Turns(Generic[Level]):
    """Levels taking turns: each is due in proportion to its weight, equal ones in the order of a hash of the key."""

    def __init__(self, weights: Mapping[Level, float], key: str) -> None:
        self.weights = weights
        self.taken: Counter[Level] = Counter()
        self.order = {level: hashlib.blake2b(f"{key}:{level}".encode(), digest_size=8).digest() for level in weights}

    def due(self, level: Level) -> float:
        """How near a level's turn is: the lowest number is next."""
        return -self.weights[level] / (1 + self.taken[level])


@dataclass
class OpPlan:
    """The plan of one op of a source.

    ``dtypes`` and ``variants`` are those to choose from. ``samples_of`` gives the entries of one dtype in order.
    ``ask`` makes the case of a sample in a variant.
    """

    key: str
    dtypes: Sequence[str]
    variants: Sequence[str]
    samples_of: Callable[[str], list[Case | Untested]]
    met: Counter[Feature] = field(default_factory=Counter)
    ask: Callable[[Case, str], Case | Untested] = apply

    def cases(self, budget: int) -> Iterator[Case | Untested]:
        """The cases to ask, most telling first; a single ``Untested`` where the op has none."""
        kinds = {names: weight for weight, names in _kinds(self.dtypes)}
        dtypes = Turns(kinds, self.key)
        weights = {name: VARIANT_WEIGHTS.get(name, 1.0) for name in self.variants}
        variants = Turns(weights, self.key)
        asked: set[str] = set()
        barren: set[tuple[tuple[str, ...], str]] = set()
        while len(asked) < budget:
            pairs = [
                (variants.due(variant) + dtypes.due(kind), variants.order[variant], dtypes.order[kind], kind, variant)
                for kind in kinds
                for variant in weights
                if (kind, variant) not in barren
            ]
            if not pairs:
                break
            *_, kind, variant = min(pairs)
            found = self._find(kind, variant, dtypes.taken[kind], asked)
            if found is None:
                barren.add((kind, variant))
                continue
            dtypes.taken[kind] += 1
            variants.taken[variant] += 1
            asked.add(found.id)
            yield found
        if not asked:
            yield from self._nothing()

    def _find(self, kind: tuple[str, ...], variant: str, turn: int, asked: set[str]) -> Case | None:
        """The sample with the most that is new, in a variant and a dtype of the kind; None where there is none left.

        Of a variant, only the larger half of the samples comes into question.
        """
        dtype = kind[(turn + _hash(self.key)) % len(kind)]
        samples = [entry for entry in self.samples_of(dtype) if isinstance(entry, Case)]
        facts = {sample.index: features(sample) for sample in samples}
        samples.sort(key=lambda sample: (-self._novelty(facts[sample.index]), sample.index))
        if variant != DEFAULT:
            samples = [sample for sample in samples if f"{sample.id}:{variant}" not in asked]
            richest = sorted(samples, key=lambda sample: -_elements(sample))[: len(samples) // 2 + 1]
            samples = [sample for sample in samples if sample in richest][:ATTEMPTS] + richest[:1]
        for sample in samples:
            case = self.ask(sample, variant)
            if isinstance(case, Case) and case.id not in asked:
                self.met.update(facts[sample.index])
                return case
        return None

    def _novelty(self, facts: Iterable[Feature]) -> float:
        return sum(1 / (1 + self.met[fact]) ** 2 for fact in facts)

    def _nothing(self) -> Iterator[Untested]:
        for dtype in self.dtypes:
            for entry in self.samples_of(dtype)[:1]:
                if isinstance(entry, Untested):
                    yield entry
                    return


def _kinds(dtypes: Sequence[str]) -> list[tuple[float, tuple[str, ...]]]:
    """The kinds of dtype that there are, with their weights; those of no kind are one of their own."""
    known = [(weight, tuple(name for name in names if name in dtypes)) for weight, names in DTYPE_KINDS]
    others = tuple(name for name in dtypes if not any(name in names for _, names in DTYPE_KINDS))
    return [(weight, names) for weight, names in [*known, (1.0, others)] if names]


def _elements(sample: Case) -> int:
    """A variant has something to change where there are many numbers."""
    return sum(tensor.numel() for tensor in sample.args)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")


def plan_cases(
    ops: Mapping[str, Sequence[str]],
    sources: Mapping[str, Source],
    effort: Effort,
    variants: Sequence[str],
    dtypes: Sequence[str] | None = None,
) -> Iterator[Case | Untested]:
    """The plans of the ops of each source, one after the other. What is to be refused is asked as it is."""
    for name, chosen in ops.items():
        for op in chosen:
            refused = REFUSED in sources[name].tags_of(op)
            yield from planned(sources[name], op, effort.budget, [DEFAULT] if refused else variants, dtypes)


def planned(
    source: Source, op: str, budget: int, variants: Sequence[str], dtypes: Sequence[str] | None = None
) -> Iterator[Case | Untested]:
    """The plan of an op of a source, within some dtypes if any are given."""
    known = source.dtypes_of(op)
    cache: dict[str, list[Case | Untested]] = {}

    def samples_of(dtype: str) -> list[Case | Untested]:
        if dtype not in cache:
            cache[dtype] = list(source.iterate([op], [dtype], None))
        return cache[dtype]

    chosen = [dtype for dtype in known if dtypes is None or dtype in dtypes]
    yield from OpPlan(op, chosen, variants, samples_of).cases(budget)

"""Which cases a run with an effort asks: a budget for each op, spent on cases that differ in as much as they can.

A case has three factors: the sample, the variant it is asked in, and the dtype. All of their combinations are far too
many. As in a covering array, one case stands for a level of each factor at a time, so that a few cases meet every
variant, every kind of dtype and every kind of argument once before any of them is met twice. What is worth more is met
more often: levels take turns in proportion to their weight. The name of the op decides when the first turn of each is,
so that the ops together meet what one op has no budget for.

A plan depends on the op, its samples and the variants there are: never on a backend, a clock or a random number.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from torchstone.conformance.execution.verdict import REFUSED
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.selection.features import Feature, features, novelty
from torchstone.conformance.sources import Source
from torchstone.conformance.variants.apply import apply
from torchstone.conformance.variants.registry import BUNDLES, DEFAULT


class Share(NamedTuple):
    """What an op of a source gets: a part of the budget, of so many samples of each dtype, in some variants."""

    budget: float = 1.0
    samples: int | None = None
    variants: frozenset[str] | None = None


_SINGLY = frozenset({DEFAULT, "special", "extremes", "strided", "offset"})
SHARES = {
    "programs": Share(0.3, 48, _SINGLY | {"backward"}),
    "modules": Share(0.2, 12, _SINGLY),
    "functions": Share(0.3),
}
"""The sources that are asked less than the op database. The cases of the first two have several steps each: dear ones,
and dearer in a variant that makes several of one. Gradients of a whole module take longer to judge than all else of
it; those of its ops are asked."""

Kind: TypeAlias = tuple[str, ...]
"""Names of dtypes or variants that stand for each other."""

ATTEMPTS = 2
"""How many samples are tried for a variant and a dtype, and the largest, before these are held not to go together."""

MOST = 2
"""The turns of a kind of variant, at most, or so many times its share: of an op that draws random numbers, for which
most kinds have nothing to change, the others would be asked over and over."""

DTYPE_KINDS: tuple[tuple[float, Kind], ...] = (
    (60.0, ("float32",)),
    (0.5, ("float64",)),
    (0.5, ("bfloat16", "float16")),
    (0.5, ("complex64", "complex128", "complex32")),
    (1.0, ("int64", "int32", "int16", "int8")),
    (0.5, ("uint8", "uint16", "uint32", "uint64")),
    (0.5, ("bool",)),
)
"""Kinds of dtype, each with its weight. float32 is what most programs compute in, it is held to the most digits,
and the variant ``dtypes`` asks a sample of it in all the others."""

DENSE = ("samples", "values", "gradients", "dtypes", "arguments", "operands", "sizes", "layouts")
"""Variants that ask several of one kind in one program."""

VARIANT_KINDS: tuple[tuple[float, Kind], ...] = (
    *((3.0, (name,)) for name in DENSE),
    (3.0, ("pairs", "mixes")),
    (0.5, (DEFAULT,)),
    (0.5, ("lazy", "inplace", "backward", "inference")),
    (0.5, ("outside", "constants", "rewritten", "numbers")),
    (0.4, ("dynamic", "batch", "huge")),
    *((0.1, BUNDLES[name]) for name in BUNDLES),
)
"""Kinds of variant, by what they change, each with its weight: within a kind a bug that one shows, others show, too.

What asks several of one kind in one program has the most turns: a bug is mostly one op's, so each op is asked with all
of these once, before any of them is asked again. The others together have about one turn in nine. Another variant, a
plugin's, is a kind of its own.
"""

SELDOM = 1.0
"""Kinds of a smaller weight share their turns: of an op, one has the first that they have together, and not each one or
none, as the phases happen to fall."""


class Turns:
    """Kinds taking turns: systematic sampling, each in proportion to its weight, from a phase that hashes the key.

    So over many keys a kind's share of the first few turns is that of its weight, too. The first kind begins. Those of
    a small weight are drawn as one, and take turns among themselves.
    """

    def __init__(self, weights: Mapping[Kind, float], key: str) -> None:
        self.weights, self.total = weights, sum(weights.values())
        self.taken: Counter[Kind] = Counter()
        self.key = key
        self.phase = {kind: _hash(f"{key}:{kind[0]}") / 2**32 if at else 0.0 for at, kind in enumerate(weights)}
        seldom = [kind for kind, weight in weights.items() if weight < SELDOM]
        self.seldom = seldom if len(seldom) < len(weights) else []
        self.together = sum(weights[kind] for kind in self.seldom)

    def due(self, kind: Kind) -> tuple[float, float]:
        """The turn at which a kind is due, and among those that share it: the lowest is next."""
        alone = (self.taken[kind] + self.phase[kind]) * self.total / self.weights[kind]
        if kind not in self.seldom:
            return alone, 0.0
        taken = sum(self.taken[each] for each in self.seldom)
        return (taken + _hash(self.key) / 2**32) * self.total / self.together, alone

    def most(self, kind: Kind, budget: int) -> int:
        """The turns that a kind may have: where others have nothing to change, it does not fill their places."""
        return max(MOST, math.ceil(MOST * budget * self.weights[kind] / self.total))

    def rank(self, kind: Kind, name: str) -> int:
        """How many others of a kind come before this one in its next turn."""
        return (kind.index(name) - self.taken[kind] - _hash(self.key)) % len(kind)


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
    known: dict[str, frozenset[Feature]] = field(default_factory=dict)
    ask: Callable[[Case, str], Case | Untested] = apply

    def cases(self, budget: int) -> Iterator[Case | Untested]:
        """The cases to ask, most telling first; a single ``Untested`` where the op has none."""
        dtypes = Turns(_kinds(DTYPE_KINDS, self.dtypes), self.key)
        variants = Turns(_kinds(VARIANT_KINDS, self.variants), self.key)
        asked: set[str] = set()
        barren: set[tuple[Kind, str]] = set()
        while len(asked) < budget:
            pairs = [
                (_sum(variants.due(ways), dtypes.due(kind)), variants.rank(ways, name), kind, name, ways)
                for kind in dtypes.weights
                for ways in variants.weights
                for name in ways
                if (kind, name) not in barren and variants.taken[ways] < variants.most(ways, budget)
            ]
            if not pairs:
                break
            *_, kind, variant, ways = min(pairs)
            found = self._find(kind, variant, dtypes.taken[kind], asked)
            if found is None:
                barren.add((kind, variant))
                continue
            dtypes.taken[kind] += 1
            variants.taken[ways] += 1
            asked.add(found.id)
            yield found
        if not asked:
            yield from self._nothing()

    def _find(self, kind: Kind, variant: str, turn: int, asked: set[str]) -> Case | None:
        """The sample with the most that is new, in a variant and a dtype of the kind; None where there is none left.

        Of a variant, only the larger half of the samples comes into question, and none whose inputs are all of one
        element if there are others: in these hardly a variant has anything to change.
        """
        dtype = kind[(turn + _hash(self.key)) % len(kind)]
        samples = [entry for entry in self.samples_of(dtype) if isinstance(entry, Case)]
        samples.sort(key=lambda sample: (-novelty(self._facts(sample), self.met), sample.index))
        if variant != DEFAULT:
            samples = [sample for sample in samples if f"{sample.id}:{variant}" not in asked]
            several = [sample for sample in samples if any(tensor.numel() > 1 for tensor in sample.args)]
            richest = sorted(several or samples, key=lambda sample: -_elements(sample))[: len(samples) // 2 + 1]
            samples = [sample for sample in samples if sample in richest][:ATTEMPTS] + richest[:1]
        for sample in samples:
            case = self.ask(sample, variant)
            if isinstance(case, Case) and case.id not in asked:
                self.met.update(self._facts(sample))
                return case
        return None

    def _facts(self, sample: Case) -> frozenset[Feature]:
        if sample.id not in self.known:
            self.known[sample.id] = features(sample)
        return self.known[sample.id]

    def _nothing(self) -> Iterator[Untested]:
        for dtype in self.dtypes:
            for entry in self.samples_of(dtype)[:1]:
                if isinstance(entry, Untested):
                    yield entry
                    return


def _kinds(table: Iterable[tuple[float, Kind]], chosen: Sequence[str]) -> dict[Kind, float]:
    """The weights of the kinds of a table that there are, with what is chosen of each; what has none is its own."""
    known = {tuple(name for name in names if name in chosen): weight for weight, names in table}
    others = {(name,): 1.0 for name in chosen if not any(name in names for names in known)}
    return {names: weight for names, weight in (known | others).items() if names}


def _sum(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    return one[0] + other[0], one[1] + other[1]


def _elements(sample: Case) -> int:
    """A variant has something to change where there are many numbers."""
    return sum(tensor.numel() for tensor in sample.args)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")


def plan_cases(
    ops: Mapping[str, Sequence[str]],
    sources: Mapping[str, Source],
    budget: int,
    variants: Sequence[str],
    dtypes: Sequence[str] | None = None,
) -> Iterator[Case | Untested]:
    """The plans of the ops of each source, one after the other, of ``budget`` cases each.

    What is to be refused is asked as it is.
    """
    for name, chosen in ops.items():
        share = SHARES.get(name, Share())
        asked = [way for way in variants if share.variants is None or way in share.variants] or variants
        for op in chosen:
            ways = [DEFAULT] if REFUSED in sources[name].tags_of(op) else asked
            yield from planned(sources[name], op, math.ceil(budget * share.budget), ways, dtypes, share.samples)


def planned(
    source: Source,
    op: str,
    budget: int,
    variants: Sequence[str],
    dtypes: Sequence[str] | None = None,
    samples: int | None = None,
) -> Iterator[Case | Untested]:
    """The plan of an op of a source, within some dtypes and the first samples of each, if any are given."""
    known = source.dtypes_of(op)
    cache: dict[str, list[Case | Untested]] = {}

    def samples_of(dtype: str) -> list[Case | Untested]:
        if dtype not in cache:
            cache[dtype] = list(source.iterate([op], [dtype], samples))
        return cache[dtype]

    chosen = [dtype for dtype in known if dtypes is None or dtype in dtypes]
    yield from OpPlan(op, chosen, variants, samples_of).cases(budget)

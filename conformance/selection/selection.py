"""Which cases a run asks for, out of all that the sources have.

The filters are given by the options of a run (JSON), and a case has to pass all of them: sources, ops, dtypes,
variants, tags, ids, shard, and the verdicts of earlier runs. So a resumed run, and anything else that is given the same
options, asks for the same cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.program.literals import DTYPES
from torchstone.conformance.selection.earlier_runs import EarlierRuns
from torchstone.conformance.selection.effort import Effort
from torchstone.conformance.selection.filters import (
    Pattern,
    Shard,
    has_wanted_tag,
    label,
    narrowed,
    narrowed_by_patterns,
    split_id,
)
from torchstone.conformance.selection.plan import plan_cases
from torchstone.conformance.sources import Source, iterate, load_all, select
from torchstone.conformance.sources.corpus import NO_DTYPE, Corpus
from torchstone.conformance.sources.maker import CaseMaker
from torchstone.conformance.sources.tags import OF_CASES, TAGS
from torchstone.conformance.variants.registry import DEFAULT, VARIANTS

if TYPE_CHECKING:
    from torchstone.conformance.store import Store


@dataclass(frozen=True)
class Selection:
    """The cases of a run: the ops by source, every entry in order, and for each backend which ids, if not all of them.

    ``damaged`` says what is wrong with each file of a corpus that cannot be read.
    """

    ops: dict[str, list[str]]
    entries: Callable[[], Iterator[Case | Untested]]
    wanted: Mapping[str, frozenset[str]] | None = None
    damaged: Sequence[str] = ()


def select_cases(options: Mapping[str, Any], store: Store | None = None) -> Selection:
    """What a run of these options asks. Raises ``InputError`` where that is nothing, ``UnknownName``.

    ``sources``, ``ops``, ``dtypes``, ``variants``, ``limit`` as in ``sources.iterate``; and, each of them optional,
    ``effort`` or its ``budget`` (of a plan, which then chooses among the dtypes and variants), ``shard`` (``2/5``),
    ``tags``, ``cases`` (patterns), ``earlier`` (an ``Earlier``, of the ``store``).
    """
    loaded = load_all(options["sources"])
    ops = select(loaded, options.get("ops"))
    if not any(ops.values()):
        raise InputError(f"selects nothing: no op is left of {', '.join(options['ops'])}")
    tags, variants = options.get("tags") or [], options.get("variants", [DEFAULT])
    budget = options.get("budget") or (Effort(options["effort"]).budget if options.get("effort") else None)
    patterns = [Pattern.parse(text) for text in options.get("cases") or []]
    shard = Shard.parse(options["shard"]) if options.get("shard") else None
    if tags:
        ops = tagged(loaded, ops, tags)
    if patterns:
        ops = narrowed_by_patterns(ops, patterns)
        _check_exist(loaded, ops, patterns)
    dtypes = options.get("dtypes") or _named_dtypes(pattern.dtype for pattern in patterns)
    wanted = None
    if options.get("earlier") is not None and store is not None:
        wanted = EarlierRuns(**options["earlier"]).ids(store)
        meant = {split_id(name)[:2] for names in wanted.values() for name in names}
        if not meant:
            nothing = {"last-failed": "every case passed", "changed-since": "no verdict has changed since"}
            runs = ", ".join(f"{backend} in {run}" for backend, run in options["earlier"]["runs"].items())
            raise InputError(f"selects nothing: {nothing[options['earlier']['rule']]} ({runs})")
        ops = narrowed(ops, lambda where, op: (where, op) in meant, "is among those")
    every = frozenset().union(*wanted.values()) if wanted is not None else None
    if every is not None and dtypes is None:
        dtypes = _named_dtypes({split_id(name)[2] for name in every} - {NO_DTYPE})

    def keep(entry: Case | Untested, variant: str) -> bool:
        name = entry.id if variant == DEFAULT else _id_in_variant(entry, variant)
        if every is not None and name not in every:
            return False
        if patterns and not any(pattern.matches(name, {*variants, entry.variant}) for pattern in patterns):
            return False
        return not tags or has_wanted_tag(_tags(loaded, entry), tags)

    named = _variants(variants, patterns)

    def make(source: str, op: str, sharded: bool) -> Iterator[Case | Untested]:
        held = shard.holds if sharded and shard is not None else lambda name: True

        def kept(entry: Case | Untested, variant: str) -> bool:
            name = entry.id if variant == DEFAULT else _id_in_variant(entry, variant)
            return held(name) and keep(entry, variant)

        chosen = {source: [op]}
        if budget is None:
            return iterate(chosen, dtypes, options.get("limit"), named, kept, loaded)
        if not held(f"{label(source)}:{op}"):  # to plan an op is to make all of its cases
            return iter(())
        return (entry for entry in plan_cases(chosen, loaded, budget, named, dtypes) if keep(entry, entry.variant))

    maker = CaseMaker(make)
    if next(maker.entries(ops, sharded=False), None) is None:
        chosen = sum(map(len, ops.values()))
        given = {key: options[key] for key in ("dtypes", "cases", "tags", "variants") if options.get(key)}
        filters = "; ".join(f"{key} {', '.join(values)}" for key, values in given.items())
        raise InputError(f"selects nothing: of {chosen} ops none has a case of {filters}")
    damaged = [problem for source in loaded.values() if isinstance(source, Corpus) for problem in source.damaged()]
    return Selection(ops, lambda: maker.entries(ops, sharded=True), wanted, damaged)


def _variants(wanted: Sequence[str], patterns: Iterable[Pattern]) -> list[str]:
    named = [name for p in patterns if p.variant for name in VARIANTS.usable(p.variant)]
    return list(dict.fromkeys([*wanted, *named]))


def _id_in_variant(entry: Case | Untested, variant: str) -> str:
    return f"{entry.source}:{entry.op}:{entry.dtype}:{entry.index}:{variant}"


def _named_dtypes(names: Iterable[str]) -> list[str] | None:
    """The dtypes of these names; None, for all of them, where one is a pattern or there is none."""
    wanted = list(dict.fromkeys(names))
    return wanted if wanted and all(name in DTYPES for name in wanted) else None


def _check_exist(loaded: Mapping[str, Source], ops: Mapping[str, Sequence[str]], patterns: Iterable[Pattern]) -> None:
    """Raise ``InputError`` for an id, none of whose fields is a pattern, of no case that there is."""
    for pattern in patterns:
        source, op, dtype, index, _ = pattern
        if index.isdecimal() and not any(mark in f"{source}{op}{dtype}" for mark in "*?["):
            for name, names in ops.items():
                if label(name) == source and op in names:
                    loaded[name].case(op, dtype, int(index))


def tagged(loaded: Mapping[str, Source], ops: Mapping[str, Sequence[str]], tags: Sequence[str]) -> dict[str, list[str]]:
    """The ops that have one of the tags, and none behind a ``!``. Raises ``InputError`` if there is none."""
    tags_of_ops = {(source, op): loaded[source].tags_of(op) for source, names in ops.items() for op in names}
    known = sorted({*TAGS, *(tag for names in tags_of_ops.values() for tag in names)})
    for tag in tags:
        if tag.removeprefix("!") not in known:
            raise UnknownName("tag", tag.removeprefix("!"), known, more="; `torchstone ops --tags` lists them")
    of_cases = OF_CASES.intersection(tags)  # which op has a case of them is known from its cases
    chosen = {
        source: [op for op in names if has_wanted_tag(tags_of_ops[source, op] | of_cases, tags)]
        for source, names in ops.items()
    }
    if not any(chosen.values()):
        raise InputError(f"selects nothing: of {len(tags_of_ops)} ops none is tagged {', '.join(tags)}")
    return chosen


def _tags(loaded: Mapping[str, Source], entry: Case | Untested) -> frozenset[str]:
    own = frozenset(entry.tags) if isinstance(entry, Case) else frozenset()
    for source in loaded:
        if label(source) == entry.source and (label(source) == source or entry.op in loaded[source].op_names()):
            return own | loaded[source].tags_of(entry.op)
    return own

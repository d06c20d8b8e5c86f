"""Which of the cases that the sources have are asked: by shard, by tag, by id, by what earlier runs said.

Everything given has to hold. All of it is told by a run's options (JSON), so that a resumed run, and whoever else runs
cases, asks the same ones: ``plan``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.execution.verdict import RIGHT, Outcome
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.program.literals import DTYPES
from torchstone.conformance.sources import FOLDER, SOURCES, Source, iterate, load_all, select
from torchstone.conformance.sources.corpus import NO_DTYPE, Corpus
from torchstone.conformance.sources.tags import OF_CASES, TAGS
from torchstone.conformance.variants.registry import DEFAULT, VARIANTS

if TYPE_CHECKING:
    from torchstone.conformance.store import Store


class Shard(NamedTuple):
    """One of ``count`` parts of the cases, from 1. Every case is in one part, the same one on every machine."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``2/5``. Raises ``InputError``."""
        number, slash, count = text.partition("/")
        if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise InputError(f'a shard is I/N with I from 1 to N, like 2/5; got "{text}"')
        return cls(int(number), int(count))

    def holds(self, case_id: str) -> bool:
        """Whether the case of this id is in this part."""
        digest = hashlib.blake2b(case_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.count == self.number - 1


class Pattern(NamedTuple):
    """A case id, or the beginning of one, whose fields may be shell patterns: ``opinfo:add``, ``*:conv*:*:0``.

    Without a fifth field it means the variants asked for, whichever these are.
    """

    source: str = "*"
    op: str = "*"
    dtype: str = "*"
    index: str = "*"
    variant: str = ""

    @classmethod
    def parse(cls, text: str) -> Pattern:
        """Read it. Raises ``InputError``."""
        fields = text.split(":")
        if len(fields) > len(cls._fields) or not all(fields):
            raise InputError(f'"{text}" is no case id or pattern; they look like opinfo:softmax:float32:0 or opinfo:*')
        return cls(*fields)

    def matches(self, case_id: str, asked: Collection[str]) -> bool:
        """Whether it means the case of this id; ``asked`` are the variants asked for."""
        source, op, dtype, index, variant = _fields(case_id)
        named = zip((source, op, dtype, index), self, strict=False)
        right = variant in asked if not self.variant else fnmatchcase(variant, self.variant)
        return right and all(fnmatchcase(value, pattern) for value, pattern in named)


def _fields(case_id: str) -> tuple[str, str, str, str, str]:
    source, op, dtype, index, *variant = case_id.split(":")
    return source, op, dtype, index, variant[0] if variant else DEFAULT


def agrees(names: Collection[str], wanted: Sequence[str]) -> bool:
    """Whether one of ``wanted`` is among the names, and none of those behind a ``!``."""
    positive = [name for name in wanted if not name.startswith("!")]
    return not any(f"!{name}" in wanted for name in names) and (not positive or any(n in names for n in positive))


# -- what earlier runs said ---------------------------------------------------------------------------------------


def not_passed(outcomes: Mapping[str, str]) -> frozenset[str]:
    """The ids of the cases that the backend was asked and that did not pass."""
    return frozenset(name for name, outcome in outcomes.items() if Outcome(outcome) not in RIGHT | {Outcome.UNTESTED})


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> frozenset[str]:
    """The ids of the cases of ``after`` that had another outcome before, or none."""
    return frozenset(name for name, outcome in after.items() if before.get(name) != outcome)


class Earlier(NamedTuple):
    """A rule about the verdicts of earlier runs: for each backend the run that is meant, and the newest one then."""

    rule: str
    runs: dict[str, str]
    until: str

    @classmethod
    def since(cls, rule: str, store: Store, run: str, backends: Sequence[str] | None) -> Earlier:
        """``last-failed`` or ``changed-since`` a run or the latest: for each backend the latest that it was in.

        Raises ``InputError`` where a backend was not in it.
        """
        records = store.run_list()
        newest = store.run(None).run
        given = None if run == "latest" else store.run(run).run
        candidates = [r for r in records if given in (None, r.run)]
        named = backends or candidates[-1].options.get("backends", [])
        found = {
            name: next((r.run for r in reversed(candidates) if name in r.options.get("backends", ())), None)
            for name in named
        }
        missing = [name for name, where in found.items() if where is None]
        if missing:
            raise InputError(f"selects nothing: backend {missing[0]} was not in {given or 'any run of the store'}")
        return cls(rule, {name: where for name, where in found.items() if where is not None}, newest)

    def ids(self, store: Store) -> dict[str, frozenset[str]]:
        """The ids meant, by backend."""
        return {backend: self._of(store, backend, run) for backend, run in self.runs.items()}

    def _of(self, store: Store, backend: str, run: str) -> frozenset[str]:
        before = _outcomes(store, run, backend)
        if self.rule == "last-failed":
            return not_passed(before)
        after: dict[str, str] = {}
        for record in store.run_list():
            if _number(run) < _number(record.run) <= _number(self.until):
                after.update(_outcomes(store, record.run, backend))
        return changed(before, after)


def _outcomes(store: Store, run: str, backend: str) -> dict[str, str]:
    return {row[0]: row[7] for row in store.iter_verdicts(run) if row[1] == backend}


def _number(run: str) -> int:
    return int(run[1:])


# -- what a run asks ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """What is asked: the ops by source, every entry in order, and for each backend which ids, if not all of them.

    ``damaged`` says what is wrong with each file of a corpus that cannot be read.
    """

    ops: dict[str, list[str]]
    entries: Callable[[], Iterator[Case | Untested]]
    wanted: Mapping[str, frozenset[str]] | None = None
    damaged: Sequence[str] = ()


def plan(options: Mapping[str, Any], store: Store | None = None) -> Plan:
    """What a run of these options asks. Raises ``InputError`` where that is nothing, ``UnknownName``.

    ``sources``, ``ops``, ``dtypes``, ``variants``, ``limit`` as in ``sources.iterate``; and, each of them optional,
    ``shard`` (``2/5``), ``tags``, ``cases`` (patterns), ``earlier`` (an ``Earlier``, of the ``store``).
    """
    loaded = load_all(options["sources"])
    ops = select(loaded, options.get("ops"))
    if not any(ops.values()):
        raise InputError(f"selects nothing: no op is left of {', '.join(options['ops'])}")
    tags, variants = options.get("tags") or [], options.get("variants", [DEFAULT])
    patterns = [Pattern.parse(text) for text in options.get("cases") or []]
    shard = Shard.parse(options["shard"]) if options.get("shard") else None
    if tags:
        ops = tagged(loaded, ops, tags)
    if patterns:
        ops = _narrowed(ops, lambda where, op: any(_is(p, where, op) for p in patterns), "matches --case")
        _check_exist(loaded, ops, patterns)
    dtypes = options.get("dtypes") or _named_dtypes(pattern.dtype for pattern in patterns)
    wanted = None
    if options.get("earlier") is not None and store is not None:
        wanted = Earlier(**options["earlier"]).ids(store)
        meant = {_fields(name)[:2] for names in wanted.values() for name in names}
        if not meant:
            told = {"last-failed": "every case passed", "changed-since": "no verdict has changed since"}
            runs = ", ".join(f"{backend} in {run}" for backend, run in options["earlier"]["runs"].items())
            raise InputError(f"selects nothing: {told[options['earlier']['rule']]} ({runs})")
        ops = _narrowed(ops, lambda where, op: (where, op) in meant, "is among those")
    every = frozenset().union(*wanted.values()) if wanted is not None else None
    if every is not None and dtypes is None:
        dtypes = _named_dtypes({_fields(name)[2] for name in every} - {NO_DTYPE})

    def keep(entry: Case | Untested, variant: str) -> bool:
        name = entry.id if variant == DEFAULT else _asked_as(entry, variant)
        if every is not None and name not in every:
            return False
        if patterns and not any(pattern.matches(name, {*variants, entry.variant}) for pattern in patterns):
            return False
        return not tags or agrees(_tags(loaded, entry), tags)

    def entries(shard: Shard | None = shard) -> Iterator[Case | Untested]:
        def kept(entry: Case | Untested, variant: str) -> bool:
            name = entry.id if variant == DEFAULT else _asked_as(entry, variant)
            return (shard is None or shard.holds(name)) and keep(entry, variant)

        named = _variants(variants, patterns)
        return iterate(ops, dtypes, options.get("limit"), named, kept, loaded)

    if next(entries(None), None) is None:
        chosen = sum(map(len, ops.values()))
        asked = {key: options[key] for key in ("dtypes", "cases", "tags", "variants") if options.get(key)}
        told = "; ".join(f"{key} {', '.join(values)}" for key, values in asked.items())
        raise InputError(f"selects nothing: of {chosen} ops none has a case of {told}")
    damaged = [told for source in loaded.values() if isinstance(source, Corpus) for told in source.damaged()]
    return Plan(ops, entries, wanted, damaged)


def sources_of(patterns: Iterable[Pattern]) -> list[str]:
    """The sources that patterns of ids mean. Raises ``UnknownName`` for one that means none."""
    chosen: dict[str, None] = {}
    for pattern in patterns:
        found = [pattern.source] if pattern.source in SOURCES else list(SOURCES.usable(pattern.source))
        if not found:
            raise UnknownName("source", pattern.source, SOURCES)
        chosen.update(dict.fromkeys(found))
    return list(chosen)


def _variants(asked: Sequence[str], patterns: Iterable[Pattern]) -> list[str]:
    named = [name for p in patterns if p.variant for name in VARIANTS.usable(p.variant)]
    return list(dict.fromkeys([*asked, *named]))


def _asked_as(entry: Case | Untested, variant: str) -> str:
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
                if _label(name) == source and op in names:
                    loaded[name].case(op, dtype, int(index))


def _is(pattern: Pattern, source: str, op: str) -> bool:
    return fnmatchcase(source, pattern.source) and fnmatchcase(op, pattern.op)


def _label(source: str) -> str:
    """What the cases of a source call it."""
    return "corpus" if source.startswith(FOLDER) else source


def _narrowed(ops: Mapping[str, Sequence[str]], holds: Callable[[str, str], bool], what: str) -> dict[str, list[str]]:
    chosen = {source: [op for op in names if holds(_label(source), op)] for source, names in ops.items()}
    if not any(chosen.values()):
        raise InputError(f"selects nothing: of {sum(map(len, ops.values()))} ops none {what}")
    return chosen


def tagged(loaded: Mapping[str, Source], ops: Mapping[str, Sequence[str]], tags: Sequence[str]) -> dict[str, list[str]]:
    """The ops that have one of the tags, and none behind a ``!``. Raises ``InputError`` if there is none."""
    told = {(source, op): loaded[source].tags_of(op) for source, names in ops.items() for op in names}
    known = sorted({*TAGS, *(tag for names in told.values() for tag in names)})
    for tag in tags:
        if tag.removeprefix("!") not in known:
            raise UnknownName("tag", tag.removeprefix("!"), known, more="; `torchstone ops --tags` lists them")
    of_cases = OF_CASES.intersection(tags)  # which op has a case of them is told by its cases
    chosen = {
        source: [op for op in names if agrees(told[source, op] | of_cases, tags)] for source, names in ops.items()
    }
    if not any(chosen.values()):
        raise InputError(f"selects nothing: of {len(told)} ops none is tagged {', '.join(tags)}")
    return chosen


def _tags(loaded: Mapping[str, Source], entry: Case | Untested) -> frozenset[str]:
    own = frozenset(entry.tags) if isinstance(entry, Case) else frozenset()
    for source in loaded:
        if _label(source) == entry.source and (_label(source) == source or entry.op in loaded[source].op_names()):
            return own | loaded[source].tags_of(entry.op)
    return own

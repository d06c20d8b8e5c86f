"""What picks cases out by their ids and tags: a shard, a pattern, wanted tags."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.sources import FOLDER, SOURCES, check_ops
from torchstone.conformance.sources.names import is_pattern
from torchstone.conformance.variants.registry import DEFAULT, VARIANTS


class Shard(NamedTuple):
    """One of ``count`` parts of what is asked, from 1. Every case, or of a plan every op, is in one part, the same one
    on every machine."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``2/5``. Raises ``InputError``."""
        number, slash, count = text.partition("/")
        if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise InputError(f'a shard is I/N with I from 1 to N, like 2/5; got "{text}"')
        return cls(int(number), int(count))

    def holds(self, name: str) -> bool:
        """Whether the case of this id, or the op of this name, is in this part."""
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
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

    def matches_op(self, source: str, op: str) -> bool:
        """Whether it means cases of this op."""
        return fnmatchcase(source, self.source) and fnmatchcase(op, self.op)

    def matches(self, case_id: str, variants: Collection[str]) -> bool:
        """Whether it means the case of this id; ``variants`` are those asked for."""
        source, op, dtype, index, variant = split_id(case_id)
        named = zip((source, op, dtype, index), self, strict=False)
        right = variant in variants if not self.variant else fnmatchcase(variant, self.variant)
        return right and all(fnmatchcase(value, pattern) for value, pattern in named)


def sources_of(patterns: Iterable[Pattern]) -> list[str]:
    """The sources that patterns of ids mean. Raises ``UnknownName`` for one that means none."""
    chosen: dict[str, None] = {}
    for pattern in patterns:
        found = [pattern.source] if pattern.source in SOURCES else list(SOURCES.usable(pattern.source))
        if not found:
            raise UnknownName("source", pattern.source, SOURCES)
        chosen.update(dict.fromkeys(found))
    return list(chosen)


def check_patterns(patterns: Iterable[Pattern], sources: Sequence[str]) -> None:
    """Raise ``InputError`` for a field of a pattern that nothing can have, as far as that is known without PyTorch."""
    for pattern in patterns:
        where = [name for name in sources if fnmatchcase(name.partition("=")[0], pattern.source)]
        if not is_pattern(pattern.op):
            check_ops(where, [pattern.op])
        if not is_pattern(pattern.index) and not pattern.index.isdecimal():
            raise InputError(f'"{":".join(filter(None, pattern))}": the sample is a number from 0 or a pattern')
        if pattern.variant and not is_pattern(pattern.variant) and pattern.variant not in VARIANTS:
            raise UnknownName("variant", pattern.variant, VARIANTS)


def label(source: str) -> str:
    """What the cases of a source call it."""
    return "corpus" if source.startswith(FOLDER) else source


def narrowed(ops: Mapping[str, Sequence[str]], holds: Callable[[str, str], bool], what: str) -> dict[str, list[str]]:
    """The ops, by source, for which ``holds``. Raises ``InputError`` if there is none."""
    chosen = {source: [op for op in names if holds(label(source), op)] for source, names in ops.items()}
    if not any(chosen.values()):
        raise InputError(f"selects nothing: of {sum(map(len, ops.values()))} ops none {what}")
    return chosen


def narrowed_by_patterns(ops: Mapping[str, Sequence[str]], patterns: Sequence[Pattern]) -> dict[str, list[str]]:
    """The ops, by source, that a pattern means. Raises ``InputError`` if there is none."""
    return narrowed(ops, lambda where, op: any(pattern.matches_op(where, op) for pattern in patterns), "matches --case")


def split_id(case_id: str) -> tuple[str, str, str, str, str]:
    source, op, dtype, index, *variant = case_id.split(":")
    return source, op, dtype, index, variant[0] if variant else DEFAULT


def has_wanted_tag(names: Collection[str], wanted: Sequence[str]) -> bool:
    """Whether one of ``wanted`` is among the names, and none of those behind a ``!``."""
    positive = [name for name in wanted if not name.startswith("!")]
    return not any(f"!{name}" in wanted for name in names) and (not positive or any(n in names for n in positive))

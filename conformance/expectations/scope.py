"""What a run was asked for, and whether a row is about any of it: do two shell patterns have a text in common?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import product
from typing import Any

from torchstone.conformance.expectations.expectation import WILD, Expectation

DEFAULT_VARIANT = "default"


@dataclass(frozen=True)
class Letter:
    """One place of a pattern: the characters it takes (or takes not), once or any number of times."""

    characters: frozenset[str]
    negated: bool = False
    repeated: bool = False

    def meets(self, other: Letter) -> bool:
        """Say whether some character fits both."""
        if self.negated and other.negated:
            return True  # there are more characters than two patterns name
        if self.negated:
            return bool(other.characters - self.characters)
        return bool(self.characters - other.characters if other.negated else self.characters & other.characters)


NO_COLON = Letter(frozenset(":"), negated=True)
DIGIT = Letter(frozenset("0123456789"))
ANY = Letter(frozenset(), negated=True)


def parse_pattern(pattern: str, any_character: Letter = ANY) -> list[Letter]:
    """Read a shell pattern as ``fnmatch`` does; ``*`` and ``?`` stand for ``any_character``."""
    found: list[Letter] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        at += 1
        if character == "*":
            found.append(Letter(any_character.characters, any_character.negated, repeated=True))
        elif character == "?":
            found.append(any_character)
        elif character == "[" and (end := _set_end(pattern, at)) > 0:
            found.append(_set(pattern[at:end]))
            at = end + 1
        else:
            found.append(Letter(frozenset(character)))
    return found


def _set_end(pattern: str, at: int) -> int:
    start = at + 1 if pattern[at : at + 1] == "!" else at
    return pattern.find("]", start + 1 if pattern[start : start + 1] == "]" else start)


def _set(inside: str) -> Letter:
    negated = inside.startswith("!")
    inside = inside[1:] if negated else inside
    characters: set[str] = set()
    at = 0
    while at < len(inside):
        if inside[at + 1 : at + 2] == "-" and at + 2 < len(inside):
            characters.update(map(chr, range(ord(inside[at]), min(ord(inside[at + 2]), 0x2FFF) + 1)))
            at += 3
        else:
            characters.add(inside[at])
            at += 1
    return Letter(frozenset(characters), negated)


def patterns_overlap(left: Sequence[Letter], right: Sequence[Letter]) -> bool:
    """Say whether some text matches both patterns, by walking them together."""
    todo, seen = [(0, 0)], {(0, 0)}
    while todo:
        i, j = todo.pop()
        if i == len(left) and j == len(right):
            return True
        steps = []
        if i < len(left) and left[i].repeated:
            steps.append((i + 1, j))
        if j < len(right) and right[j].repeated:
            steps.append((i, j + 1))
        if i < len(left) and j < len(right) and left[i].meets(right[j]):
            steps.append((i + (not left[i].repeated), j + (not right[j].repeated)))
        for step in steps:
            if step not in seen:
                seen.add(step)
                todo.append(step)
    return False


def patterns_below(limit: int) -> Iterator[str]:
    """Yield shell patterns that together match the decimal numbers from 0 below ``limit``, and no others."""
    if limit <= 0:
        return
    last = str(limit - 1)
    for size in range(1, len(last)):
        yield ("[0-9]" if size == 1 else "[1-9]") + "[0-9]" * (size - 1)
    for at, digit in enumerate(last):
        least = 1 if at == 0 and len(last) > 1 else 0
        if int(digit) > least:
            yield f"{last[:at]}[{least}-{int(digit) - 1}]" + "[0-9]" * (len(last) - at - 1)
    yield last


PARTS = ("tags", "cases", "shard", "earlier", "effort")
"""Options that leave out cases which no row can name: a run of such a part says nothing of what is not in it."""


@dataclass(frozen=True)
class RunScope:
    """What a run was asked for. An empty tuple is no restriction; ``ops`` are shell patterns, ``without`` those left
    out, ``limit`` a number of samples. ``part``: only some of these were asked, by a rule that no row can name.
    """

    sources: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    limit: int | None = None
    part: bool = False

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> RunScope:
        """Read the options of a run's record; what is not there restricts nothing."""

        def names(key: str, absent: tuple[str, ...] = ()) -> tuple[str, ...]:
            value = options.get(key)
            return tuple(map(str, value)) if isinstance(value, list) else absent

        variants = names("variants", (DEFAULT_VARIANT,))  # runs of before there were any have the default one
        ops, limit = names("ops"), options.get("limit")
        return cls(
            sources=tuple(name.partition("=")[0] for name in names("sources")),  # corpus=FOLDER: its cases say corpus
            ops=tuple(op for op in ops if not op.startswith("!")),
            without=tuple(op[1:] for op in ops if op.startswith("!")),
            dtypes=names("dtypes"),
            variants=() if "all" in variants else variants,
            limit=limit if isinstance(limit, int) else None,
            part=any(options.get(key) for key in PARTS),
        )

    @property
    def wide(self) -> bool:
        """Whether every sample was asked of what was asked at all."""
        return self.limit is None and not self.part

    def asks(self, row: Expectation) -> bool:
        """Say whether the row names, by each of its selectors, something that the run was asked for."""
        if self.part or (self.without and not self._with(row)):
            return False
        kept: list[tuple[str, ...]] = []
        for name, wanted in zip(("source", "op", "dtype", "variant"), self._restrictions(), strict=True):
            pattern = parse_pattern(getattr(row, name), NO_COLON)
            kept.append(tuple(one for one in wanted if patterns_overlap(pattern, parse_pattern(one, NO_COLON))))
            if not kept[-1]:
                return False
        if row.case == "*":
            return True
        pattern = parse_pattern(row.case)
        return any(
            patterns_overlap(pattern, wanted)
            for source, op, dtype, variant in product(*kept)
            for wanted in self._ids(source, op, dtype, variant)
        )

    def _with(self, row: Expectation) -> bool:
        """Say whether the row names one op, and that is not among those left out."""
        parts = row.case.split(":", 2)
        op = row.op if not WILD.search(row.op) else parts[1] if len(parts) > 2 else "*"
        return not WILD.search(op) and not any(fnmatchcase(op, pattern) for pattern in self.without)

    def _restrictions(self) -> tuple[tuple[str, ...], ...]:
        return tuple(names or ("*",) for names in (self.sources, self.ops, self.dtypes, self.variants))

    def _ids(self, source: str, op: str, dtype: str, variant: str) -> Iterator[list[Letter]]:
        """Yield what the ids of such cases look like: ``source:op:dtype:index`` and perhaps ``:variant``."""
        colon = Letter(frozenset(":"))
        head = [letter for part in (source, op, dtype) for letter in (*parse_pattern(part, NO_COLON), colon)]
        number = [DIGIT, Letter(DIGIT.characters, repeated=True)]
        indices = [number] if self.limit is None else [parse_pattern(pattern) for pattern in patterns_below(self.limit)]
        tails: list[list[Letter]] = [[colon, *parse_pattern(variant, NO_COLON)]] if variant != DEFAULT_VARIANT else [[]]
        if variant == "*":
            tails.append([])
        for index, tail in product(indices, tails):
            yield [*head, *index, *tail]

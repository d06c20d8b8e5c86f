"""The rows of an expectation file, and which of them decides a case: the last one that matches."""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SELECTORS = ("case", "source", "op", "dtype", "variant")
WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Expectation:
    """One ``[[expect]]`` table: the cases it is about, the outcomes expected of them, and why.

    Each selector is a shell pattern over the whole of a case's id, source, op, dtype or variant, as ``fnmatch`` reads
    them, ``*`` where the file has none; all have to match. ``line`` is where the row stands in its file, from 1.
    """

    outcomes: tuple[str, ...]
    reason: str
    issue: str = ""
    case: str = "*"
    source: str = "*"
    op: str = "*"
    dtype: str = "*"
    variant: str = "*"
    line: int = 0

    @property
    def selectors(self) -> dict[str, str]:
        """The selectors that say something."""
        return {name: value for name in SELECTORS if (value := getattr(self, name)) != "*"}

    @functools.cached_property
    def _tests(self) -> tuple[tuple[int, Callable[[str], object]], ...]:
        names = self.selectors
        return tuple((at, _compiled(names[name])) for at, name in enumerate(SELECTORS) if name in names)

    def matches(self, *case: str) -> bool:
        """Say whether the row is about a case, given by its id, source, op, dtype and variant."""
        return all(test(case[at]) for at, test in self._tests)

    def __str__(self) -> str:
        return ", ".join(f"{name} = {value!r}" for name, value in self.selectors.items()) or "every case"


@functools.lru_cache(maxsize=65536)
def _compiled(pattern: str) -> Callable[[str], object]:
    return re.compile(fnmatch.translate(pattern)).match if WILD.search(pattern) else pattern.__eq__


@dataclass(frozen=True)
class ExpectationFile:
    """The rows of one file, in its order, about one backend. Of the rows that match a case the last one decides."""

    path: Path
    backend: str
    rows: tuple[Expectation, ...]
    _index: dict[tuple[str, str], list[int]] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for at, row in enumerate(self.rows):
            self._index.setdefault(_key(row), []).append(at)

    def matching(self, case: str, source: str, op: str, dtype: str, variant: str) -> Sequence[int]:
        """Return the places of the rows that match a case, in the order of the file."""
        keys = ("case", case), ("head", _head(case)), ("op", op), ("", "")
        near = [at for key in keys for at in self._index.get(key, ())]
        found = [at for at in near if self.rows[at].matches(case, source, op, dtype, variant)]
        return sorted(found) if len(found) > 1 else found

    def find(self, case: str, source: str, op: str, dtype: str, variant: str) -> Expectation | None:
        """Return the row that decides a case, None when there is none."""
        found = self.matching(case, source, op, dtype, variant)
        return self.rows[found[-1]] if found else None


def _key(row: Expectation) -> tuple[str, str]:
    """Where a row is filed, so that a case meets only rows that may match it: by id, by the id's head, by op."""
    wild = WILD.search(row.case)
    if wild is None:
        return "case", row.case
    literal = row.case[: wild.start()]
    if literal.count(":") >= 2:
        return "head", _head(literal)
    return ("op", row.op) if not WILD.search(row.op) else ("", "")


def _head(case: str) -> str:
    return ":".join(case.split(":", 2)[:2])


def group_by_selectors(rows: Sequence[Expectation]) -> Mapping[tuple[str, ...], list[Expectation]]:
    """Return the rows by their selectors."""
    found: dict[tuple[str, ...], list[Expectation]] = {}
    for row in rows:
        found.setdefault(tuple(getattr(row, name) for name in SELECTORS), []).append(row)
    return found

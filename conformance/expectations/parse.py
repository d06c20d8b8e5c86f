"""Reading an expectation file. It may come from anywhere: it is parsed, bounded, and every value is checked.

A file is edited row by row (``update``), so that the text of a row that stays is kept to the byte, its comments with
it. The rows are told apart by TOML's own parser: a piece of the text is a row when it reads as one, and as the same one
that the whole file has in that place.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from torchstone.compiler.diagnostics import did_you_mean
from torchstone.conformance.errors import InputError
from torchstone.conformance.escape import one_line, visible
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.expectations.expectation import SELECTORS, Expectation, ExpectationFile, group_by_selectors

MAX_BYTES = 4 << 20
MAX_ROWS = 20_000
MAX_TEXT = {"case": 1000, "source": 200, "op": 200, "dtype": 200, "variant": 200, "reason": 10_000, "issue": 2000}
KEYS = (*SELECTORS, "outcome", "reason", "issue")
OUTCOMES = tuple(str(outcome) for outcome in Outcome if outcome != Outcome.HARNESS_ERROR)
HEADER = re.compile(r"""[ \t]*\[\[[ \t]*(expect|"expect"|'expect')[ \t]*\]\][ \t]*(#.*)?\r?\n?""")
_PLACE = re.compile(r" \(at line (\d+), column (\d+)\)$")


class ExpectationError(InputError):
    """An expectation file that cannot be used; the message has the file and, where there is one, the line."""


@dataclass(frozen=True)
class Document:
    """A file's text in pieces: what stands before the rows, then each row with the comments that are about it.

    ``texts[i]`` is all that goes when row i goes; ``after[i]`` is what stands between it and the next row.
    """

    head: str
    texts: tuple[str, ...]
    after: tuple[str, ...]
    expectations: ExpectationFile


def load_expectations(path: Path) -> ExpectationFile:
    """Read an expectation file. Raises ExpectationError."""
    return read_document(path).expectations


def read_document(path: Path) -> Document:
    """Read an expectation file with its text. Raises ExpectationError."""
    return parse_document(_text(path), path)


def parse_document(text: str, path: Path) -> Document:
    """Read the text of an expectation file. Raises ExpectationError."""
    data = _toml(text, path)
    for key in data:
        if key not in ("backend", "expect"):
            hint = did_you_mean(key, ["backend", "expect"])
            raise ExpectationError(f"{path}: unknown key {visible(key)[:80]!r}{hint}; known: backend, expect")
    backend = data.get("backend")
    if not isinstance(backend, str) or not backend or len(backend) > 200 or visible(backend) != backend:
        raise ExpectationError(f'{path}: name the backend these are the expectations of: backend = "inductor"')
    tables = data.get("expect", [])
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ExpectationError(f"{path}: expect is a list of tables: write each row under a line [[expect]]")
    if len(tables) > MAX_ROWS:
        raise ExpectationError(f"{path}: {len(tables):,} rows; at most {MAX_ROWS:,} can be used")
    head, pieces = _pieces(text, tables, path)
    rows = tuple(_row(table, path, line) for table, (line, _, _) in zip(tables, pieces, strict=True))
    for group in group_by_selectors(rows).values():
        if len(group) > 1:
            word = "duplicate" if set(group[0].outcomes) == set(group[1].outcomes) else "conflicting"
            raise ExpectationError(
                f"{path}:{group[1].line}: {word} row: {group[1]} has one in line {group[0].line} already"
            )
    texts, after = tuple(piece[1] for piece in pieces), tuple(piece[2] for piece in pieces)
    return Document(head, texts, after, ExpectationFile(path, backend, rows))


def _text(path: Path) -> str:
    try:
        if not path.is_file():
            raise ExpectationError(f"{path}: {'not a file' if path.exists() else 'no such file'}")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ExpectationError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if len(data) > MAX_BYTES:
        raise ExpectationError(f"{path}: larger than {MAX_BYTES:,} bytes; this is no expectation file")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ExpectationError(f"{path}:{line}: not UTF-8, which TOML has to be") from error


def _toml(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ExpectationError(f"{path}: nested too deeply for an expectation file") from error
    except ValueError as error:  # TOMLDecodeError, and an int past Python's limit of digits
        message = str(error)
        place = _PLACE.search(message)
        where = f"{path}:{place[1]}" if place else str(path)
        raise ExpectationError(f"{where}: {one_line(_PLACE.sub('', message))}") from error


def _row(table: dict[str, Any], path: Path, line: int) -> Expectation:
    def wrong(message: str) -> ExpectationError:
        return ExpectationError(f"{path}:{line}: {message}")

    for key, value in table.items():
        if key not in KEYS:
            hint = did_you_mean(key, list(KEYS)) or f" (known: {', '.join(KEYS)})"
            raise wrong(f"unknown key {visible(key)[:80]!r}{hint}")
        if key == "outcome":
            continue
        if not isinstance(value, str):
            raise wrong(f"{key} is a text, got {one_line(repr(value), 80)}")
        if not value.strip():
            raise wrong(f"{key} is empty")
        if len(value) > MAX_TEXT[key]:
            raise wrong(f"{key} has {len(value):,} characters; at most {MAX_TEXT[key]:,} can be used")
        if key != "reason" and visible(value) != value:
            raise wrong(f"{key} has control characters: {visible(value)[:80]!r}")
    selectors = {name: table[name] for name in SELECTORS if name in table}
    if not selectors:
        raise wrong(f"say which cases the row is about, by one or more of {', '.join(SELECTORS)}")
    if "reason" not in table:
        raise wrong("give the reason: what is known about why these cases end like this")
    issue = table.get("issue", "")
    if issue and not _is_link(issue):
        raise wrong(f"issue is a link that starts with https:// or http://, got {issue[:80]!r}")
    outcomes = _outcomes(table, wrong)
    return Expectation(outcomes, table["reason"], issue, **selectors, line=line)


def _outcomes(table: dict[str, Any], wrong: Any) -> tuple[str, ...]:
    value = table.get("outcome")
    names = value if isinstance(value, list) else [value]
    if value is None or not names:
        raise wrong(f"give the outcome expected, or a list of outcomes: {', '.join(OUTCOMES)}")
    for name in names:
        if name == Outcome.HARNESS_ERROR:
            raise wrong("harness-error says nothing about the backend, so it cannot be expected")
        if name not in OUTCOMES:
            hint = did_you_mean(name, OUTCOMES) if isinstance(name, str) else ""
            hint = hint or f" (known: {', '.join(OUTCOMES)})"
            raise wrong(f"unknown outcome {one_line(str(name), 80)!r}{hint}")
    if len(set(names)) != len(names):
        raise wrong("an outcome is named twice")
    return tuple(map(str, names))


def _is_link(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not re.search(r"\s", text)


def _pieces(
    text: str, tables: Sequence[dict[str, Any]], path: Path
) -> tuple[str, list[tuple[int, str, str]]]:  # fmt: skip
    """Cut the text into what stands before the rows, and for each row its line, its text, and what stands after it."""
    lines = re.split(r"(?<=\n)", text)
    marks = [at for at, line in enumerate(lines) if HEADER.fullmatch(line)]
    bodies: list[tuple[int, int]] = []
    found: list[Any] = []
    begin, vain = 0, 0
    for mark in [*marks, len(lines)]:
        if (data := _reads("".join(lines[begin:mark]))) is not None:
            bodies.append((begin, mark))
            found.append(data.get("expect"))
            begin, vain = mark, 0
        elif (vain := vain + 1) > 100:  # lines like a header in a text of many lines: told apart by trying, in bounds
            break
    if not bodies or bodies[-1][1] != len(lines) or found[1:] != [[table] for table in tables]:
        raise ExpectationError(f"{path}: the rows cannot be told apart: write each under a line [[expect]] of its own")
    ends = [_row_end(lines, begin, end) for begin, end in bodies[1:]]
    starts = [_row_start(lines, begin, ends[at - 1] if at else 0) for at, (begin, _) in enumerate(bodies[1:])]
    pieces = []
    for at, (start, end) in enumerate(zip(starts, ends, strict=True)):
        next_start = starts[at + 1] if at + 1 < len(starts) else len(lines)
        pieces.append((bodies[at + 1][0] + 1, "".join(lines[start:end]), "".join(lines[end:next_start])))
    return "".join(lines[: starts[0]] if starts else lines), pieces


def _reads(text: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return None


def _row_end(lines: Sequence[str], begin: int, end: int) -> int:
    """The line after a row: behind its last key, and the comments that follow that without a blank line."""
    last = end
    while last > begin + 1 and (not lines[last - 1].strip() or lines[last - 1].lstrip().startswith("#")):
        last -= 1
    own = "".join(lines[begin:end])
    if ('"""' in own or "'''" in own) and _reads("".join(lines[begin:last])) != _reads(own):
        return end  # the end of a text of many lines looks like a comment
    while last < end and lines[last].strip():
        last += 1
    if last == end and end < len(lines):  # no blank line before the next row: the comments are the next one's
        while last > begin + 1 and lines[last - 1].lstrip().startswith("#"):
            last -= 1
    return last


def _row_start(lines: Sequence[str], header: int, least: int) -> int:
    """The first of the comment lines that stand right above a row's header."""
    start = header
    while start > least and lines[start - 1].lstrip().startswith("#"):
        start -= 1
    return start

"""Bringing an expectation file up to date with a run: what still holds stays to the byte, the rest is written anew."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from torchstone.conformance.escape import one_line, toml, visible
from torchstone.conformance.execution.verdict import FAILURES, Outcome
from torchstone.conformance.expectations.baseline import StoredVerdict
from torchstone.conformance.expectations.expectation import WILD, Expectation, ExpectationFile
from torchstone.conformance.expectations.parse import MAX_TEXT, Document, ExpectationError, parse_document
from torchstone.conformance.expectations.scope import RunScope
from torchstone.conformance.files import replace_file

if TYPE_CHECKING:
    from torchstone.conformance.store import RunRecord, Store

TODO = "TODO reason: "
BLANK = re.compile(r"\A([ \t]*\r?\n)+")
BLANK_END = re.compile(r"\n[ \t]*\r?\n\Z")
NEW = """\
# What is known to fail on this backend, and why: `torchstone run --expect` fails on anything else.
# Of the rows that match a case, the last one decides.
backend = {backend}
"""


@dataclass(frozen=True)
class Update:
    """The new text of a file, and what is new in it. ``skipped`` cases met trouble of the harness itself."""

    path: Path
    text: str
    kept: int
    added: tuple[Expectation, ...]
    removed: tuple[Expectation, ...]
    skipped: int

    def write(self) -> None:
        """Put the text in place, whole or not at all. Raises InputError."""
        with replace_file(self.path) as file:
            file.write(self.text.encode())


def new_document(path: Path, backend: str) -> Document:
    """Return a file without rows."""
    return parse_document(NEW.format(backend=toml(backend)), path)


def update_document(document: Document, store: Store, record: RunRecord) -> Update:
    """Return what the file has to say so that the run, which has finished, is as expected.

    A row goes when it matches no case though it is about what the run was asked for, or when none of the cases that it
    decides came as it says (a run of the first samples only says nothing about the others: there the row stays). Any
    other stays, and its exceptions are written after it, where they decide. New rows are in the order of the cases'
    ids, one for all samples of an op, dtype and variant when all came alike, unless the run was limited to the first
    of them; their reason is the verdict's message, marked as one to be written.
    """
    file = document.expectations
    results = [StoredVerdict(*row) for row in store.iter_verdicts(record.run)]
    results = [result for result in results if result.backend == file.backend]
    known = [result for result in results if result.outcome != Outcome.HARNESS_ERROR]
    selection = RunScope.of(record.options)
    kept = _rows_that_stay(file, results, selection)
    rest = ExpectationFile(file.path, file.backend, tuple(file.rows[at] for at in kept))
    wrong = [result for result in known if not _holds(rest.find(*result.key), result)]
    kept, added = _replacing_rows(file, kept, _rows(wrong, results, grouped=selection.wide))
    rest = ExpectationFile(file.path, file.backend, tuple(file.rows[at] for at in kept))
    text = _without(document, kept)
    if added:
        newline = "\r\n" if "\r\n" in text else "\n"
        text = text.rstrip() + newline * 2 + (newline * 2).join(_written(row, newline) for row in added) + newline
    _check(text, rest, added)
    removed = tuple(row for at, row in enumerate(file.rows) if at not in set(kept))
    return Update(file.path, text, len(kept), added, removed, len(results) - len(known))


def _without(document: Document, kept: Sequence[int]) -> str:
    """Return the text without the rows that go, and without the blank lines that parted them."""
    text, stays = document.head, set(kept)
    for at, (own, after) in enumerate(zip(document.texts, document.after, strict=True)):
        if at in stays:
            text += own + after
        else:
            text += BLANK.sub("", after) if not text or BLANK_END.search(text) else after
    return text


def _rows_that_stay(file: ExpectationFile, results: Sequence[StoredVerdict], selection: RunScope) -> list[int]:
    """Return the places of the rows that stay. Without a row others decide its cases, so that is looked at again."""
    matching = {result: file.matching(*result.key) for result in results}
    met = {at for found in matching.values() for at in found}
    kept = {at for at, row in enumerate(file.rows) if at in met or not selection.asks(row)}
    while True:
        holds: dict[int, bool] = {}
        for result, found in matching.items():
            at = next((at for at in reversed(found) if at in kept), None)
            if at is not None:
                right = result.outcome in (*file.rows[at].outcomes, Outcome.HARNESS_ERROR)
                holds[at] = holds.get(at, False) or right
        refuted = {
            at for at, right in holds.items() if not right and (selection.wide or not WILD.search(file.rows[at].case))
        }
        if not refuted:
            return sorted(kept)
        kept -= refuted


def _replacing_rows(
    file: ExpectationFile, kept: Sequence[int], added: Sequence[Expectation]
) -> tuple[list[int], tuple[Expectation, ...]]:
    """Let a new row stand for one about the same cases that a later row covers, with its reason where it holds."""
    places = {tuple(file.rows[at].selectors.items()): at for at in kept}
    rows, gone = [], set()
    for row in added:
        at = places.get(tuple(row.selectors.items()))
        old = file.rows[at] if at is not None else None
        if at is not None and old is not None:
            gone.add(at)
            row = replace(old, line=0) if row.outcomes[0] in old.outcomes else row
        rows.append(row)
    return [at for at in kept if at not in gone], tuple(rows)


def _holds(row: Expectation | None, result: StoredVerdict) -> bool:
    return result.outcome not in FAILURES if row is None else result.outcome in row.outcomes


def _rows(
    wrong: Iterable[StoredVerdict], results: Iterable[StoredVerdict], *, grouped: bool
) -> tuple[Expectation, ...]:
    """Return rows that say how the cases in ``wrong`` came, and match no other case of the run."""

    def group(result: StoredVerdict) -> tuple[str, ...]:
        return result.source, result.op, result.dtype, result.variant

    groups: dict[tuple[str, ...], list[StoredVerdict]] = {}
    for result in wrong:
        groups.setdefault(group(result), []).append(result)
    everything: dict[tuple[str, ...], int] = {}
    for result in results:
        everything[group(result)] = everything.get(group(result), 0) + 1
    rows = []
    for key in sorted(groups):
        cases = sorted(groups[key], key=lambda result: _natural(result.case_id))
        if grouped and len(cases) > 1 and len(cases) == everything[key] and len({r.outcome for r in cases}) == 1:
            source, op, dtype, variant = (_pattern(part, MAX_TEXT["op"]) for part in key)
            rows.append(_row(cases[0], source=source, op=op, dtype=dtype, variant=variant))
        else:
            rows += [_row(result, case=_pattern(result.case_id, MAX_TEXT["case"])) for result in cases]
    return _merged(rows)


def _pattern(text: str, limit: int) -> str:
    """What matches the text: a file has no control characters in it, so ``?`` stands for one, and bounded patterns."""
    parts = ["?" if visible(character) != character else glob.escape(character) for character in text[:limit]]
    if len(text) <= limit and len(whole := "".join(parts)) <= limit:
        return whole
    length = 0
    return "".join(part for part in parts if (length := length + len(part)) < limit) + "*"


def _merged(rows: Iterable[Expectation]) -> tuple[Expectation, ...]:
    """One row for those about the same cases, which two ids are that differ in a control character."""
    found: dict[tuple[tuple[str, str], ...], Expectation] = {}
    for row in rows:
        key = tuple(row.selectors.items())
        known = found.setdefault(key, row)
        found[key] = replace(known, outcomes=tuple(dict.fromkeys((*known.outcomes, *row.outcomes))))
    return tuple(found.values())


def _row(
    result: StoredVerdict, *, case: str = "*", source: str = "*", op: str = "*", dtype: str = "*", variant: str = "*"
) -> Expectation:
    outcome = result.outcome
    # a case that failed and then passed may do either the next time
    outcomes = (outcome, str(Outcome.PASS)) if outcome == Outcome.FLAKY else (outcome,)
    said = one_line(result.message) or ("it passes" if outcome == Outcome.PASS else "no message")
    return Expectation(outcomes, TODO + said, case=case, source=source, op=op, dtype=dtype, variant=variant)


def _natural(text: str) -> list[tuple[int, int, str]]:
    parts = re.split(r"([0-9]+)", text)
    return [(1, int(part[:18]), part) if part.isdigit() else (0, 0, part) for part in parts]


def _written(row: Expectation, newline: str) -> str:
    outcome = ", ".join(map(toml, row.outcomes))
    lines = ["[[expect]]", *(f"{name} = {toml(value)}" for name, value in row.selectors.items())]
    lines.append(f"outcome = {outcome if len(row.outcomes) == 1 else f'[{outcome}]'}")
    lines.append(f"reason = {toml(row.reason)}")
    return newline.join([*lines, f"issue = {toml(row.issue)}"] if row.issue else lines)


def _check(text: str, rest: ExpectationFile, added: Sequence[Expectation]) -> None:
    """Hold the new text against what it is meant to say, before it replaces anything."""
    read = [replace(row, line=0) for row in parse_document(text, rest.path).expectations.rows]
    if read != [replace(row, line=0) for row in (*rest.rows, *added)]:
        raise ExpectationError(f"{rest.path}: cannot be edited without changing other rows; it is left as it is")

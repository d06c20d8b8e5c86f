"""The text of a pass pipeline as a tree: what it holds, and the pipelines that hold less."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from torchstone.conformance.errors import InputError

_NAME = re.compile(r"[\w.-]+")
_ROOTS = ("builtin.module", "any")


@dataclass(frozen=True)
class Entry:
    """A pass with its options, or a nest: an op's name and the passes that run on each op of that name."""

    name: str
    options: str = ""
    nested: tuple[Entry, ...] | None = None

    def __str__(self) -> str:
        if self.nested is not None:
            return f"{self.name}({','.join(map(str, self.nested))})"
        return self.name + self.options


Pipeline = tuple[Entry, ...]
"""What runs on the module, in order."""


def parse(text: str) -> Pipeline:
    """Return the passes of a pipeline, with or without ``builtin.module(…)`` around them. Raises InputError."""
    text = text.strip()
    entries, end = _entries(text, 0)
    if end != len(text):
        raise _wrong(text, end, "what is left is no pass")
    if len(entries) == 1 and entries[0].name in _ROOTS and entries[0].nested is not None:
        return entries[0].nested
    return entries


def text(pipeline: Pipeline) -> str:
    """Return the pipeline as MLIR's tools take it."""
    return f"builtin.module({','.join(map(str, pipeline))})"


def passes(pipeline: Pipeline) -> int:
    """Count the passes; a nest counts as what is in it."""
    return sum(1 if entry.nested is None else passes(entry.nested) for entry in pipeline)


def leaves(pipeline: Pipeline) -> Iterator[Entry]:
    """Yield each pass in the order they run, in the nests that it is in: what a pass does is then told of it alone."""
    for entry in pipeline:
        if entry.nested is None:
            yield entry
        else:
            for inner in leaves(entry.nested):
                yield replace(entry, nested=(inner,))


def pass_name(entry: Entry) -> str:
    """Return the name of a leaf's pass, without nests and options."""
    return entry.name if entry.nested is None else pass_name(entry.nested[0])


def without_options(pipeline: Pipeline) -> Iterator[Pipeline]:
    """Yield the pipeline with the options of one pass left out, for each pass that has some."""
    for at, entry in enumerate(pipeline):
        shorter = without_options(entry.nested) if entry.nested is not None else ()
        changed = [replace(entry, nested=inner) for inner in shorter]
        if entry.options:
            changed.append(replace(entry, options=""))
        for other in changed:
            yield (*pipeline[:at], other, *pipeline[at + 1 :])


def keep(pipeline: Pipeline, kept: frozenset[int]) -> Pipeline:
    """Return the pipeline with the passes of these numbers alone, counted in the order they run."""
    return _keep(pipeline, kept, 0)[0]


def _keep(pipeline: Pipeline, kept: frozenset[int], number: int) -> tuple[Pipeline, int]:
    found: list[Entry] = []
    for entry in pipeline:
        if entry.nested is None:
            found += [entry] if number in kept else []
            number += 1
            continue
        nested, number = _keep(entry.nested, kept, number)
        if nested:
            found.append(replace(entry, nested=nested))
    return tuple(found), number


def _entries(text: str, at: int) -> tuple[Pipeline, int]:
    found: list[Entry] = []
    while at < len(text) and text[at] != ")":
        name = _NAME.match(text, at)
        if name is None:
            raise _wrong(text, at, "here a name should be")
        at = name.end()
        if text[at : at + 1] == "(":
            nested, at = _entries(text, at + 1)
            if text[at : at + 1] != ")":
                raise _wrong(text, at, "a parenthesis is not closed")
            found.append(Entry(name[0], nested=nested))
            at += 1
        else:
            end = _end_of_options(text, at)
            found.append(Entry(name[0], text[at:end]))
            at = end
        at = _skip_spaces(text, at)
        if text[at : at + 1] != ",":
            break
        at = _skip_spaces(text, at + 1)
    return tuple(found), at


def _end_of_options(text: str, at: int) -> int:
    """Return where the braces that open at ``at`` close; ``at`` itself where none opens."""
    depth = 0
    for end in range(at, len(text)):
        depth += (text[end] == "{") - (text[end] == "}")
        if depth == 0:
            return end + 1 if text[end] == "}" else end
    if depth:
        raise _wrong(text, at, "a brace is not closed")
    return len(text)


def _skip_spaces(text: str, at: int) -> int:
    while text[at : at + 1].isspace():
        at += 1
    return at


def _wrong(text: str, at: int, why: str) -> InputError:
    return InputError(f"--pipeline: {why}, after {text[:at][-40:]!r}: {text[at : at + 40]!r}")

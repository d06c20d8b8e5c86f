"""The op families: each module yields the rules of its ops. An op belongs to the first family that knows it."""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.fuzz.generator.families import algebra, elementwise, indexing, nn, reductions, samples, shapes
from torchstone.fuzz.generator.rules import OpRule

FAMILIES = (elementwise, reductions, shapes, algebra, nn, indexing)


def rules() -> Iterator[OpRule]:
    """Yield every rule; what no family has a way to draw is taken from the database's own samples."""
    taken: set[str] = set()
    for family in FAMILIES:
        for rule in family.rules():
            taken.add(rule.op)
            yield rule
    yield from samples.rules(taken)

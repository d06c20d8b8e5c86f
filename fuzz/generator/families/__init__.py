"""The op families: each is a module, or an object, whose ``rules()`` yields the rules of its ops.

An op belongs to one family. What no family has a way to draw is taken from the database's own samples, and so are some
calls of the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from torchstone.compiler.registry import Registry
from torchstone.conformance.errors import InputError, UnknownName
from torchstone.fuzz.generator.rules import OpRule


class Family(Protocol):
    """Ops that are drawn alike."""

    def rules(self) -> Iterator[OpRule]:
        """Yield a rule for each op that this PyTorch has."""
        ...


_HERE = "torchstone.fuzz.generator.families"
FAMILIES: Registry[Family] = Registry(
    "fuzz family",
    "torchstone.fuzz_families",
    ("rules",),
    {
        "elementwise": f"{_HERE}.elementwise",
        "reductions": f"{_HERE}.reductions",
        "shapes": f"{_HERE}.shapes",
        "algebra": f"{_HERE}.algebra",
        "nn": f"{_HERE}.nn",
        "indexing": f"{_HERE}.indexing",
        "random": f"{_HERE}.random",
        "control-flow": f"{_HERE}.control_flow",
    },
    unknown=UnknownName,
    broken=InputError,
)


def rules() -> Iterator[OpRule]:
    """Yield every rule of every family that can be loaded, then those made from samples.

    Raises ``InputError`` for an op that two families draw.
    """
    from torchstone.fuzz.generator.families import samples

    owners: dict[str, str] = {}
    for family in FAMILIES.usable():
        for rule in FAMILIES.load(family).rules():
            if owners.setdefault(rule.op, family) != family:
                raise InputError(f'the op {rule.op} is drawn by the fuzz families "{owners[rule.op]}" and "{family}"')
            yield samples.also_lifted(rule)
    yield from samples.rules(owners)

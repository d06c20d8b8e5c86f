"""All the rules of the fuzzer, looked up by the op's name."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from torchstone.conformance.errors import InputError, UnknownName
from torchstone.fuzz.generator.rules import OpRule, op_database


class NoRule(InputError):
    """An op of the database has no rule."""


@functools.cache
def all_rules() -> dict[str, OpRule]:
    """Return every rule by op name, in a fixed order. The first call imports PyTorch's op database: some seconds."""
    from torchstone.fuzz.generator import families

    rules: dict[str, OpRule] = {}
    for rule in families.rules():
        if rule.op in rules:
            raise ValueError(f"two rules for the op {rule.op}")
        rules[rule.op] = rule
    return dict(sorted(rules.items()))


def select_rules(names: Iterable[str]) -> tuple[OpRule, ...]:
    """Return the rules of the named ops; ``div`` names every variant of div.

    Raises UnknownName with a suggestion, NoRule for an op of the database that programs do not call.
    """
    rules = all_rules()
    found: list[OpRule] = []
    for name in names:
        matching = [rule for op, rule in rules.items() if op == name] or [
            rule for op, rule in rules.items() if base_name(op) == name
        ]
        if not matching and name in op_database():
            raise NoRule(f"no rule draws calls of {name} for programs of several; --alone asks it by itself")
        if not matching:
            raise UnknownName("op", name, rules)
        found += matching
    return tuple(dict.fromkeys(found))


def base_name(op: str) -> str:
    """Return an op's name without its variant: ``div`` for ``div.floor_rounding``."""
    infos = op_database().get(op)
    return infos.name if infos else op

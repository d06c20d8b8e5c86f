"""A trait: a property of ops that no schema of PyTorch's tells, with the ops that have it and the reason.

Traits are asked about an op in two ways, by what a dispatch mode sees or by the name of a call:

    if NEVER_ROUNDS.holds(func):                  # func is torch.ops.aten.relu_.default
    if UNINITIALIZED.has(call.operator):          # "empty"
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Generic, TypeVar

Function = TypeVar("Function")


class Names(StrEnum):
    """Which names the ops of a trait go by."""

    ATEN = "operators of ATen"
    """As a dispatch mode sees them: ``relu`` is every overload and the in-place form, ``median.dim`` one overload,
    ``prims::iota`` an operator of another namespace than ATen's."""

    PUBLIC = "public functions"
    """As programs call them: what follows ``torch.`` or ``torch.Tensor.``, in the op database with its variant
    (``nn.functional.relu``, ``div.floor_rounding``)."""


@dataclass(frozen=True)
class Trait:
    """A property of ops.

    ``ops`` maps each op to a detail, which is empty where the trait says it all. ``reason`` is why the ops have the
    property, ``effect`` what comes of it, ``read_by`` the modules of torchstone that ask for it. ``waives`` says that
    the effect is room for a backend: the oracle forgives something there.
    """

    title: str
    names: Names
    ops: Mapping[str, str]
    reason: str
    effect: str
    read_by: tuple[str, ...]
    waives: bool = False
    _asked: dict[Any, bool] = field(default_factory=dict, init=False, repr=False, compare=False)

    def has(self, name: str) -> bool:
        """Whether the op of this very name is in the table."""
        return name in self.ops

    def holds(self, func: Any) -> bool:
        """Whether an operator, as a dispatch mode is given it, has the trait."""
        if func not in self._asked:
            self._asked[func] = any(name in self.ops for name in names_of(func))
        return self._asked[func]


@functools.cache
def names_of(func: Any) -> tuple[str, str, str]:
    """The names that an operator may have in a trait of ATen's: ``mul``, ``mul.Tensor``, ``aten::mul`` of ``mul_``."""
    namespace, _, name = func.name().partition("::")
    operator, _, overload = name.partition(".")
    base = operator.rstrip("_")
    return base, f"{base}.{overload or 'default'}", f"{namespace}::{base}"


def each(text: str = "", **details: str) -> Mapping[str, str]:
    """The ops of a trait: names separated by white space, and those with a detail. Raises ``ValueError`` for a name
    that is there twice."""
    ops: dict[str, str] = {}
    for name, detail in [*((name, "") for name in text.split()), *details.items()]:
        if name in ops:
            raise ValueError(f"the op {name} is named twice in one trait")
        ops[name] = detail
    return MappingProxyType(ops)


def holds_any(traits: Iterable[Trait], func: Any) -> bool:
    """Whether an operator has one of the traits."""
    return any(trait.holds(func) for trait in traits)


class Implementations(Generic[Function]):
    """What belongs to the ops of a trait, such as a check or a formula, kept beside the code that runs it.

    ``register`` raises ``ValueError`` for an op that does not have the trait, and for a second function of one op.
    """

    def __init__(self, trait: Trait) -> None:
        self.trait = trait
        self.functions: dict[str, Function] = {}

    def register(self, *ops: str) -> Callable[[Function], Function]:
        """Register the decorated function, or the value, for some ops of the trait."""

        def decorate(function: Function) -> Function:
            for op in ops:
                if not self.trait.has(op):
                    raise ValueError(f"{op} is none of the ops of the trait {self.trait.title!r}: add it to the table")
                if op in self.functions:
                    raise ValueError(f"{op} has two functions for the trait {self.trait.title!r}")
                self.functions[op] = function
            return function

        return decorate

    def missing(self) -> list[str]:
        """The ops of the trait that have no function yet."""
        return [op for op in self.trait.ops if op not in self.functions]

    def get(self, name: str) -> Function | None:
        """The function of the op of this very name."""
        return self.functions.get(name)

    def of(self, func: Any) -> Function | None:
        """The function of an operator, as a dispatch mode is given it."""
        return next((self.functions[name] for name in names_of(func) if name in self.functions), None)

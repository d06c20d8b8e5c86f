"""What a mutant is, and the ways of making one: a row of a table of the compiler replaced for a while."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from unittest import mock

Patch: TypeAlias = Callable[[], AbstractContextManager[Any]]
"""Puts a mistake in the compiler for as long as the context lasts. What it replaces is looked up on entry."""

Rule: TypeAlias = Callable[..., Any]
Mutation: TypeAlias = Callable[[Rule], Rule]
"""From what is right to what takes its place."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A wrong compiler: what is wrong with it, and in which ops of PyTorch's database that should be seen.

    ``group`` is the class of mistakes that it is one of; ``harmful`` says that it may end the process that it is in.
    """

    name: str
    group: str
    wrong: str
    ops: tuple[str, ...]
    patch: Patch
    harmful: bool = False


def mutants(group: str, *table: tuple[str, str, str, Patch], harmful: str = "") -> tuple[Mutant, ...]:
    """The mutants of one class, from rows of a name, what is wrong, the ops by spaces, and the patch.

    ``harmful`` names, by spaces, those that may end the process.
    """
    return tuple(
        Mutant(name, group, wrong, tuple(ops.split()), patch, name in harmful.split())
        for name, wrong, ops, patch in table
    )


def combined(*patches: Patch) -> Patch:
    @contextmanager
    def apply() -> Iterator[None]:
        with ExitStack() as stack:
            for patch in patches:
                stack.enter_context(patch())
            yield

    return apply


# Anywhere


def patched(path: str, wrong: Mutation) -> Patch:
    """Replace what ``torchstone.compiler.module:attribute`` names."""

    def apply() -> AbstractContextManager[Any]:
        module, _, attributes = path.partition(":")
        owner: Any = importlib.import_module(module)
        *owners, last = attributes.split(".")
        for attribute in owners:
            owner = getattr(owner, attribute)
        return mock.patch.object(owner, last, wrong(getattr(owner, last)))

    return apply


# ATen -> FlatIR


def expansion(ops: str, wrong: Mutation) -> Patch:
    """Replace the rules of ATen ops, separated by spaces and without their ``aten.``; the bodies of ``flat.`` ones."""

    def apply() -> AbstractContextManager[Any]:
        from torchstone.compiler.transforms.expand import BODIES, EXPANSIONS
        from torchstone.compiler.transforms.rules import Row

        table = BODIES if ops.startswith("flat.") else EXPANSIONS
        names = [op if table is BODIES else f"aten.{op}" for op in ops.split()]
        return mock.patch.dict(table._rows, {op: Row(op, wrong(table[op].rule)) for op in names})

    return apply


def arguments(ops: str, **changes: Callable[[Any], Any]) -> Patch:
    """Let the rules have other arguments: by the parameter's name, what becomes of its value."""

    def wrong(right: Rule) -> Rule:
        signature = inspect.signature(right)
        if unknown := set(changes) - set(signature.parameters):
            raise TypeError(f"the rule of {ops} takes no {', '.join(unknown)}")

        def rule(b: Any, *given: Any) -> Any:
            bound = signature.bind(b, *given)
            bound.apply_defaults()
            for name, change in changes.items():
                bound.arguments[name] = change(bound.arguments[name])
            return right(*bound.args, **bound.kwargs)

        return rule

    return expansion(ops, wrong)


def primitives(ops: str, **wrong: Rule) -> Patch:
    """Let the rules of ATen ops build something else for some primitives.

    ``sub=lambda b, x, y: b.sub(y, x)`` is given the right builder, the operands and the attributes by name.
    """

    def wrongly(right: Rule) -> Rule:
        from torchstone.compiler.transforms.rules import Expander

        class Crooked(Expander):
            def emit(self, name: str, *operands: Any, **attributes: Any) -> Any:
                if name not in wrong:
                    return super().emit(name, *operands, **attributes)
                straight = Expander(self.ops, self.op)
                out = wrong[name](straight, *operands, **attributes)
                return out if isinstance(out, tuple) else (out,)

        return lambda b, *given, **attributes: right(Crooked(b.ops, b.op), *given, **attributes)

    return expansion(ops, wrongly)


# FlatIR -> linalg


def scalar(table: str, op: str, wrong: Mutation) -> Patch:
    """Replace a row of ``FLOAT``, ``INT`` or ``COMPLEX``: how a primitive is computed on one element."""

    def apply() -> AbstractContextManager[Any]:
        from torchstone.compiler.lowering.linalg import complexes, elementwise

        rules: Any = complexes.RULES if table == "COMPLEX" else getattr(elementwise, table)
        return mock.patch.dict(rules, {op: wrong(rules[op])})

    return apply


def arith(name: str, *order: int) -> Mutation:
    """The op of MLIR's arith or math dialects, on operands in this order."""

    def wrong(right: Rule) -> Rule:
        from torchstone.compiler import mlir

        build = getattr(mlir.arith, name, None) or getattr(mlir.math, name)
        return lambda scope, *operands: build(*(operands[at] for at in order))

    return wrong

"""A rule of the fuzzer for one op: how to draw its arguments, and what rounding does to it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from torchstone.conformance.oracle.op_traits.undetermined import DRAWS_RANDOM_NUMBERS
from torchstone.conformance.program.call_targets import lookup
from torchstone.conformance.sources import functions, opinfo
from torchstone.fuzz.generator.draft import Arguments, CallRejected, Draft, DraftValue
from torchstone.fuzz.generator.other_arguments import OTHER, with_others
from torchstone.fuzz.generator.values import STORED

IN_PLACE, IN_PLACE_ON_VIEW = 20, 60
"""Of a hundred calls of an op that has an in-place form, how many are of that form: first, and beside a view."""


@dataclass(frozen=True)
class OpRule:
    """How the fuzzer calls one op of PyTorch's op database.

    ``op`` is its name there, variant included; ``target`` the public name that is called; ``draw`` draws the arguments.
    ``jumps``: the result is no continuous function of the operands. ``exact``: no rounding happens in it;
    ``cuts``: it jumps in the complex plane. ``inplace`` is its form that writes the result to the first operand, where
    there is one; an ``elementwise`` one may be given that operand twice. ``is_view``: the result is part of an operand.
    ``takes_bodies``: it is control flow, which is given programs.
    """

    op: str
    target: str
    draw: Callable[[Draft], Arguments]
    dtypes: frozenset[torch.dtype]
    jumps: bool
    exact: bool
    cuts: bool
    inplace: str | None = None
    elementwise: bool = False
    is_view: bool = False
    takes_bodies: bool = False

    @property
    def assigns(self) -> bool:
        """Whether every call writes to its first operand."""
        return self.inplace == self.target

    def add_to(self, draft: Draft) -> None:
        """Append a call of this op to the program; raises CallRejected when the drawn call does not do."""
        draft.op, draft.needs_exact, draft.dtypes = self.op, self.jumps, self.dtypes
        percent = IN_PLACE_ON_VIEW if draft.has_views else IN_PLACE
        draft.writes = self.inplace is not None and (self.assigns or draft.choices.chance(percent))
        writes = draft.writes
        arguments = self.draw(draft)
        takes = bool(arguments.args) and isinstance(arguments.args[0], DraftValue)
        target = self.inplace if self.inplace and writes and takes else self.target
        if not self.takes_bodies and draft.choices.chance(OTHER):
            others = with_others(draft.choices, target, arguments)
            with contextlib.suppress(CallRejected):
                if others is not None:
                    draft.call(target, others, self.exact, self.cuts, self.elementwise)
                    return
        draft.call(target, arguments, self.exact, self.cuts, self.elementwise)


def op_database() -> dict[str, Any]:
    """Return PyTorch's op database, and what it lacks, by name, variants as ``name.variant``."""
    return _database()[0]


@functools.cache
def _database() -> tuple[dict[str, Any], frozenset[str]]:
    """The database, and the names of its elementwise ops."""
    from torchstone.compiler._torch.op_database import BinaryUfuncInfo, UnaryUfuncInfo

    infos = {**opinfo.DATABASE.infos, **functions.DATABASE.infos}
    return infos, frozenset(name for name, info in infos.items() if isinstance(info, UnaryUfuncInfo | BinaryUfuncInfo))


def public_target(name: str) -> str | None:
    """Return the public dotted name of an op of the database, or None if it has none that a program may call."""
    for candidate in (f"torch.{name}", f"torch.Tensor.{name}", name):
        if lookup(candidate) is not None:
            return candidate
    return None


def rules_for(op: str, draw: Callable[[Draft], Arguments], target: str | None = None) -> Iterator[OpRule]:
    """Yield the rule of an op, if this PyTorch has it under a public name: dtypes from the database."""
    from torchstone.fuzz.generator import rounding

    info = op_database().get(op)
    target = target or (public_target(info.name) if info else None)
    if info is None or target is None:
        return
    dtypes = frozenset(info.supported_dtypes("cpu"))
    exact = rounding.exact(op, info.name)
    jumps = rounding.jumps(op, info.name) or not (info.supports_autograd or exact)
    is_view = rounding.is_view(info.name)
    inplace = None if is_view else _inplace_form(info.name)  # a view's changes no number, but the tensor's own shape
    elementwise = op in _database()[1]
    if exact and not elementwise:
        dtypes |= frozenset(STORED)  # the database does not say so, but eager moves these, too, or refuses the call
    yield OpRule(op, target, draw, dtypes, jumps, exact, rounding.cuts(op, info.name), inplace, elementwise, is_view)


def _inplace_form(name: str) -> str | None:
    """The public name of an op's in-place form, where it has one."""
    if name in DRAWS_RANDOM_NUMBERS.ops:
        return None
    return next((form for form in (f"torch.Tensor.{name}_", f"torch.{name}_") if lookup(form) is not None), None)

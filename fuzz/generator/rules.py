"""A rule of the fuzzer for one op: how to draw its arguments, and what rounding does to it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from torchstone.conformance.program.call_targets import lookup
from torchstone.fuzz.generator.draft import Arguments, Draft


@dataclass(frozen=True)
class OpRule:
    """How the fuzzer calls one op of PyTorch's op database.

    ``op`` is its name there, variant included; ``target`` the public name that is called; ``draw`` draws the arguments.
    ``jumps``: the result is no continuous function of the operands. ``exact``: no rounding happens in it;
    ``cuts``: it jumps in the complex plane.
    """

    op: str
    target: str
    draw: Callable[[Draft], Arguments]
    dtypes: frozenset[torch.dtype]
    jumps: bool
    exact: bool
    cuts: bool

    def add_to(self, draft: Draft) -> None:
        """Append a call of this op to the program; raises Refused when the drawn call does not do."""
        draft.needs_exact, draft.dtypes = self.jumps, self.dtypes
        draft.call(self.target, self.draw(draft), self.exact, self.cuts)


@functools.cache
def op_database() -> dict[str, Any]:
    """Return PyTorch's op database by name, variants as ``name.variant``."""
    from torchstone.compiler._torch.op_database import op_db

    return {info.name + (f".{info.variant_test_name}" if info.variant_test_name else ""): info for info in op_db}


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
    jumps = rounding.jumps(op, info.name) or not (info.supports_autograd or rounding.exact(op, info.name))
    yield OpRule(op, target, draw, dtypes, jumps, rounding.exact(op, info.name), rounding.cuts(op, info.name))

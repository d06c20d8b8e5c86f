"""Run the primitives that decide whether a run goes on: those that bind a size, and those that check a guard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torchstone.compiler.ir import Expr, Operation
from torchstone.compiler.ir.dims import evaluate
from torchstone.compiler.ir.sizes import BIND
from torchstone.compiler.ops import PRIMITIVES, control

_measured: ContextVar[list[tuple[Operation, Any]] | None] = ContextVar("measured", default=None)


def run_control(op: Operation, tensors: Sequence[Any], bound: dict[str, int]) -> None:
    """Run a primitive of ``control.EFFECTS``; ``flat.bind`` gives a size a value that has none. Or GuardError."""
    if op.name == BIND and str(size := op.attributes["size"]).isidentifier():
        bound.setdefault(str(size), int(tensors[0]))
    concrete = {k: evaluate(v, bound) if isinstance(v, Expr) else v for k, v in op.attributes.items()}
    if (
        op.name == "flat.specialize"
        and (found := _measured.get()) is not None
        and control.is_rounded(*tensors, **concrete)
    ):
        found.append((op, tensors[0].item()))
        return
    PRIMITIVES[op.name].evaluate(*tensors, **concrete)


@contextmanager
def measuring() -> Iterator[list[tuple[Operation, Any]]]:
    """In the block, note the floats that come out otherwise than a program was specialized to, and let runs go on."""
    token = _measured.set(found := [])
    try:
        yield found
    finally:
        _measured.reset(token)

"""Conditions on sizes that PyTorch takes for granted while it traces, and the places in the program they come from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sympy

from torchstone.compiler._torch.symbolic_shapes import ShapeEnv, SLoc, guards_located
from torchstone.compiler.capture.program import Guard
from torchstone.compiler.capture.symbolic.sizes import holds
from torchstone.compiler.diagnostics import origin
from torchstone.compiler.ir import Location


@contextmanager
def placed(location: Callable[[], Location]) -> Iterator[None]:
    """In the block, what PyTorch takes for granted is due to the op and the line that ``location`` tells."""
    with guards_located(lambda framework_loc=None: due_to(location(), framework_loc)):
        yield


def due_to(location: Location, framework_loc: str | None = None) -> SLoc:
    """What PyTorch keeps beside a condition: the ops that it comes from, and the user's line."""
    return SLoc(framework_loc or "", origin(location))  # PyTorch 2.11 prints no None


def guards_of(shape_env: ShapeEnv, renamed: Mapping[str, str], without: Collection[str] = ()) -> list[Guard]:
    """Return the conditions on sizes that PyTorch took for granted while it traced; none on the sizes ``without``.

    ``renamed`` has the graph's name of each of PyTorch's symbols.
    """
    back = {new: old for old, new in renamed.items()}

    def make(guard: Any, where: str) -> Guard:
        ours = {s: renamed.get(str(s), str(s)) for s in guard.free_symbols}
        names = sorted(ours.values())
        shown = guard.xreplace({s: sympy.Symbol(name, **s.assumptions0) for s, name in ours.items()})
        text = str(shown)
        if isinstance(shown, sympy.Rel):
            text = f"{shown.lhs} {shown.rel_op} {shown.rhs}"  # type: ignore[attr-defined]

        def check(values: Mapping[str, int]) -> str | None:
            if holds(guard, {back[name]: size for name, size in values.items() if name in back}):
                return None
            sizes = ", ".join(f"{name}={values[name]}" for name in names if name in values)
            return "\n".join(filter(None, (f"sizes {sizes}: {text} must hold", where)))

        return check

    # Symbols that PyTorch found equal are one symbol in the graph, where binding the arguments checks them.
    conditions: dict[Any, str] = {}
    for guard in shape_env.guards:
        conditions.setdefault(shape_env.replace(guard.expr), guard.sloc.maybe_user_loc or "")
    return [
        make(condition, where)
        for condition, where in conditions.items()
        if condition != sympy.true and {renamed.get(str(s), "") for s in condition.free_symbols}.isdisjoint(without)
    ]

"""Writes the reference of the primitives from their rows: ``python docs/reference.py > docs/primitives.md``."""

from __future__ import annotations

import inspect
from types import ModuleType

from torchstone.compiler import ops
from torchstone.compiler.ops import PRIMITIVES, Primitive


def kinds() -> list[ModuleType]:
    """Return the modules that define primitives, in the order of their first one."""
    modules = [m for m in vars(ops).values() if inspect.ismodule(m) and hasattr(m, "ROWS")]
    order = list(PRIMITIVES)
    return sorted(modules, key=lambda m: order.index(m.ROWS[0].op))


def operands(row: Primitive) -> str:
    return "any number" if row.arity is None else str(row.arity)


def table(rows: tuple[Primitive, ...]) -> list[str]:
    lines = ["| primitive | operands | attributes | meaning |", "| --- | --- | --- | --- |"]
    for row in rows:
        attributes = ", ".join(f"`{name}`" for name in row.attributes)
        lines.append(f"| `{row.op}` | {operands(row)} | {attributes} | {row.doc.replace('|', chr(92) + '|')} |")
    return lines


def page() -> str:
    lines = [
        "# The primitives",
        "",
        f"FlatIR has {len(PRIMITIVES)} primitives. This page is made from their rows in `compiler/ops/` by "
        "`docs/reference.py`.",
    ]
    for module in kinds():
        title = module.__name__.rpartition(".")[2].capitalize()
        about = inspect.getdoc(module) or ""
        lines += ["", f"## {title}", "", about, "", *table(module.ROWS)]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    print(page(), end="")

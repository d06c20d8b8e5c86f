"""Which module of the package imports which: no cycles, and a held number of imports inside functions.

import-linter holds the arrows between rooms and layers. It does not look for cycles of modules, nor does it tell an
import at the top of a module (eager) from one in a function (lazy). A lazy import breaks a cycle only for the
interpreter: the two modules still cannot be understood, tested or moved apart.

``main`` (which ``make imports`` runs) prints what breaks a rule and returns 1.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.rules import ROOT, sources

# Imports inside functions, at most this many a room: the command line starts fast by them, the compiler's text tools do
# without PyTorch and without MLIR, and workers import what a case needs. A new one needs such a reason; lower the
# number with each that goes.
MOST_LAZY = {"cli": 157, "compiler": 23, "conformance": 97, "fuzz": 10, "reducers": 0, "reports": 0, "torchstone": 3}


@dataclass(frozen=True, slots=True)
class Import:
    """An import of one module of the package by another. ``lazy`` ones stand in a function."""

    importer: str
    imported: str
    line: int
    lazy: bool

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} -> {self.imported}{' (lazy)' if self.lazy else ''}"


def imports(root: Path = ROOT) -> list[Import]:
    """Return the imports among the modules of a tree, except those under ``if TYPE_CHECKING``."""
    modules = dict(sources(root))
    out: list[Import] = []
    for name, path in modules.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for node, lazy in _import_nodes(ast.parse(path.read_text()), lazy=False):
            for imported in dict.fromkeys(_named(node, package, modules)):
                if imported != name:
                    out.append(Import(name, imported, node.lineno, lazy))
    return out


def _import_nodes(node: ast.AST, *, lazy: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, lazy
        yield from _import_nodes(child, lazy=lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def _named(node: ast.Import | ast.ImportFrom, package: str, modules: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules of the package that a statement names; a relative import counts from ``package``."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        source = ".".join([*above, *([node.module] if node.module else [])])
        names = [f"{source}.{alias.name}" for alias in node.names]
    for name in names:
        while name and name not in modules:
            name = name.rpartition(".")[0]
        if name:
            yield name


def cycles(found: Iterable[Import]) -> list[list[str]]:
    """Return each set of modules that import one another, by Tarjan's algorithm, in alphabetical order."""
    graph: dict[str, set[str]] = {}
    for one in found:
        graph.setdefault(one.importer, set()).add(one.imported)
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    out: list[list[str]] = []

    def visit(module: str) -> None:
        number[module] = low[module] = len(number)
        stack.append(module)
        for imported in graph.get(module, ()):
            if imported not in number:
                visit(imported)
                low[module] = min(low[module], low[imported])
            elif imported in stack:
                low[module] = min(low[module], number[imported])
        if low[module] == number[module]:
            position = stack.index(module)
            component = sorted(stack[position:])
            del stack[position:]
            if len(component) > 1:
                out.append(component)

    for module in sorted(graph):
        if module not in number:
            visit(module)
    return sorted(out)


def lazy_counts(found: Iterable[Import]) -> dict[str, int]:
    """Return how many lazy imports each room has; ``torchstone`` is the public API at the top."""
    counts = dict.fromkeys(MOST_LAZY, 0)
    for one in found:
        if one.lazy:
            below = one.importer.removeprefix("torchstone.").split(".")[0]
            counts[below if below in counts else "torchstone"] += 1
    return counts


def broken(root: Path = ROOT) -> list[str]:
    """Return a line for each rule that the tree breaks."""
    found = imports(root)
    lines = []
    for component in cycles(found):
        inside = [str(i) for i in found if i.importer in component and i.imported in component]
        lines.append("\n  ".join(["these modules import one another:", *inside]))
    for room, count in lazy_counts(found).items():
        if count > MOST_LAZY[room]:
            lines.append(f"{room} has {count} imports inside functions, and {MOST_LAZY[room]} are held")
    return lines


def main() -> int:
    lines = broken()
    lazy = sum(lazy_counts(imports()).values())
    print("\n".join(lines) or f"no import cycles; {lazy} imports inside functions")
    return 1 if lines else 0

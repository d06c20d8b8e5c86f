"""Rules of functions and classes: how long a function is, what it may catch, and that a name is of one class."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

from tests.rules import ROOT, rooms, sources

MOST_FUNCTION_LINES = 60
# Handlers in the compiler that take any exception for somebody else's. Each says on its line what is run in it that may
# raise anything; ``raise_bug`` lets those through that the compiler's own code raised.
MOST_BROAD_HANDLERS = 18

# What decides a verdict is the same on every machine and in every run: it does not look at how long anything takes.
CLOCKLESS = (
    *("conformance/oracle", "conformance/execution", "conformance/variants", "conformance/sources"),
    *("conformance/program", "conformance/selection", "conformance/backends", "reducers", "fuzz/generator"),
)
CLOCKS = frozenset(
    {"time", "datetime", "timeit", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time",
     "process_time_ns", "thread_time", "thread_time_ns", "clock_gettime", "getrusage", "elapsed_time", "Timer"}
)  # fmt: skip
CLOCKS_OF_REPORTS = {
    "conformance/execution/run_case.py": "run_case",  # how long a case took
    "reducers/failure.py": "reducing",  # how long a reduction took
    "reducers/script_run.py": "RunningScript",  # when to give up a script: that it hangs is then what it shows
    "reducers/mlir/trial.py": "_listen",  # when to give up a trial: that it hangs is then the failure
    "reducers/engine.py": "_Search",  # when to give up a search: what is found until then fails as the case does
}
"""Where a clock is read for people, or to end a search: the file, and the function or class."""

# The simulator has TensorRT's own class names.
SHARED_NAMES = frozenset({"Builder"})

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _functions(root: Path) -> Iterator[tuple[Path, Function]]:
    for path in [path for _, path in sources(root)] + sorted((root / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, Function):
                yield path, node


def _lines(function: Function) -> int:
    """Return how many lines a function has from its ``def`` on, its docstring left out."""
    first = function.body[0]
    is_text = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    docstring = (first.end_lineno or first.lineno) - first.lineno + 1 if is_text else 0
    return (function.end_lineno or function.lineno) - function.lineno + 1 - docstring


def long_functions(root: Path = ROOT) -> list[str]:
    """Return the functions of more lines than one idea takes, tests included."""
    return [
        f"{path.relative_to(root)}:{function.lineno} {function.name} has {lines} lines"
        for path, function in _functions(root)
        if (lines := _lines(function)) > MOST_FUNCTION_LINES
    ]


def broad_handlers(root: Path = ROOT) -> list[tuple[str, bool]]:
    """Return where the compiler takes any exception, by ``except`` or ``suppress``, and whether the line says why.

    A handler that ends by raising the exception again is none.
    """
    found: list[tuple[str, bool]] = []
    for path in sorted(rooms(root)["torchstone.compiler"].rglob("*.py")):
        text = path.read_text()
        lines = text.split("\n")
        for node in ast.walk(ast.parse(text)):
            if _catches_anything(node):
                has_reason = re.search(r":\s+# \w", lines[node.lineno - 1]) is not None
                found.append((f"{path.relative_to(root)}:{node.lineno}", has_reason))
    return found


def _catches_anything(node: ast.AST) -> TypeGuard[ast.ExceptHandler | ast.Call]:
    if isinstance(node, ast.ExceptHandler):
        return _is_broad(node.type) and not _raises_again(node)
    return isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress") and any(map(_is_broad, node.args))


def _is_broad(kind: ast.expr | None) -> bool:
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(k is None or (isinstance(k, ast.Name) and k.id in ("Exception", "BaseException")) for k in kinds)


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def clocks(root: Path = ROOT) -> list[str]:
    """Return where what decides a verdict reads a clock."""
    found = []
    for folder in CLOCKLESS:
        for path in sorted((root / folder).rglob("*.py")):
            name = str(path.relative_to(root))
            tree = ast.parse(path.read_text())
            spared = {
                inner
                for node in tree.body
                if getattr(node, "name", "") == CLOCKS_OF_REPORTS.get(name)
                for inner in ast.walk(node)
            }
            if name in CLOCKS_OF_REPORTS:  # the import is not the reading
                spared |= {node for node in tree.body if isinstance(node, ast.Import)}
            found += [f"{name}:{node.lineno}" for node in ast.walk(tree) if node not in spared and _reads_clock(node)]
    return found


def _reads_clock(node: ast.AST) -> TypeGuard[ast.stmt | ast.expr]:
    if isinstance(node, ast.Import):
        return any(alias.name.partition(".")[0] in CLOCKS for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return node.module in CLOCKS or any(alias.name in CLOCKS for alias in node.names)
    return isinstance(node, ast.Attribute) and node.attr in CLOCKS


def names_of_several(root: Path = ROOT) -> list[str]:
    """Return the public classes of the compiler whose name another one has too, each with where they are."""
    places: dict[str, list[str]] = {}
    for path in sorted(rooms(root)["torchstone.compiler"].rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name not in SHARED_NAMES:
                places.setdefault(node.name, []).append(str(path.relative_to(root)))
    return [f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) > 1]

"""What PyTorch does to its composite ops for each program it decomposes, done once for all of them.

A compiler that takes decomposed programs has PyTorch list its composite ops (a second) and give each of some five
hundred its kernels for the time of the decomposition (a sixth of one): most of what a small program costs. Both come
out the same every time, so they are kept. Nothing else changes: a program is decomposed by the same kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from types import FunctionType
from typing import Any

from torchstone.compiler._torch import decompositions
from torchstone.compiler._torch.operators import forget_kernels

TABLES = 4
Override = Callable[[Mapping[Any, Any]], AbstractContextManager[None]]


@contextmanager
def composite_ops_known() -> Iterator[None]:
    """Keep what decomposing does to PyTorch's composite ops from one program to the next."""
    global _listed, _overridden
    list_ops, override = decompositions.composite_ops()
    _listed, _overridden = _listed or cache(list_ops), _overridden or kept(override)
    with decompositions.composite_ops_replaced(_listed, _overridden):
        yield


_listed: Any = None
_overridden: Any = None


def kept(override: Override) -> Override:
    """A context manager that gives ops the kernels that ``override`` gives them, and asks it once a table.

    It is asked again where an op's kernels are others than they were before it was asked, and for a table that is none
    of the last few.
    """
    from torchstone.compiler._torch.fake_tensors import rules as fakes

    seen: dict[frozenset[tuple[Any, Any]], tuple[dict[Any, Any], dict[Any, Any], dict[Any, Any]]] = {}

    @contextmanager
    def overridden(table: Mapping[Any, Any]) -> Iterator[None]:
        key = frozenset((op, _code(decomposition)) for op, decomposition in table.items())
        before = {op: dict(op.py_kernels) for op in table}
        if key not in seen or seen[key][0] != before or any(op in fakes for op in table):
            with override(table):
                kernels = {op: dict(op.py_kernels) for op in table}
                while len(seen) >= TABLES:
                    del seen[next(iter(seen))]
                seen[key] = before, kernels, {op: fakes[op] for op in table if op in fakes}
                yield
            return
        _, kernels, rules = seen[key]
        try:
            for op, its in kernels.items():
                op.py_kernels.update(its)
                forget_kernels(op)
            fakes.update(rules)
            yield
        finally:
            for op, its in before.items():
                op.py_kernels.clear()
                op.py_kernels.update(its)
                forget_kernels(op)
                fakes.pop(op, None)

    return overridden


def _code(decomposition: Any) -> Any:
    """What two decompositions have in common that do the same.

    PyTorch defines the function anew that calls an op's own kernel, for each op of each table.
    """
    if isinstance(decomposition, partial) and isinstance(decomposition.func, FunctionType):
        func, given = decomposition.func, decomposition.keywords
        if func.__closure__ is None and func.__defaults__ is None and list(given) == ["kernel"]:
            return func.__code__, given["kernel"]
    return decomposition

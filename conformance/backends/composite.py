"""What PyTorch does to its composite ops for each program it decomposes, done once for all of them.

A compiler that takes decomposed programs has PyTorch list its composite ops, and give each of some five hundred its
kernels for the time of the decomposition. Each takes 0.07 s of the processor: more than half of what a small program
costs on torch-mlir. Both come out the same every time, so they are kept. Nothing else changes: a program is decomposed
by the same kernels.

This patches PyTorch under the compiler on trial, so no failure rests on it: a case that fails is run again without the
patch, and the second verdict counts (``run_case``). ``TORCHSTONE_PATCH_PYTORCH=0`` turns it off altogether.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from types import FunctionType
from typing import Any

from torchstone.compiler._torch import decompositions
from torchstone.compiler._torch.operators import forget_kernels

VARIABLE = "TORCHSTONE_PATCH_PYTORCH"
TABLES = 4
Override = Callable[[Mapping[Any, Any]], AbstractContextManager[None]]


@contextmanager
def composite_ops_known() -> Iterator[None]:
    """Keep what decomposing does to PyTorch's composite ops from one program to the next.

    Does nothing where the patch is off, and on a release of PyTorch that lacks what is patched.
    """
    global _listed, _overridden
    off = _off or os.environ.get(VARIABLE) == "0"
    found = None if off else decompositions.composite_ops()
    if found is None:
        yield
        return
    _patched_for.add(_backend)
    list_ops, override = found
    _listed, _overridden = _listed or cache(list_ops), _overridden or kept(override)
    with decompositions.composite_ops_replaced(_listed, _overridden):
        yield


_listed: Any = None
_overridden: Any = None
_patched_for: set[str] = set()
_backend = ""
_off = False


def has_patched(backend: str = "") -> bool:
    """Whether PyTorch has been patched in this process for a backend, by its name, and would be again."""
    return backend in _patched_for and not _off


@contextmanager
def on_trial(backend: str) -> Iterator[None]:
    """Say for which backend PyTorch is patched, if it is, in the block."""
    global _backend
    before, _backend = _backend, backend
    try:
        yield
    finally:
        _backend = before


@contextmanager
def unpatched() -> Iterator[None]:
    """Leave PyTorch as it is, whatever is decomposed in the block."""
    global _off
    before, _off = _off, True
    try:
        yield
    finally:
        _off = before


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

"""Putting a mutation into the running compiler, and taking it out again.

The mutated module is compiled, and the code of each function that it changes is put in place of the code that this
function has. Closures, decorators, defaults and the rows of tables hold the function itself, and so need no change.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, TypeAlias

from torchstone.conformance.execution.live_functions import live_objects
from torchstone.conformance.mutants.syntactic.mutation import REACHED, Mutation
from torchstone.conformance.mutants.syntactic.population import FOLDERS, ROOT

PACKAGE = "torchstone.compiler"
_Place: TypeAlias = "tuple[str, str, int, tuple[Any, ...]]"


class NotApplicable(Exception):
    """The mutation cannot be put into the running compiler: no function that lives has the code."""


class LiveCode:
    """The functions of the compiler that live in this process, and what it has cached.

    Looked up once: to walk over all objects takes a tenth of a second. Modules that are imported later are not in it.
    """

    def __init__(self) -> None:
        prefixes = tuple(f"{ROOT / folder}/" for folder in FOLDERS)
        packages = tuple(f"{PACKAGE}.{folder}" for folder in FOLDERS)
        cached = type(lru_cache(_place))
        self.functions: dict[_Place, list[FunctionType]] = {}
        self.caches: list[Any] = []
        for one in live_objects():
            kind = type(one)  # not isinstance, which asks a proxy what it stands for
            if kind is FunctionType and one.__code__.co_filename.startswith(prefixes):
                self.functions.setdefault(_place(one.__code__), []).append(one)
            elif kind is cached and str(one.__module__).startswith(packages):
                self.caches.append(one)

    def forget(self) -> None:
        """Empty the compiler's caches: what they hold was made by other code."""
        from torchstone.compiler.runtime.cpu.cache import CACHE

        for cache in self.caches:
            cache.cache_clear()
        CACHE.clear()

    def swaps(self, mutation: Mutation, source: str) -> list[tuple[FunctionType, CodeType]]:
        """Each function that a mutation changes, with the code that it has to get. NotApplicable if there is none."""
        module = module_of(mutation)
        file = str(module.__file__)
        right = compile(source, file, "exec", dont_inherit=True)
        wrong = compile(mutation.instrumented(source), file, "exec", dont_inherit=True)
        out = [
            (function, other)
            for one, other in _changed(right, wrong)
            for function in self.functions.get(_place(one), ())
            if len(function.__code__.co_freevars) == len(other.co_freevars)
        ]
        if not out:
            raise NotApplicable(f"{mutation.path}:{mutation.line}: no function that lives has the code of this line")
        return out

    @contextmanager
    def mutated(self, mutation: Mutation, source: str, reached: Callable[[], Any]) -> Iterator[None]:
        """Have the mutation in the compiler for as long as the context lasts, with its caches empty before and after.

        ``reached`` is called each time that it takes effect. NotApplicable as in ``swaps``.
        """
        swaps = self.swaps(mutation, source)
        before = [(function, function.__code__) for function, _ in swaps]
        names = vars(module_of(mutation))

        def mark() -> bool:
            reached()
            return True

        self.forget()
        names[REACHED] = mark
        try:
            for function, code in swaps:
                function.__code__ = code
            yield
        finally:
            for function, code in before:
                function.__code__ = code
            del names[REACHED]
            self.forget()


def all_modules() -> Iterator[str]:
    """The names of the modules that mutants are drawn from."""
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            parts = file.relative_to(ROOT).with_suffix("").parts
            yield ".".join((PACKAGE, *(part for part in parts if part != "__init__")))


def import_all() -> None:
    """Import every module that mutants are drawn from: what is imported later would not be mutated."""
    for name in all_modules():
        importlib.import_module(name)


def module_of(mutation: Mutation) -> Any:
    """The module that a mutation is of, imported."""
    parts = mutation.path.removesuffix(".py").removesuffix("/__init__").split("/")
    name = ".".join((PACKAGE, *parts))
    return sys.modules.get(name) or importlib.import_module(name)


def _changed(right: CodeType, wrong: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The code objects that differ, pairwise, the functions around the change among them."""
    for one, other in zip(*map(_inside, (right, wrong)), strict=False):
        if one != other and one.co_name == other.co_name:
            yield one, other
            if len(_inside(one)) == len(_inside(other)):
                yield from _changed(one, other)


def _inside(code: CodeType) -> list[CodeType]:
    return [one for one in code.co_consts if isinstance(one, CodeType)]


def _place(code: CodeType) -> _Place:
    """Where a code object stands in the source."""
    return code.co_filename, code.co_qualname, code.co_firstlineno, tuple(code.co_positions())

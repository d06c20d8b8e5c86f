"""What a function's code names: the globals it uses, the attributes it may read. What is not named is not reached."""

from __future__ import annotations

import dis
import functools
import os
import sys
import sysconfig
import types
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

_ROOMS = Path(__file__).resolve().parents[3]
# Code that is not looked into: Python's own, what was installed, PyTorch, and torchstone, wherever its rooms are.
_INSTALLED = tuple(
    str(path) + os.sep
    for path in {
        *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        Path(torch.__file__).parent,
        *(_ROOMS / room for room in ("torchstone", "compiler", "conformance", "fuzz", "reducers", "reports")),
    }
)
_SITES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))  # of whatever installation
_GLOBAL_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_GLOBAL_STORES = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_NAME"})
_ATTRIBUTE_LOADS = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_ATTRIBUTE_STORES = frozenset({"STORE_ATTR", "DELETE_ATTR"})
# With one of these a program may get at an attribute that it does not name.
_ANY_NAME = frozenset(
    {
        "getattr", "setattr", "delattr", "vars", "dir", "attrgetter", "methodcaller", "getmembers", "asdict", "astuple",
        "__dict__", "__getattribute__", "__getattr__", "__setattr__", "__delattr__",
    }
)  # fmt: skip
# And with one of these at the globals of a module.
_RUNNING = frozenset({"eval", "exec"})
_NAMESPACES = frozenset({"globals", "__import__", *_RUNNING})


@dataclass(frozen=True, slots=True)
class CodeNames:
    """What some code names. ``any_attribute`` says that it may get at an attribute by a name that it computes.

    ``identity`` says that it asks whether two objects are one, of which neither is a constant.
    ``namespaces`` says that it may get at the globals of modules past their names, ``any_global`` that it computes such
    a name of its own module.
    """

    global_loads: frozenset[str] = frozenset()
    global_stores: frozenset[str] = frozenset()
    loads: frozenset[str] = frozenset()
    stores: frozenset[str] = frozenset()
    imports: frozenset[str] = frozenset()
    any_attribute: bool = False
    identity: bool = False
    namespaces: bool = False
    any_global: bool = False

    def __or__(self, other: CodeNames) -> CodeNames:
        return CodeNames(
            self.global_loads | other.global_loads,
            self.global_stores | other.global_stores,
            self.loads | other.loads,
            self.stores | other.stores,
            self.imports | other.imports,
            self.any_attribute or other.any_attribute,
            self.identity or other.identity,
            self.namespaces or other.namespaces,
            self.any_global or other.any_global,
        )


def is_user_code(code: types.CodeType) -> bool:
    """Say whether code is the user's own, and so may use globals of the user's."""
    return _is_user_file(code.co_filename)


def is_user_function(function: types.FunctionType) -> bool:
    """Say whether a function is the user's own; one made of a text, as a dataclass's are, belongs to its globals."""
    file = function.__globals__.get("__file__") if function.__code__.co_filename.startswith("<") else None
    return _is_user_file(file) if isinstance(file, str) else is_user_code(function.__code__)


@functools.lru_cache(maxsize=4096)
def _is_user_file(file: str) -> bool:
    installed = file.startswith(_INSTALLED) or any(site in file for site in _SITES)
    return not installed and not file.startswith("<frozen")


def is_user_class(cls: type) -> bool:
    """Say whether a class is the user's own, by the file of its module or else by the code of its methods."""
    known = _is_user_class.get(cls)
    if known is None:
        file = getattr(sys.modules.get(cls.__module__), "__file__", None)
        if file is not None:
            known = _is_user_file(file)
        else:
            unknown = str(cls.__module__).partition(".")[0] not in sys.modules  # of code that was run from a text
            functions = (m for m in vars(cls).values() if isinstance(m, types.FunctionType))
            known = unknown or any(is_user_function(function) for function in functions)
        _is_user_class[cls] = known = known or cls.__module__ == "__main__"
    return known


_is_user_class: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def is_user_module(module: types.ModuleType) -> bool:
    """Say whether a module is the user's own."""
    file = getattr(module, "__file__", None)
    return module.__name__ == "__main__" or (file is not None and _is_user_file(file))


@functools.lru_cache(maxsize=4096)
def names_in(code: types.CodeType) -> CodeNames:
    """Return what code names, the functions that it makes included."""
    global_loads, global_stores, loads, stores, imports = set(), set(), set(), set(), set()
    identity = False
    for one in _nested(code):
        before: list[str] = ["", ""]
        for instruction in dis.get_instructions(one):
            name = instruction.opname
            if name == "IS_OP" or name == "CONTAINS_OP":  # ``x is None``, ``"key" in d``
                identity = identity or before[-1 if name == "IS_OP" else -2] != "LOAD_CONST"
            before.append(name)
            if name in _GLOBAL_LOADS:
                global_loads.add(instruction.argval)
            elif name in _GLOBAL_STORES:
                global_stores.add(instruction.argval)
            elif name in _ATTRIBUTE_LOADS:
                loads.add(instruction.argval)
            elif name in _ATTRIBUTE_STORES:
                stores.add(instruction.argval)
            elif name in ("IMPORT_NAME", "IMPORT_FROM"):
                (imports if name == "IMPORT_NAME" else loads).add(instruction.argval)
        loads.update(text for text in _texts(one.co_consts) if text.isidentifier())
    named = [frozenset(names) for names in (global_loads, global_stores, loads, stores)]
    every = loads | global_loads
    return CodeNames(
        *named,
        imports=frozenset(imports),
        identity=identity,
        any_attribute=not (_ANY_NAME.isdisjoint(every) and _RUNNING.isdisjoint(global_loads)),
        namespaces=not _NAMESPACES.isdisjoint(global_loads)
        or "import_module" in every
        or ("modules" in every and "sys" in every | imports),
        any_global=not _RUNNING.isdisjoint(global_loads) or any(_computes_global(one) for one in _nested(code)),
    )


def _computes_global(code: types.CodeType) -> bool:
    """Say whether ``globals()`` is used otherwise than as ``globals()["name"]``."""
    found = [i for i in dis.get_instructions(code) if i.opname not in ("PRECALL", "CACHE", "PUSH_NULL")]
    for place, instruction in enumerate(found):
        if instruction.opname in _GLOBAL_LOADS and instruction.argval == "globals":
            after = found[place + 2 : place + 4]
            if not (after and after[0].opname == "LOAD_CONST" and isinstance(after[0].argval, str)):
                return True
    return False


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _nested(constant)


def _texts(constants: tuple[object, ...]) -> Iterator[str]:
    """The strings among constants: hasattr and match statements name attributes in them."""
    for constant in constants:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, tuple):
            yield from _texts(constant)

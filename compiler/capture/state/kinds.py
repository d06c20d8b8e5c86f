"""How each kind of Python object is taken apart into entries, and given others.

An entry has a key: an index, a dict's key, the name of an attribute. Every kind answers three questions: what the
entries of an object are, how they are written, and how an entry reads in a message (``m.cache['k'][2]``). Of some
objects only the entries count that a program can name (``only``): nobody looks at the thousand others of a module.
"""

from __future__ import annotations

import array
import collections
import enum
import functools
import gc
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from torchstone.compiler._torch.nn_modules import DERIVED, TENSOR_DICTS, put_tensor
from torchstone.compiler.capture.state.attributes import (
    MISSING,
    Entries,
    Only,
    attributes_of,
    of_instance,
    of_tensor,
    slots_of,
    write_instance,
    write_tensor,
)
from torchstone.compiler.capture.state.code import is_user_class
from torchstone.compiler.capture.state.containers import (
    of_deque,
    of_dict,
    of_list,
    of_set,
    of_tuple,
    show_item,
    write_deque,
    write_dict,
    write_list,
    write_set,
)
from torchstone.compiler.capture.state.environment import set_variables, variables
from torchstone.compiler.capture.state.opaque import hides_state

# Values that are what they are: compared, never taken apart.
ATOMS = (
    bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented), range, slice, enum.Enum,
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size,
)  # fmt: skip

# Attributes of a class that Python makes.
_MADE = frozenset({"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__qualname__", "_abc_impl"})


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to take objects apart. ``write`` is None for objects that never change."""

    name: str
    entries: Callable[[Any, Only], Entries]
    show: Callable[[str, Any], str]
    write: Callable[[Any, Entries, Only], None] | None = None


def _attribute(label: str, key: Any) -> str:
    # A module keeps its tensors and its submodules in dicts, which nobody has written in the program.
    return label if key in TENSOR_DICTS else f"{label}.{key}"


def _member(label: str, key: Any) -> str:
    return f"{label}.{key}"


def _same(label: str, key: Any) -> str:
    return label


def _cell(obj: types.CellType, only: Only) -> Entries:
    try:
        return {"": obj.cell_contents}
    except ValueError:  # nothing has been put into it yet
        return {}


def _write_cell(obj: types.CellType, entries: Entries, only: Only) -> None:
    if entries:
        obj.cell_contents = entries[""]
    else:
        del obj.cell_contents


def _function(obj: types.FunctionType, only: Only) -> Entries:
    entries: Entries = {("code", ""): obj.__code__}
    for name, cell in zip(obj.__code__.co_freevars, obj.__closure__ or (), strict=True):
        entries["closure", name] = cell
    entries["default", ""] = obj.__defaults__
    entries["default by name", ""] = obj.__kwdefaults__
    entries["attribute", ""] = obj.__dict__
    return entries


def _write_function(obj: types.FunctionType, entries: Entries, only: Only) -> None:
    obj.__defaults__ = entries["default", ""]
    obj.__kwdefaults__ = entries["default by name", ""]


def _show_function(label: str, key: Any) -> str:
    what, name = key
    return f"the closure variable {name}" if what == "closure" else f"the {what}s of {label}"


def _globals(obj: dict[str, Any], only: Only) -> Entries:
    if only is None:
        return {name: value for name, value in obj.items() if not name.startswith("__")}
    return {name: obj[name] for name in sorted(only) if name in obj}


def _write_globals(obj: dict[str, Any], entries: Entries, only: Only) -> None:
    for name in map(str, _globals(obj, None) | entries if only is None else sorted(only)):
        if name in entries:
            if obj.get(name, MISSING) is not entries[name]:
                obj[name] = entries[name]
        elif name in obj:
            del obj[name]


def _class(obj: type, only: Only) -> Entries:
    return {name: value for name, value in vars(obj).items() if _is_own(name, value, only)}


def _write_class(obj: type, entries: Entries, only: Only) -> None:
    for name in [name for name in _class(obj, only) if name not in entries]:
        type.__delattr__(obj, str(name))
    for name, value in entries.items():
        if vars(obj).get(str(name), MISSING) is not value:
            type.__setattr__(obj, str(name), value)


def _is_own(name: str, value: Any, only: Only) -> bool:
    """Say whether an attribute of a class is one of the program's: a method, a descriptor, data that it may name."""
    if name in _MADE:
        return False
    if name.startswith("__") and only is None:
        return is_method(value) or callable(value)
    return only is None or name in only or is_method(value) or (name.startswith("__") and callable(value))


def is_method(value: Any) -> bool:
    """Say whether an attribute of a class is one that its instances get at in a way of its own."""
    return hasattr(type(value), "__get__")


def _library(obj: types.ModuleType | type, only: Only) -> Entries:
    found = {name: vars(obj)[name] for name in sorted(only or ()) if name in vars(obj)}
    return {name: value for name, value in found.items() if callable(value) or isinstance(value, types.ModuleType)}


def _weak(obj: Any, only: Only) -> Entries:
    if isinstance(obj, weakref.ref):
        return {"": weakref.ref.__call__(obj)} | of_instance(obj, None)
    try:
        return {"": obj.__reduce_ex__.__self__}
    except ReferenceError:
        return {"": None}


def _partial(obj: functools.partial[Any], only: Only) -> Entries:
    return {"func": obj.func, "args": obj.args, "keywords": obj.keywords, "__dict__": obj.__dict__}


def _write_partial(obj: functools.partial[Any], entries: Entries, only: Only) -> None:
    obj.__setstate__((entries["func"], entries["args"], entries["keywords"], entries["__dict__"]))  # type: ignore[attr-defined]


def _array(obj: Any, only: Only) -> Entries:
    """The bytes of what keeps numbers in memory: an array of NumPy or Python, a bytearray."""
    return {"": bytes(obj) if isinstance(obj, bytearray) else obj.tobytes()}


def _write_array(obj: Any, entries: Entries, only: Only) -> None:
    data = entries[""]
    if isinstance(obj, bytearray):
        obj[:] = data
    elif isinstance(obj, array.array):
        del obj[:]
        obj.frombytes(data)
    else:
        import numpy as np

        obj[...] = np.frombuffer(data, obj.dtype).reshape(obj.shape)


def _scripted(obj: torch.jit.ScriptModule, only: Only) -> Entries:
    training = {"training": obj.training} if hasattr(obj, "training") else {}  # one that is frozen has no more
    return {**training, **dict(obj.named_parameters()), **dict(obj.named_buffers())}


def _write_scripted(obj: torch.jit.ScriptModule, entries: Entries, only: Only) -> None:
    had = _scripted(obj, only)
    for name, value in entries.items():
        if name != "training" and value is not had[name]:
            *path, last = str(name).split(".")
            module = functools.reduce(getattr, path, obj)
            put_tensor(module, last, value)


LIST = Kind("list", of_list, show_item, write_list)
DEQUE = Kind("deque", of_deque, show_item, write_deque)
DICT = Kind("dict", of_dict, show_item, write_dict)
MEMBERS = Kind("dict", of_dict, _member, write_dict)
SET = Kind("set", of_set, show_item, write_set)
TUPLE = Kind("tuple", of_tuple, show_item)
INSTANCE = Kind("instance", of_instance, _attribute, write_instance)
TENSOR = Kind("tensor", of_tensor, _attribute, write_tensor)  # its attributes
CELL = Kind("cell", _cell, _same, _write_cell)
FUNCTION = Kind("function", _function, _show_function, _write_function)
METHOD = Kind(
    "method",
    lambda obj, only: {"__self__": obj.__self__, "__func__": obj.__func__},
    lambda label, key: "self" if key == "__self__" else label,
)
PARTIAL = Kind("partial", _partial, _member, _write_partial)
BOUND = Kind("bound", lambda obj, only: {"__self__": obj.__self__, "__name__": obj.__name__}, _same)
DESCRIPTOR = Kind(
    "descriptor",
    lambda obj, only: {n: getattr(obj, n) for n in ("fget", "fset", "fdel", "__func__") if hasattr(obj, n)},
    _same,
)
WEAK = Kind("weak", _weak, _same)
VALUE = Kind("value", of_instance, _attribute, write_instance)  # one of ATOMS, of a class of the user's
ARRAY = Kind("array", _array, _same, _write_array)
GLOBALS = Kind("globals", _globals, lambda label, key: f"the global {key}", _write_globals)
CLASS = Kind("class", _class, _attribute, _write_class)
ENVIRONMENT = Kind("environment", variables, show_item, set_variables)
# An installed module or class of one: of these only what the program calls may be another than it was.
LIBRARY = Kind("library", _library, _member)
MODULE = Kind("module", lambda obj, only: {}, _same)  # its globals are an object of their own
VIEW = Kind("view", lambda obj, only: {"": gc.get_referents(obj)[0]}, _same)  # of a dict, which is another object
SCRIPT = Kind("script", _scripted, _member, _write_scripted)

# Instances of these modules of Python's library are containers; others keep to themselves.
_CONTAINERS = frozenset(
    {
        "collections", "types", "queue", "dataclasses", "argparse", "functools", "string", "weakref", "contextlib",
        "_weakrefset",
    }
)  # fmt: skip
_TORCH_CONTAINERS = (
    "torch.nn.", "torch.optim.", "torch.distributions.", "torch.amp.", "torch.utils.data.dataset",
)  # fmt: skip
_OPAQUE_MODULES = frozenset({"numpy", "torchstone", "torch_mlir", "hypothesis", "_pytest", "pytest", "rich", "typer"})
_OPAQUE = (torch.Generator, torch.jit.ScriptFunction, type, types.ModuleType)


_EXACT = frozenset(ATOMS)


def kind_of(obj: Any) -> Kind | None:
    """Return how an object is taken apart, None for one that is compared as it is; of no class, module or tensor."""
    cls = type(obj)
    if issubclass(cls, ATOMS):
        return VALUE if cls not in _EXACT and is_user_class(cls) else None
    if issubclass(cls, torch.Tensor):
        return None
    for base, kind in _BY_BASE.items():
        if issubclass(cls, base):
            return kind
    if cls in _BY_CLASS:
        return _BY_CLASS[cls]
    if issubclass(cls, torch.nn.Module):
        return INSTANCE
    top = cls.__module__.partition(".")[0]
    if top == "numpy" and cls.__name__ == "ndarray":
        return None if obj.dtype.hasobject else ARRAY
    if issubclass(cls, _OPAQUE) or top in _OPAQUE_MODULES:
        return None
    if top == "torch" and not cls.__module__.startswith(_TORCH_CONTAINERS):
        return None
    if cls in _VIEWS:
        return None if _is_of_class(gc.get_referents(obj)[0]) else VIEW
    if cls in _BOUND:
        return None if isinstance(obj.__self__, types.ModuleType | type(None)) else BOUND
    if top in sys.stdlib_module_names and top not in _CONTAINERS and top != "__main__":
        return INSTANCE if issubclass(cls, threading.Condition) else None  # of which queues are made
    if hides_state(cls):
        return None
    return INSTANCE if attributes_of(obj) is not None or slots_of(cls) else None


def _is_of_class(obj: Any) -> bool:
    """Say whether a dict is that of a class, into which nobody writes past the class."""
    return "__module__" in obj and "__doc__" in obj


_BY_BASE: Mapping[type, Kind] = {
    list: LIST, collections.deque: DEQUE, dict: DICT, set: SET, tuple: TUPLE, torch.jit.ScriptModule: SCRIPT,
    weakref.ref: WEAK, property: DESCRIPTOR, classmethod: DESCRIPTOR, staticmethod: DESCRIPTOR,
    BaseException: INSTANCE,
}  # fmt: skip
_VIEWS = frozenset(
    {
        types.MappingProxyType, type({}.keys()), type({}.values()), type({}.items()),
        *(type(getattr(collections.OrderedDict(), name)()) for name in ("keys", "values", "items")),
    }
)  # fmt: skip
_BOUND = (types.BuiltinMethodType, types.MethodWrapperType)
_BY_CLASS: Mapping[type, Kind] = {
    bytearray: ARRAY,
    array.array: ARRAY,
    types.CellType: CELL,
    types.FunctionType: FUNCTION,
    types.MethodType: METHOD,
    functools.partial: PARTIAL,
    weakref.ProxyType: WEAK,
    weakref.CallableProxyType: WEAK,
}


def kind_of_entry(obj: Any, key: Any, kind: Kind | None) -> Kind | None:
    """Return how an entry of an object is taken apart, of which ``kind_of`` says so much."""
    return MEMBERS if kind is DICT and key in TENSOR_DICTS and isinstance(obj, torch.nn.Module) else kind


def underived(obj: Any, entries: Entries) -> Entries:
    """Return the entries without those that PyTorch makes of the others."""
    if issubclass(type(obj), torch.nn.RNNBase):
        return {name: value for name, value in entries.items() if name not in DERIVED}
    return entries


def same_entries(one: Entries, other: Entries) -> bool:
    """Say whether entries are the same objects, in the same order."""
    return (
        len(one) == len(other)
        and same_keys(one, other)
        and all(a is b or (type(a) is bytes and a == b) for a, b in zip(one.values(), other.values(), strict=True))
    )


_BY_IDENTITY = (torch.Tensor, weakref.ref)


def same_keys(one: Iterable[Any], other: Iterable[Any]) -> bool:
    """Say whether keys are the same, in the same order; tensors, which compare elements, are when they are one."""
    return all(k is m or (not isinstance(k, _BY_IDENTITY) and k == m) for k, m in zip(one, other, strict=True))


def peek(obj: Any, kind: Kind, only: Only) -> list[Any]:
    """Return what an object holds, keys and values, in the quickest way: the same objects as before where all is."""
    if type(obj) in (list, tuple, collections.deque):
        return [*obj]
    if kind is FUNCTION:
        return [obj.__code__, obj.__defaults__, obj.__kwdefaults__, obj.__dict__]
    if kind is CLASS:
        return [*vars(obj), *vars(obj).values()]
    entries = kind.entries(obj, only)
    return [*entries, *entries.values()]

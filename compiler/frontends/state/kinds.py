"""How each kind of Python object is taken apart into entries, and given others.

An entry has a key: an index, a dict's key, the name of an attribute. Every kind answers three questions: what the
entries of an object are, how they are written, and how an entry reads in a message (``m.cache['k'][2]``). Of some
objects only the entries count that a program can name (``only``): nobody looks at the thousand others of a module.
"""

from __future__ import annotations

import array
import collections
import contextlib
import enum
import functools
import gc
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from torchstone.compiler.frontends.state.opaque import hides_state

Entries = dict[Hashable, Any]

# Values that are what they are: compared, never taken apart.
ATOMS = (
    bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented), range, slice, enum.Enum,
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size,
)  # fmt: skip
# Of a torch.nn.Module: what calling it does not look at.
_NOT_CALLED = frozenset(
    {
        "_non_persistent_buffers_set", "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks",
        "_load_state_dict_post_hooks", "_is_full_backward_hook",
    }
)  # fmt: skip
# And what PyTorch's recurrent modules make of their parameters: made again whenever those are others.
_DERIVED = frozenset({"_flat_weights", "_flat_weight_refs"})
_TENSOR_DICTS = frozenset({"_parameters", "_buffers", "_modules"})

# What PyTorch keeps in the attributes of tensors.
_OF_TENSORS = ("_dynamo", "_is_param", "_typed_storage")

Only = frozenset[str] | None
# The entry of a container that has attributes too, of a class derived from dict say: where it keeps them.
ATTRIBUTES = ("attributes",)
_WITHOUT = (list, dict, tuple, set, collections.OrderedDict, collections.defaultdict, collections.deque)
MISSING = object()


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to take objects apart. ``write`` is None for objects that never change."""

    name: str
    entries: Callable[[Any, Only], Entries]
    show: Callable[[str, Any], str]
    write: Callable[[Any, Entries, Only], None] | None = None


def _index(label: str, key: Any) -> str:
    return label if key == ATTRIBUTES else f"{label}[{key!r}]"


def _attribute(label: str, key: Any) -> str:
    # A module keeps its tensors and its submodules in dicts, which nobody has written in the program.
    return label if key in _TENSOR_DICTS else f"{label}.{key}"


def _member(label: str, key: Any) -> str:
    return f"{label}.{key}"


def _same(label: str, key: Any) -> str:
    return label


def _with_attributes(obj: Any, entries: Entries) -> Entries:
    if type(obj) in _WITHOUT:
        return entries
    own = attributes_of(obj)
    return entries if own is None else entries | {ATTRIBUTES: own}


def _elements(entries: Entries) -> Entries:
    return {key: value for key, value in entries.items() if key != ATTRIBUTES}


def _sequence(obj: Any, only: Only) -> Entries:
    return _with_attributes(obj, dict(enumerate(obj)))


def _write_list(obj: list[Any], entries: Entries, only: Only) -> None:
    list.__setitem__(obj, slice(None), list(_elements(entries).values()))


def _write_deque(obj: collections.deque[Any], entries: Entries, only: Only) -> None:
    obj.clear()
    obj.extend(_elements(entries).values())


def _dict_of(obj: dict[Any, Any]) -> Any:
    """Return the class whose methods know a dict as it is, past those of a class derived from it."""
    return collections.OrderedDict if isinstance(obj, collections.OrderedDict) else dict


def _mapping(obj: dict[Any, Any], only: Only) -> Entries:
    return _with_attributes(obj, {key: dict.__getitem__(obj, key) for key in _dict_of(obj).__iter__(obj)})


def _write_dict(obj: dict[Any, Any], entries: Entries, only: Only) -> None:
    base, entries = _dict_of(obj), _elements(entries)
    kept = [key for key in base.__iter__(obj) if key in entries]
    if len(kept) < len(obj) or kept != list(entries)[: len(kept)]:
        base.clear(obj)
    for key, value in entries.items():
        base.__setitem__(obj, key, value)


def _set(obj: set[Any], only: Only) -> Entries:
    return _with_attributes(obj, {item: item for item in obj})


def _write_set(obj: set[Any], entries: Entries, only: Only) -> None:
    obj.clear()
    obj.update(_elements(entries).values())


@functools.lru_cache(maxsize=1024)
def _slots(cls: type) -> dict[str, types.MemberDescriptorType]:
    found: dict[str, types.MemberDescriptorType] = {}
    for base in cls.__mro__:
        if "__slots__" in vars(base):
            for name, member in vars(base).items():
                if isinstance(member, types.MemberDescriptorType):
                    found.setdefault(name, member)
    return found


def attributes_of(obj: Any) -> dict[str, Any] | None:
    """Return the dict that an instance keeps its attributes in, past whatever its class makes of ``__dict__``."""
    try:
        found = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


def _unseen(obj: Any) -> frozenset[str]:
    return _NOT_CALLED if isinstance(obj, torch.nn.Module) else frozenset()


def _attributes(obj: Any, only: Only) -> Entries:
    entries: Entries = {}
    for name, member in _slots(type(obj)).items():
        with contextlib.suppress(AttributeError):
            entries[name] = member.__get__(obj)
    entries.update(attributes_of(obj) or {})
    unseen = _unseen(obj)
    return {n: v for n, v in entries.items() if n not in unseen and (only is None or n in only)}


def _write_attributes(obj: Any, entries: Entries, only: Only) -> None:
    slots, own, unseen = _slots(type(obj)), attributes_of(obj), _unseen(obj)
    for name, member in slots.items():
        if name in entries:
            member.__set__(obj, entries[name])
        elif only is None or name in only:
            with contextlib.suppress(AttributeError):
                member.__delete__(obj)
    if own is not None:
        gone = [n for n in own if n not in entries and n not in unseen and (only is None or n in only)]
        for name in gone:
            del own[name]
        own.update({str(name): value for name, value in entries.items() if name not in slots})


def _of_tensor(obj: torch.Tensor, only: Only) -> Entries:
    own = attributes_of(obj) or {}
    return {n: v for n, v in own.items() if not n.startswith(_OF_TENSORS) and (only is None or n in only)}


def _write_of_tensor(obj: torch.Tensor, entries: Entries, only: Only) -> None:
    own = obj.__dict__
    for name in [name for name in _of_tensor(obj, only) if name not in entries]:
        del own[name]
    own.update({str(name): value for name, value in entries.items()})


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
    return {name: obj[name] for name in sorted(only or ()) if name in obj}


def _write_globals(obj: dict[str, Any], entries: Entries, only: Only) -> None:
    for name in sorted(only or ()):
        if name in entries:
            if obj.get(name, MISSING) is not entries[name]:
                obj[name] = entries[name]
        elif name in obj:
            del obj[name]


def _class(obj: type, only: Only) -> Entries:
    return {n: v for n, v in vars(obj).items() if _is_data(n, v) and (only is None or n in only)}


def _write_class(obj: type, entries: Entries, only: Only) -> None:
    for name in [name for name in _class(obj, only) if name not in entries]:
        type.__delattr__(obj, str(name))
    for name, value in entries.items():
        if vars(obj).get(str(name), MISSING) is not value:
            type.__setattr__(obj, str(name), value)


def _is_data(name: str, value: Any) -> bool:
    """Say whether an attribute of a class is data: no method, no property, none of Python's own."""
    if hasattr(type(value), "cache_clear"):  # a function with an lru_cache, or what stands in for one
        return True
    return not (name.startswith("__") or name == "_abc_impl" or hasattr(type(value), "__get__"))


def _partial(obj: functools.partial[Any], only: Only) -> Entries:
    return {"func": obj.func, "args": obj.args, "keywords": obj.keywords}


def _write_partial(obj: functools.partial[Any], entries: Entries, only: Only) -> None:
    obj.__setstate__((entries["func"], entries["args"], entries["keywords"], attributes_of(obj)))  # type: ignore[attr-defined]


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


def _environment(obj: dict[bytes, bytes], only: Only) -> Entries:
    return {name: obj[name] for name in list(obj) if only is None or os.fsdecode(name) in only}


def _scripted(obj: torch.jit.ScriptModule, only: Only) -> Entries:
    training = {"training": obj.training} if hasattr(obj, "training") else {}  # one that is frozen has no more
    return training | dict(obj.named_parameters()) | dict(obj.named_buffers())


def _write_scripted(obj: torch.jit.ScriptModule, entries: Entries, only: Only) -> None:
    had = _scripted(obj, only)
    for name, value in entries.items():
        if name != "training" and value is not had[name]:
            *path, last = str(name).split(".")
            module = functools.reduce(getattr, path, obj)
            (module._parameters if last in module._parameters else module._buffers)[last] = value


LIST = Kind("list", _sequence, _index, _write_list)
DEQUE = Kind("deque", _sequence, _index, _write_deque)
DICT = Kind("dict", _mapping, _index, _write_dict)
MEMBERS = Kind("dict", _mapping, _member, _write_dict)
SET = Kind("set", _set, _index, _write_set)
TUPLE = Kind("tuple", _sequence, _index)
INSTANCE = Kind("instance", _attributes, _attribute, _write_attributes)
TENSOR = Kind("tensor", _of_tensor, _attribute, _write_of_tensor)  # its attributes
CELL = Kind("cell", _cell, _same, _write_cell)
FUNCTION = Kind("function", _function, _show_function, _write_function)
METHOD = Kind(
    "method",
    lambda obj, only: {"__self__": obj.__self__, "__func__": obj.__func__},
    lambda label, key: "self" if key == "__self__" else label,
)
PARTIAL = Kind("partial", _partial, _member, _write_partial)
BOUND = Kind("bound", lambda obj, only: {"__self__": obj.__self__}, _same)
ARRAY = Kind("array", _array, _same, _write_array)
GLOBALS = Kind("globals", _globals, lambda label, key: f"the global {key}", _write_globals)
CLASS = Kind("class", _class, _attribute, _write_class)
ENVIRONMENT = Kind("environment", _environment, _index)  # read, and not the program's to write
MODULE = Kind("module", lambda obj, only: {}, _same)  # its globals are an object of their own
VIEW = Kind("view", lambda obj, only: {"": gc.get_referents(obj)[0]}, _same)  # of a dict, which is another object
SCRIPT = Kind("script", _scripted, _member, _write_scripted)

# Instances of these modules of Python's library are containers; others keep to themselves.
_CONTAINERS = frozenset(
    {"collections", "types", "queue", "dataclasses", "argparse", "functools", "string", "weakref", "contextlib"}
)
_TORCH_CONTAINERS = (
    "torch.nn.", "torch.optim.", "torch.distributions.", "torch.amp.", "torch.utils.data.dataset",
)  # fmt: skip
_OPAQUE_MODULES = frozenset({"numpy", "torchstone", "torch_mlir", "hypothesis", "_pytest", "pytest", "rich", "typer"})
_OPAQUE = (torch.Generator, torch.jit.ScriptFunction, type, types.ModuleType)


def kind_of(obj: Any) -> Kind | None:
    """Return how an object is taken apart, None for one that is compared as it is; of no class, module or tensor."""
    cls = type(obj)
    if issubclass(cls, ATOMS) or issubclass(cls, torch.Tensor | weakref.ref):
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
        return ARRAY if obj.dtype.kind in "biufc" else None
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
    return INSTANCE if attributes_of(obj) is not None or _slots(cls) else None


def _is_of_class(obj: Any) -> bool:
    """Say whether a dict is that of a class, into which nobody writes past the class."""
    return "__module__" in obj and "__doc__" in obj


_BY_BASE: Mapping[type, Kind] = {
    list: LIST, collections.deque: DEQUE, dict: DICT, set: SET, tuple: TUPLE, torch.jit.ScriptModule: SCRIPT,
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
}


def kind_of_entry(obj: Any, key: Any, kind: Kind | None) -> Kind | None:
    """Return how an entry of an object is taken apart, of which ``kind_of`` says so much."""
    return MEMBERS if kind is DICT and key in _TENSOR_DICTS and isinstance(obj, torch.nn.Module) else kind


def underived(obj: Any, entries: Entries) -> Entries:
    """Return the entries without those that PyTorch makes of the others."""
    if isinstance(obj, torch.nn.RNNBase):
        return {name: value for name, value in entries.items() if name not in _DERIVED}
    return entries


def same_entries(one: Entries, other: Entries) -> bool:
    """Say whether entries are the same objects, in the same order."""
    return (
        len(one) == len(other)
        and same_keys(one, other)
        and all(a is b or (type(a) is bytes and a == b) for a, b in zip(one.values(), other.values(), strict=True))
    )


def same_keys(one: Iterable[Any], other: Iterable[Any]) -> bool:
    """Say whether keys are the same, in the same order; tensors, which compare elements, are when they are one."""
    return all(k is m or (not isinstance(k, torch.Tensor) and k == m) for k, m in zip(one, other, strict=True))


def plain_attributes(obj: Any) -> dict[str, Any] | None:
    """Return the dict that an instance keeps all of its attributes in, None where it has slots too."""
    return None if _slots(type(obj)) else attributes_of(obj)


def peek(obj: Any, kind: Kind, only: Only) -> list[Any]:
    """Return what an object holds, keys and values, in the quickest way: the same objects as before where all is."""
    if kind is LIST or kind is TUPLE:
        return [*obj]
    if kind is FUNCTION:
        return [obj.__code__, obj.__defaults__, obj.__kwdefaults__]
    if kind is GLOBALS:
        return [obj.get(name, MISSING) for name in only or ()]
    if kind is CLASS:
        return [*vars(obj).values()]
    entries = kind.entries(obj, only)
    return [*entries, *entries.values()]

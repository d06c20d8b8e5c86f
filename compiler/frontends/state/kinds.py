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
import sys
import threading
import types
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from torchstone.compiler.frontends.state.code import is_user_class
from torchstone.compiler.frontends.state.environment import set_variables, variables
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
# What an exception keeps beside its attributes, and what raising it sets.
_RAISED = ("args", "__traceback__", "__context__", "__cause__", "__suppress_context__")
_TENSOR_DICTS = frozenset({"_parameters", "_buffers", "_modules"})

# What PyTorch keeps in the attributes of tensors.
_OF_TENSORS = ("_dynamo", "_is_param", "_typed_storage")

Only = frozenset[str] | None
# Attributes of a class that Python makes.
_MADE = frozenset({"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "__qualname__", "_abc_impl"})
MISSING = object()


@dataclass(frozen=True, slots=True)
class Beside:
    """The key of what a container has beside its elements: attributes, where its class is derived from dict say."""

    name: str


_WITHOUT = frozenset({list, dict, tuple, set, collections.OrderedDict})
_ATTRIBUTES, _FACTORY, _LENGTH = Beside("__dict__"), Beside("default_factory"), Beside("maxlen")


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to take objects apart. ``write`` is None for objects that never change."""

    name: str
    entries: Callable[[Any, Only], Entries]
    show: Callable[[str, Any], str]
    write: Callable[[Any, Entries, Only], None] | None = None


def _index(label: str, key: Any) -> str:
    if isinstance(key, Beside):
        return label if key == _ATTRIBUTES else f"{label}.{key.name}"
    return f"{label}[{key!r}]"


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
    if isinstance(obj, collections.defaultdict):
        entries[_FACTORY] = obj.default_factory
    elif isinstance(obj, collections.deque):
        entries[_LENGTH] = obj.maxlen
    for name, member in _slots(type(obj)).items():
        with contextlib.suppress(AttributeError):
            entries[Beside(name)] = member.__get__(obj)
    own = attributes_of(obj)
    if own is not None:
        entries[_ATTRIBUTES] = own
    return entries


def _elements(obj: Any, entries: Entries) -> Entries:
    """Write what a container has beside its elements, and return these."""
    if type(obj) in _WITHOUT:
        return entries
    if _FACTORY in entries:
        obj.default_factory = entries[_FACTORY]
    for name, member in _slots(type(obj)).items():
        if Beside(name) in entries:
            member.__set__(obj, entries[Beside(name)])
        else:
            with contextlib.suppress(AttributeError):
                member.__delete__(obj)
    return {key: value for key, value in entries.items() if not isinstance(key, Beside)}


# What a class derived from a container's makes of its methods is the program's; these are Python's own.


def _list(obj: list[Any], only: Only) -> Entries:
    return _with_attributes(obj, dict(enumerate(list.__iter__(obj))))


def _deque(obj: collections.deque[Any], only: Only) -> Entries:
    return _with_attributes(obj, dict(enumerate(collections.deque.__iter__(obj))))


def _tuple(obj: tuple[Any, ...], only: Only) -> Entries:
    return _with_attributes(obj, dict(enumerate(tuple.__iter__(obj))))


def _write_list(obj: list[Any], entries: Entries, only: Only) -> None:
    list.__setitem__(obj, slice(None), list(_elements(obj, entries).values()))


def _write_deque(obj: collections.deque[Any], entries: Entries, only: Only) -> None:
    elements = _elements(obj, entries)
    collections.deque.clear(obj)
    collections.deque.extend(obj, elements.values())


def _dict_of(obj: dict[Any, Any]) -> Any:
    """Return the class whose methods know a dict as it is, past those of a class derived from it."""
    return collections.OrderedDict if isinstance(obj, collections.OrderedDict) else dict


def _mapping(obj: dict[Any, Any], only: Only) -> Entries:
    return _with_attributes(obj, {key: dict.__getitem__(obj, key) for key in _dict_of(obj).__iter__(obj)})


def _write_dict(obj: dict[Any, Any], entries: Entries, only: Only) -> None:
    base, entries = _dict_of(obj), _elements(obj, entries)
    kept = [key for key in base.__iter__(obj) if key in entries]
    if len(kept) < dict.__len__(obj) or kept != list(entries)[: len(kept)]:
        base.clear(obj)
    for key, value in entries.items():
        base.__setitem__(obj, key, value)


def _set(obj: set[Any], only: Only) -> Entries:
    return _with_attributes(obj, {item: item for item in set.__iter__(obj)})


def _write_set(obj: set[Any], entries: Entries, only: Only) -> None:
    elements = _elements(obj, entries)
    set.clear(obj)
    set.update(obj, elements.values())


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
    return _NOT_CALLED if issubclass(type(obj), torch.nn.Module) else frozenset()


def _attributes(obj: Any, only: Only) -> Entries:
    entries: Entries = {}
    for name, member in _slots(type(obj)).items():
        with contextlib.suppress(AttributeError):
            entries[name] = member.__get__(obj)
    entries.update(attributes_of(obj) or {})
    if issubclass(type(obj), BaseException):
        entries.update({name: getattr(obj, name) for name in _RAISED})
    unseen = _unseen(obj)
    return {n: v for n, v in entries.items() if n not in unseen and (only is None or n in only)}


def _write_attributes(obj: Any, entries: Entries, only: Only) -> None:
    slots, own, unseen = _slots(type(obj)), attributes_of(obj), _unseen(obj)
    if issubclass(type(obj), BaseException):
        for name in _RAISED:
            setattr(obj, name, entries[name])
        entries = {name: value for name, value in entries.items() if name not in _RAISED}
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
    if only is None:
        return {name: value for name, value in obj.items() if not name.startswith("__")}
    return {name: obj[name] for name in sorted(only) if name in obj}


def _write_globals(obj: dict[str, Any], entries: Entries, only: Only) -> None:
    for name in _globals(obj, None) | entries if only is None else sorted(only):
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
        return {"": weakref.ref.__call__(obj)} | _attributes(obj, None)
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
    return training | dict(obj.named_parameters()) | dict(obj.named_buffers())


def _write_scripted(obj: torch.jit.ScriptModule, entries: Entries, only: Only) -> None:
    had = _scripted(obj, only)
    for name, value in entries.items():
        if name != "training" and value is not had[name]:
            *path, last = str(name).split(".")
            module = functools.reduce(getattr, path, obj)
            (module._parameters if last in module._parameters else module._buffers)[last] = value


LIST = Kind("list", _list, _index, _write_list)
DEQUE = Kind("deque", _deque, _index, _write_deque)
DICT = Kind("dict", _mapping, _index, _write_dict)
MEMBERS = Kind("dict", _mapping, _member, _write_dict)
SET = Kind("set", _set, _index, _write_set)
TUPLE = Kind("tuple", _tuple, _index)
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
BOUND = Kind("bound", lambda obj, only: {"__self__": obj.__self__, "__name__": obj.__name__}, _same)
DESCRIPTOR = Kind(
    "descriptor",
    lambda obj, only: {n: getattr(obj, n) for n in ("fget", "fset", "fdel", "__func__") if hasattr(obj, n)},
    _same,
)
WEAK = Kind("weak", _weak, _same)
VALUE = Kind("value", _attributes, _attribute, _write_attributes)  # one of ATOMS, of a class of the user's
ARRAY = Kind("array", _array, _same, _write_array)
GLOBALS = Kind("globals", _globals, lambda label, key: f"the global {key}", _write_globals)
CLASS = Kind("class", _class, _attribute, _write_class)
ENVIRONMENT = Kind("environment", variables, _index, set_variables)
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
    return MEMBERS if kind is DICT and key in _TENSOR_DICTS and isinstance(obj, torch.nn.Module) else kind


def underived(obj: Any, entries: Entries) -> Entries:
    """Return the entries without those that PyTorch makes of the others."""
    if issubclass(type(obj), torch.nn.RNNBase):
        return {name: value for name, value in entries.items() if name not in _DERIVED}
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


def plain_attributes(obj: Any) -> dict[str, Any] | None:
    """Return the dict that an instance keeps all of its attributes in, None where it has slots too."""
    own = None if _slots(type(obj)) or issubclass(type(obj), BaseException) else attributes_of(obj)
    return own if type(own) is dict else None


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

"""What stands in, while a program is captured, for objects that nobody takes apart: it may be held, and not be used."""

from __future__ import annotations

import types
import weakref
from typing import Any, NoReturn

import torch

from torchstone.compiler.capture.refusals import refusing
from torchstone.compiler.capture.state import kinds
from torchstone.compiler.capture.state.logs import WRITES_LOGS, may_be_asked
from torchstone.compiler.capture.state.opaque import never_changes
from torchstone.compiler.diagnostics import Unsupported

_METHODS = (types.BuiltinMethodType, types.MethodWrapperType, types.MethodType)
_PLAIN = frozenset({int, float, bool, str, type(None), torch.Tensor, torch.nn.Parameter, types.FunctionType, type})
# What an object needs to be one; of the special methods of its class, the others are refused.
_KEPT = frozenset(
    {
        "__class__", "__new__", "__init__", "__init_subclass__", "__subclasshook__", "__dict__", "__doc__", "__slots__",
        "__module__", "__getattribute__", "__class_getitem__", "__weakref__", "__hash__", "__eq__", "__ne__",
        "__del__", "__set_name__", "__get__", "__set__", "__delete__", "__getattr__", "__abstractmethods__",
    }
)  # fmt: skip


@refusing(Unsupported)
def _refuse(self: StandIn, *_: Any, **__: Any) -> NoReturn:
    what = object.__getattribute__(self, "_what")
    raise Unsupported(f"the program uses {what}, into which torchstone does not look", stage="capture")


class StandIn:
    """Passes for the object that it stands for where that is only held, and refuses whatever is done with it."""

    __slots__ = ("__weakref__", "_stands_for", "_what")

    def __init__(self, what: str, stands_for: Any = None) -> None:
        object.__setattr__(self, "_what", what)
        object.__setattr__(self, "_stands_for", stands_for)

    def __getattribute__(self, name: str) -> Any:
        real = object.__getattribute__(self, "_stands_for")
        if name == "__class__":
            return type(self) if real is None else type(real)
        if isinstance(real, WRITES_LOGS) and may_be_asked(name):
            return getattr(real, name)
        _refuse(self)

    def __hash__(self) -> int:
        real = object.__getattribute__(self, "_stands_for")
        if real is not None and type(real).__hash__ is not object.__hash__:
            _refuse(self)
        return object.__hash__(self if real is None else real)

    def __eq__(self, other: object) -> bool:
        real = object.__getattribute__(self, "_stands_for")
        if other is self or other is real:
            return True
        return False if type(real).__eq__ is object.__eq__ else _refuse(self)


class Refusing(StandIn):
    """Stands for nothing, and refuses to be looked at."""

    __slots__ = ()
    __iter__ = __next__ = __len__ = __bool__ = __call__ = __getitem__ = __setattr__ = __repr__ = _refuse


_classes: weakref.WeakKeyDictionary[type, type[StandIn]] = weakref.WeakKeyDictionary()


def _class_for(cls: type) -> type[StandIn]:
    """Return a class that has the special methods of another one, so that it passes for it, and refuses all of them."""
    found = _classes.get(cls)
    if found is None:
        special = {name for name in dir(cls) if name.startswith("__") and name.endswith("__")} - _KEPT
        named = {name for name in special if callable(getattr(cls, name, None))}
        body: dict[str, Any] = dict.fromkeys(named, _refuse)
        if "__bool__" not in named and "__len__" not in named:
            body["__bool__"] = lambda self: True
        found = _classes[cls] = type(cls.__name__, (StandIn,), {"__slots__": (), "__module__": cls.__module__, **body})
    return found


def real_of(value: Any) -> Any:
    """Return the object that a value stands for, itself in most cases."""
    if not issubclass(type(value), StandIn):
        return value
    real = object.__getattribute__(value, "_stands_for")
    return value if real is None else real


def stand_in(value: Any) -> Any:
    """Return what a program is given for a value: in most cases the value, and else what is refused once it is used.

    That is for objects of which nobody knows what they hold, and for their methods.
    """
    if value is torch.from_numpy or value is torch.frombuffer:  # under whatever name, the one that is there meanwhile
        return lambda *args, **kwargs: getattr(torch, value.__name__)(*args, **kwargs)
    if type(value) in _PLAIN:
        return value
    inner = value
    while isinstance(inner, _METHODS):
        inner = inner.__self__
    cls = type(inner)
    if issubclass(cls, (*kinds.ATOMS, torch.Tensor, StandIn)) or kinds.kind_of(inner) is not None:
        return value
    if never_changes(cls) or hasattr(cls, "__get__"):  # a descriptor, which a class is made of
        return value
    return _class_for(type(value))(f"a{'n' * (cls.__name__[:1] in 'AEIOUaeiou')} {cls.__name__}", value)


class TypeOf:
    """Is ``type`` for a program that looks at the classes of objects, some of which are stand-ins."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return type(real_of(args[0])) if len(args) == 1 and not kwargs else type(*args, **kwargs)

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, type)

    def __subclasscheck__(self, subclass: type) -> bool:
        return issubclass(subclass, type)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (type,)

    def __eq__(self, other: object) -> bool:
        return other is self or other is type

    def __hash__(self) -> int:
        return hash(type)

    def __getattr__(self, name: str) -> Any:
        return getattr(type, name)

"""Which objects nobody takes apart, by their class: those whose state is out of Python's sight, or of no concern.

An object of such a class may be held, passed on and compared; what uses it is refused, see ``standins``. The exceptions
are classes whose instances never change.
"""

from __future__ import annotations

import functools
import operator
import re
import sys
import threading
import types
import typing
import weakref
from typing import Any

from torchstone.compiler._torch import python_modules

_MADE_BY_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_OF_C = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
# Classes in C that keep nothing to themselves, or nothing but what makes an object what it is.
_OPEN = frozenset({object, types.SimpleNamespace, typing.Generic})
_UNCHANGING = (
    types.BuiltinFunctionType, types.MethodWrapperType, types.WrapperDescriptorType, types.MethodDescriptorType,
    types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType, types.CodeType,
    types.FunctionType, types.MethodType, types.ModuleType, types.GenericAlias, types.UnionType, type, property,
    classmethod, staticmethod, super, frozenset, re.Pattern, re.Match, BaseException, functools._lru_cache_wrapper,
    weakref.ref, weakref.ProxyType, weakref.CallableProxyType, operator.attrgetter, operator.itemgetter,
    operator.methodcaller, type(threading.Lock()), type(threading.RLock()),
)  # fmt: skip
# Modules of Python's all of whose objects stay what they are. Locks do, whenever nobody looks.
_UNCHANGING_MODULES = frozenset(
    {
        "__future__", "_decimal", "_pydecimal", "_sitebuiltins", "_struct", "abc", "codecs", "dataclasses", "datetime",
        "decimal", "enum", "fractions", "importlib", "inspect", "ipaddress", "numbers", "pathlib", "re", "typing",
        "types", "uuid", "weakref", "zoneinfo", "_frozen_importlib", "_frozen_importlib_external", "torchstone",
        "torch_mlir",
    }
)  # fmt: skip
_UNCHANGING_NUMPY = frozenset({"ufunc", "dtype", "_ArrayFunctionDispatcher", "finfo", "iinfo", "_NoValueType"})
_FUNCTIONS_OF_C = frozenset({"cython_function_or_method", "fused_cython_function", "instancemethod", "nb_func"})

_hiding: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()
_unchanging: weakref.WeakKeyDictionary[type, bool] = weakref.WeakKeyDictionary()


def hides_state(cls: type) -> bool:
    """Say whether instances have state beside their attributes and slots: a class in C keeps it."""
    known = _hiding.get(cls)
    if known is None:
        known = _hiding[cls] = any(_hides(base) for base in cls.__mro__)
    return known


def _hides(cls: type) -> bool:
    if cls in _OPEN or issubclass(cls, BaseException) or cls.__module__.partition(".")[0] == "torch":
        return False
    if not cls.__flags__ & _MADE_BY_PYTHON:
        return True
    return any(isinstance(member, _OF_C) and member.__objclass__ is cls for member in vars(cls).values())


def never_changes(cls: type) -> bool:
    """Say whether the instances of a class that nobody takes apart are known to stay what they are."""
    known = _unchanging.get(cls)
    if known is None:
        known = _unchanging[cls] = _never_changes(cls)
    return known


def _never_changes(cls: type) -> bool:
    if cls is object or issubclass(cls, _UNCHANGING) or cls.__name__ in _FUNCTIONS_OF_C:
        return True
    module = cls.__module__
    top = module.partition(".")[0]
    if top == "numpy":
        return cls.__name__ in _UNCHANGING_NUMPY or any(base.__name__ == "generic" for base in cls.__mro__)
    if top == "torch":
        return module == "torch" or module.startswith(python_modules.UNCHANGING)
    if top in _UNCHANGING_MODULES:
        return True
    # One without attributes, slots or a class in C has nothing that could change.
    return top not in sys.stdlib_module_names and not hides_state(cls)


def named_by(value: Any) -> frozenset[str]:
    """Return the attributes that an ``attrgetter`` or a ``methodcaller`` gets, which no code names."""
    if issubclass(type(value), operator.attrgetter):
        return frozenset(part for path in value.__reduce__()[1] for part in path.split("."))
    if issubclass(type(value), operator.methodcaller):
        made, given = value.__reduce__()[:2]  # a partial of the class where there are keywords
        return frozenset({str(made.args[0] if isinstance(made, functools.partial) else given[0])})
    return frozenset()

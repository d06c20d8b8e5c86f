"""Run-time numbers that a program used as keys: the containers that it leaves behind hold the numbers themselves.

To look a key up Python asks for its hash, and so the program decides by the number, which is specialized then. But the
dict or the set keeps PyTorch's symbol, of which nothing is known any more once the capture is over.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any

from torchstone.compiler._torch import pytrees as pytree
from torchstone.compiler.capture.symbolic.numbers import NUMBERS
from torchstone.compiler.capture.symbolic.symbol_queries import concrete
from torchstone.compiler.capture.user_code import is_user_file


def told(key: Any) -> Any:
    """Return a key, a set or a slice with Python's numbers in the place of symbols; what has none as it is."""
    if isinstance(key, NUMBERS):
        return concrete(key)
    if isinstance(key, slice):
        return slice(*_all_told((key.start, key.stop, key.step))) if _mentions(key) else key
    if not isinstance(key, tuple | set | frozenset | list) or not _mentions(key):
        return key
    items = _all_told(key)
    return type(key)(*items) if hasattr(key, "_fields") else type(key)(items)


def _all_told(items: Iterable[Any]) -> list[Any]:
    return [told(item) for item in items]


def _mentions(key: Any) -> bool:
    if isinstance(key, slice):
        return any(map(_mentions, (key.start, key.stop, key.step)))
    if isinstance(key, tuple | set | frozenset | list):
        return any(map(_mentions, key))
    return isinstance(key, NUMBERS)


def asks(file: str) -> bool:
    """Say whether code asks for hashes as a program's own does: an OrderedDict looks its keys up to tell them."""
    return file == told.__code__.co_filename or is_user_file(file)


def tell(objects: Iterable[Any]) -> None:
    """Replace the symbols among the keys of dicts and the elements of sets by their numbers, in place."""
    for obj in objects:
        if issubclass(type(obj), dict) and any(map(_mentions, dict.__iter__(obj))):
            base: Any = collections.OrderedDict if isinstance(obj, collections.OrderedDict) else dict
            entries = [(told(key), value) for key, value in base.items(obj)]
            base.clear(obj)
            for key, value in entries:
                base.__setitem__(obj, key, value)
        elif issubclass(type(obj), set) and any(map(_mentions, obj)):
            items = _all_told(obj)
            set.clear(obj)
            set.update(obj, items)


def told_spec(spec: pytree.TreeSpec) -> pytree.TreeSpec:
    """Return how a result is nested, with numbers for keys."""
    if spec.is_leaf():
        return spec
    context, children = told(spec.context), [told_spec(child) for child in spec.children()]
    if context is spec.context and all(one is other for one, other in zip(children, spec.children(), strict=True)):
        return spec
    return pytree.TreeSpec(spec.type, context, children)

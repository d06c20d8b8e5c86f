"""Objects that a program makes and hands over: each call makes them again, of their class and their attributes.

An object is all in its class and its attributes where nothing of it is out of Python's sight, as ``copy`` takes
it. Its ``__init__`` has run when the program was captured; what that did is in the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torchstone.compiler._torch import pytrees as pytree
from torchstone.compiler.capture.state import kinds
from torchstone.compiler.capture.state.kinds import ATOMS
from torchstone.compiler.capture.state.standins import real_of

LEAF = pytree.tree_flatten(None, is_leaf=lambda _: True)[1]
# Modules keep more than their attributes, an exception where it was raised; ``__del__`` would notice another object.
_NOT_MADE = (torch.nn.Module, BaseException, *ATOMS)


class _Made:
    """Stands for such objects in a TreeSpec, whose context are the class and the names of the attributes."""


def can_make(value: Any) -> bool:
    """Say whether an object can be made again of its class and its attributes."""
    cls = type(value)
    if issubclass(cls, (torch.Tensor, type, *_NOT_MADE)) or hasattr(cls, "__del__") or real_of(value) is not value:
        return False
    return kinds.kind_of(value) is kinds.INSTANCE and type(cls.__getattribute__) is type(object.__getattribute__)


def made_of(cls: type, names: tuple[str, ...], attributes: pytree.TreeSpec) -> pytree.TreeSpec:
    """Return the spec of an object: of its class, its attributes nested as a list of them is."""
    return pytree.TreeSpec(_Made, (cls, names), attributes.children())


def filled(spec: pytree.TreeSpec, leaves: Iterator[pytree.TreeSpec]) -> pytree.TreeSpec:
    """Return a spec with others in the places of its leaves, in order."""
    if spec.is_leaf():
        return next(leaves)
    return pytree.TreeSpec(spec.type, spec.context, [filled(child, leaves) for child in spec.children()])


def _flatten(value: Any) -> Any:
    raise AssertionError(f"{value!r} is in no result: it stands for objects in a spec")


def _make(values: Any, context: tuple[type, tuple[str, ...]]) -> Any:
    cls, names = context
    made = object.__new__(cls)
    kinds.INSTANCE.write(made, dict(zip(names, values, strict=True)), None)  # pyright: ignore[reportOptionalCall]
    return made


pytree.register_pytree_node(_Made, _flatten, _make)

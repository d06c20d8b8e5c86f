"""Calls whose effect goes by how a tensor lies in memory, or by who shares it: no trace of ops tells of them.

``contiguous``, ``reshape`` and their like give a view or a copy of their operand, as that lies in memory: where anybody
can tell, by a result or a write, the arguments have to lie as the example's. ``resize_``, ``set_`` and an ``out=`` of
another size move a tensor away from its views, which functionalization makes again of it.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from torchstone.compiler._torch import pytrees as pytree
from torchstone.compiler._torch.modes import DisableTorchFunction
from torchstone.compiler._torch.tensors import known_version, storage_key
from torchstone.compiler.capture.memory.layouts import Copying
from torchstone.compiler.capture.memory.shared_results import Copied
from torchstone.compiler.capture.symbolic.sizes import to_dim
from torchstone.compiler.diagnostics import Unsupported

# A copy of what is not in the format, whatever else could be a view of it.
_INTO_FORMAT = frozenset({"contiguous", "ravel"})
# The same, where they are asked for a format, and change no dtype.
_CONVERTING = frozenset(
    {
        "bfloat16", "bool", "byte", "cdouble", "cfloat", "chalf", "char", "cpu", "double", "float", "half", "int",
        "long", "short", "to",
    }
)  # fmt: skip
# A view wherever the strides allow it: what of them is a result is made anew of its base, or guarded.
_INTO_SHAPE = frozenset({"flatten", "reshape", "reshape_as"})
_RESIZING = frozenset({"resize_", "resize_as_", "set_"})


@dataclass(frozen=True, slots=True)
class Choice:
    """A call that gave a view of its operand (``shared``) or a copy, which was for the operand's layout to decide."""

    name: str
    operand: torch.Tensor
    result: torch.Tensor
    shared: bool
    copying: Copying
    versions: tuple[int | None, int | None]

    @property
    def written(self) -> bool:
        """Say whether operand or result were written to since; so they were, where PyTorch does not count."""
        versions = (_version(self.operand), _version(self.result))
        return None in versions or versions != self.versions

    def guard(self) -> Copied:
        """Return a guard that the call decides the same for other sizes, of a tensor that lies in the same way."""
        with DisableTorchFunction():
            shape, strides = (tuple(map(to_dim, d)) for d in (self.operand.shape, self.operand.stride()))
            into = tuple(map(to_dim, self.result.shape)) if self.name in _INTO_SHAPE else None
        return Copied(self.name, shape, strides, replace(self.copying, into=into), spared=self.shared)


class MemoryCalls:
    """Makes a program's calls, and notes those that go by memory."""

    def __init__(self) -> None:
        self.choices: list[Choice] = []
        self._seen: dict[int, weakref.ref[torch.Tensor]] = {}

    def make(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> Any:
        """Return what the call gives. Unsupported where it moves a tensor away from a view of it that is in use."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "").partition(".")[0]
        with self.moving(name, args[0] if name in _RESIZING and args else kwargs.get("out")):
            out = func(*args, **kwargs)
        for leaf in (*args, *pytree.tree_leaves(out)):
            if isinstance(leaf, torch.Tensor):
                self._seen[id(leaf)] = weakref.ref(leaf)
        copying = _copying(name, args, kwargs)
        if copying is not None and isinstance(args[0], torch.Tensor) and isinstance(out, torch.Tensor):
            versions = _version(args[0]), _version(out)
            shared = _storage(args[0]) == _storage(out)
            if args[0].dtype == out.dtype:
                self.choices.append(Choice(name, args[0], out, shared, copying, versions))
        return out

    @contextlib.contextmanager
    def moving(self, name: str, written: Any) -> Iterator[None]:
        """Unsupported where what is called gives one of these tensors other sizes or memory, away from a view in use.

        The modes that see Python's calls do not see every ``set_``.
        """
        moved = [_Moved(t, name, self._sharing(t)) for t in pytree.tree_leaves(written) if isinstance(t, torch.Tensor)]
        yield
        for tensor in moved:
            tensor.check()

    def told(self, leaves: Sequence[Any], arguments: Sequence[Any]) -> Iterator[Choice]:
        """Give the choices that somebody can tell from the other one, if these are the results and the arguments."""
        owned = {_storage(t) for t in arguments if isinstance(t, torch.Tensor)}
        held = Counter(_storage(t) for t in leaves if isinstance(t, torch.Tensor))
        for choice in self.choices:
            storage = _storage(choice.operand)
            returned = held[storage] > 1 or (held[storage] == 1 and storage in owned)
            if choice.written or (choice.shared and choice.name not in _INTO_SHAPE and returned):
                yield choice

    def _sharing(self, tensor: torch.Tensor) -> Callable[[], bool]:
        storage = _storage(tensor)
        found = [ref for ref in self._seen.values() if (t := ref()) is not None and t is not tensor]
        found = [ref for ref in found if storage is not None and _storage(ref()) == storage]
        return lambda: any(ref() is not None for ref in found)


class _Moved:
    """A tensor that a call may give other sizes, or other memory."""

    def __init__(self, tensor: torch.Tensor, name: str, shared: Callable[[], bool]) -> None:
        self._tensor, self._name, self._shared = tensor, name, shared
        self._shape = tuple(tensor.shape)

    def check(self) -> None:
        """Unsupported where it did, and another tensor of the program's has the same memory."""
        changed = "set_" in self._name or self._shape != tuple(self._tensor.shape)
        if changed and self._shared():
            why = "changes the sizes or the memory of a tensor while others share it"
            raise Unsupported(f"{self._name} {why}", stage="capture", op=self._name)


def _copying(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Copying | None:
    """Return what sort of copy a function makes, if it goes by the layout of its operand whether there is one."""
    if not args:
        return None
    given = [v for v in (*args, *kwargs.values()) if isinstance(v, torch.memory_format)]
    if name in _INTO_FORMAT:
        return Copying(given[0]) if given else Copying()
    if name in _CONVERTING:
        wanted = [f for f in given if f is not torch.preserve_format]
        return Copying(wanted[0], to=True) if wanted and not kwargs.get("copy") else None
    return Copying() if name in _INTO_SHAPE else None


def _version(tensor: torch.Tensor) -> int | None:
    """Return how often a tensor's memory was written to; None where PyTorch does not count."""
    with DisableTorchFunction():
        return known_version(tensor)


def _storage(tensor: Any) -> int | None:
    """Return what tells the memory of a tensor from that of others; None for one that has none of its own."""
    with DisableTorchFunction():
        return storage_key(tensor) if tensor.layout is torch.strided else None

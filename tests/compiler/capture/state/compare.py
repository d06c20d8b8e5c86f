"""Worlds compared: the values in them, which objects are one, and which tensors share memory."""

from __future__ import annotations

import types
from typing import Any

import torch


def picture(root: Any) -> list[Any]:
    """Return a list that tells everything reached from an object: equal for equal worlds, tensors as tensors."""
    out: list[Any] = []
    known: dict[int, int] = {}
    storages: dict[int, int] = {}
    alive: list[Any] = []

    def walk(value: Any, path: str) -> None:
        if isinstance(value, torch.Tensor):
            storage = storages.setdefault(value.untyped_storage()._cdata, len(storages))
            again = known.setdefault(id(value), len(known))
            alive.append(value)
            out.append((path, "tensor", again, storage, value.detach().clone()))
            return
        if isinstance(value, int | float | str | bytes | type(None) | torch.Size | type | types.FunctionType):
            out.append((path, type(value).__name__, value if not callable(value) else getattr(value, "__name__", "")))
            return
        if id(value) in known:
            out.append((path, "again", known[id(value)]))
            return
        known[id(value)] = len(known)
        alive.append(value)
        out.append((path, type(value).__name__))
        if isinstance(value, dict):
            for key, item in value.items():
                walk(item, f"{path}[{key!r}]")
        elif isinstance(value, set | frozenset):
            out.append((path, sorted(map(repr, value))))
        elif hasattr(value, "__iter__"):
            for index, item in enumerate(value):
                walk(item, f"{path}[{index}]")
        else:
            names = [n for c in type(value).__mro__ for n in getattr(c, "__slots__", ())]
            own = {n: getattr(value, n) for n in names if hasattr(value, n)} | getattr(value, "__dict__", {})
            for name, item in own.items():
                walk(item, f"{path}.{name}")

    walk(root, "")
    return out


def difference(one: list[Any], other: list[Any]) -> str:
    """Return the first place where two pictures differ, empty where they do not."""
    for mine, theirs in zip(one, other, strict=False):
        if len(mine) != len(theirs) or mine[0] != theirs[0] or mine[1] != theirs[1]:
            return f"{mine} beside {theirs}"
        if mine[1] == "tensor":
            a, b = mine[4], theirs[4]
            if mine[2:4] != theirs[2:4]:
                return f"{mine[0]}: another tensor or memory: {mine[2:4]} beside {theirs[2:4]}"
            if (
                a.dtype != b.dtype
                or a.shape != b.shape
                or not torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
            ):
                return f"{mine[0]}: {a} beside {b}"
        elif mine[1] == "float":
            if not torch.allclose(torch.tensor(mine[2]), torch.tensor(theirs[2]), rtol=1e-4, equal_nan=True):
                return f"{mine} beside {theirs}"
        elif mine[2:] != theirs[2:]:
            return f"{mine} beside {theirs}"
    return (
        ""
        if len(one) == len(other)
        else f"{len(one)} entries beside {len(other)}: {(one + other)[min(len(one), len(other))]}"
    )

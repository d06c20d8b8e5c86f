"""Nested containers: taken apart into leaves and a spec, and put together again."""

from __future__ import annotations

from typing import Any

from torchstone.compiler._torch.names import Names, uses

_PYTREE = "torch.utils._pytree"
_NAMES = Names(
    __name__,
    {
        "TreeSpec": (f"{_PYTREE}.TreeSpec", "say how values are nested"),
        "tree_flatten": (f"{_PYTREE}.tree_flatten", "take nested values apart"),
        "tree_leaves": (f"{_PYTREE}.tree_leaves", "list the leaves of nested values"),
        "tree_map": (f"{_PYTREE}.tree_map", "change every leaf of nested values"),
        "tree_map_only": (f"{_PYTREE}.tree_map_only", "change the leaves of one class"),
        "SUPPORTED_NODES": (f"{_PYTREE}.SUPPORTED_NODES", "tell containers by their class"),
        "register_pytree_node": (f"{_PYTREE}.register_pytree_node", "nest values in objects"),
        "map_dynamic_shapes": (
            "torch.export.dynamic_shapes._tree_map_with_path",
            "tell which of a program's arguments an entry of dynamic_shapes is for",
        ),
        "tree_unflatten": (f"{_PYTREE}.tree_unflatten", "nest values as a spec says"),
    },
)


def __getattr__(name: str) -> Any:
    return _NAMES.look_up(name)


@uses(f"{_PYTREE}.is_namedtuple_instance")
def is_container(value: Any) -> bool:
    """Say whether a value is no leaf: a container that PyTorch takes apart."""
    from torch.utils import _pytree

    return type(value) in _pytree.SUPPORTED_NODES or _pytree.is_namedtuple_instance(value)

"""How the arguments of a call are nested, as a message shows it."""

from __future__ import annotations

from torchstone.compiler._torch import pytrees as pytree


class _Leaf:
    def __repr__(self) -> str:
        return "*"


def form(spec: pytree.TreeSpec) -> str:
    """Show how the arguments of a call are nested: ``(*, [*, *], mask=*)``."""
    try:
        args, kwargs = pytree.tree_unflatten([_Leaf()] * spec.num_leaves, spec)
    except Exception:  # a container of the user's that takes no such leaves
        return str(spec)
    return f"({', '.join([*map(repr, args), *(f'{name}={value!r}' for name, value in kwargs.items())])})"

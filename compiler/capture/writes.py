"""Writes that PyTorch's functionalization gives other numbers than eager: to expansions, windows, and beside reads.

Of ``x.expand(1, 3).exp_()`` it makes ``x + (exp(x) - x)``: that rounds, and has no infinities. An expansion that gives
no element a second place is a view like any other, and is made one here before PyTorch sees it. A write to a part of
what is truly expanded is refused; one to the whole is refused by eager.

Of a write to windows, ``x.unfold(0, 2, 3)[1] = 0``, it makes zeros of what lies between them, and refuses windows that
overlap. Both are refused.

Of ``x[:, 1:] += x[:, :-1]`` it reads all before it writes. Eager refuses that where it sees it, and else reads what it
has written, by the order of its kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from torchstone.compiler._torch import pytrees as pytree
from torchstone.compiler._torch.functionalization import FunctionalTensor, was_expanded, was_unfolded
from torchstone.compiler._torch.modes import TorchDispatchMode
from torchstone.compiler._torch.operators import schema_of
from torchstone.compiler._torch.write_order import order_decides
from torchstone.compiler.diagnostics import Unsupported

_ORDER_DECIDES = (
    "{} writes to elements that it reads for other elements: the result hangs on an order that PyTorch leaves open; "
    "clone what is read"
)


class ExactWrites(TorchDispatchMode):
    """What PyTorch functionalizes within it keeps what was written through expanded tensors, or is refused."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        func, args, kwargs = written_exactly(func, args, kwargs or {})
        return func(*args, **kwargs)


def written_exactly(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """The call, or the view that an expansion is.

    Unsupported for a write to a part of an expanded tensor, to windows, or to elements that are read for others.
    """
    if func is torch.ops.aten.expand.default and _expands_nothing(*args[:2]):
        return torch.ops.aten.view.default, (args[0], _sizes_of(*args[:2])), {}
    if schema_of(func).is_mutable and order_decides(func, args, kwargs):
        raise Unsupported(_ORDER_DECIDES.format(func), stage="capture", op=str(func))
    if schema_of(func).is_mutable and any(map(was_expanded, _written(func, args, kwargs))):
        raise Unsupported(f"{func} writes to a part of an expanded tensor", stage="capture", op=str(func))
    if schema_of(func).is_mutable and any(map(was_unfolded, _written(func, args, kwargs))):
        raise Unsupported(f"{func} writes to windows that unfold made; write to slices", stage="capture", op=str(func))
    return func, args, kwargs


def _written(func: Any, args: Any, kwargs: Any) -> Iterator[FunctionalTensor]:
    """The functional tensors that an op writes to."""
    for at, argument in enumerate(schema_of(func).arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[at] if at < len(args) else kwargs.get(argument.name)
            yield from (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, FunctionalTensor))


def _sizes_of(tensor: torch.Tensor, sizes: Sequence[Any]) -> list[Any]:
    """The sizes that a tensor is expanded to, those it keeps among them."""
    added = len(sizes) - tensor.dim()
    kept = [*sizes[:added], *tensor.shape]
    return [own if isinstance(size, int) and size == -1 else size for size, own in zip(sizes, kept, strict=True)]


def _expands_nothing(tensor: torch.Tensor, sizes: Sequence[Any]) -> bool:
    """Whether no element comes to lie in two places, for all that is known without a guard."""
    own = [1] * (len(sizes) - tensor.dim()) + list(tensor.shape)
    return [str(size) for size in _sizes_of(tensor, sizes)] == [str(size) for size in own]

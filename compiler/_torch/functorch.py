"""The transforms of ``torch.func``: grad, vmap and their like."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torchstone.compiler._torch.names import Names, uses

_LAYERS = "torch._C._functorch"
_NAMES = Names(
    __name__,
    {"is_wrapped": (f"{_LAYERS}.is_functorch_wrapped_tensor", "tell tensors that belong to a transform")},
)


def __getattr__(name: str) -> Any:
    return _NAMES.look_up(name)


@contextlib.contextmanager
@uses(f"{_LAYERS}.get_dynamic_layer_stack_depth", f"{_LAYERS}.pop_dynamic_layer_stack_and_undo_to_depth")
def transforms_kept() -> Iterator[None]:
    """Leave the transforms that an error was raised in: PyTorch leaves some of them to the next program."""
    from torch._C._functorch import get_dynamic_layer_stack_depth, pop_dynamic_layer_stack_and_undo_to_depth

    depth = get_dynamic_layer_stack_depth()
    try:
        yield
    finally:
        if get_dynamic_layer_stack_depth() > depth:
            pop_dynamic_layer_stack_and_undo_to_depth(depth)

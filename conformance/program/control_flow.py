"""``torch.cond`` and ``torch.while_loop`` of a program: calls whose branches and bodies are programs themselves.

Where tensors have values, Python's own ``if`` and ``while`` run them, so that every watcher of ops sees those inside.
Where a tracer records, it is given PyTorch's higher-order op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.control_flow import is_traced
from torchstone.compiler._torch.modes import DisableTorchFunction
from torchstone.compiler._torch.tensors import storage_key

COND, WHILE_LOOP = "torch.cond", "torch.while_loop"

MOST_ITERATIONS = 1000
"""Iterations of a loop before it is taken for one without an end."""

Body = Callable[..., Any]


def cond(pred: Tensor, true_fn: Body, false_fn: Body, operands: Sequence[Tensor] = ()) -> Any:
    """One of two functions of the operands, as ``torch.cond``. Raises RuntimeError for what PyTorch refuses."""
    if is_traced():
        return torch.ops.higher_order.cond(pred, true_fn, false_fn, tuple(operands))
    if pred.dtype != torch.bool or pred.numel() != 1:
        raise RuntimeError(f"{COND}: the condition has to be one bool, got {pred.dtype} {tuple(pred.shape)}")
    return _separate((true_fn if bool(pred) else false_fn)(*operands), operands, COND)


def while_loop(cond_fn: Body, body_fn: Body, carried_inputs: Sequence[Tensor]) -> Any:
    """The carried values once ``cond_fn`` of them is false, as ``torch.while_loop``.

    Raises RuntimeError for a loop of more than ``MOST_ITERATIONS``.
    """
    if is_traced():
        return torch.ops.higher_order.while_loop(cond_fn, body_fn, tuple(carried_inputs), ())
    carried = tuple(carried_inputs)
    for done in range(MOST_ITERATIONS):
        if not bool(cond_fn(*carried)):
            return carried if done else tuple(tensor.clone() for tensor in carried)
        carried = tuple(_separate(body_fn(*carried), carried, WHILE_LOOP))
    raise RuntimeError(f"{WHILE_LOOP}: not at an end after {MOST_ITERATIONS} iterations")


def _separate(results: Any, operands: Sequence[Tensor], target: str) -> Any:
    """The results of a body, each in memory of its own: PyTorch refuses others once it traces the call."""
    with DisableTorchFunction():  # whoever watches the program's calls has no interest in these
        taken = {storage_key(tensor) for tensor in operands if tensor.numel()}
        for result in results if isinstance(results, tuple | list) else (results,):
            if isinstance(result, Tensor) and result.numel():
                if storage_key(result) in taken:
                    raise RuntimeError(
                        f"{target}: a result of its body shares memory with an operand or another result"
                    )
                taken.add(storage_key(result))
    return results


FUNCTIONS: Mapping[str, Body] = {COND: cond, WHILE_LOOP: while_loop}
"""What a program calls by these names."""


def higher_order(target: str, args: Sequence[Any]) -> tuple[Any, tuple[Any, ...]] | None:
    """The op and its arguments that a traced graph has for a call of control flow; None for any other call."""
    if target == COND:
        pred, then, otherwise, *operands = args
        return torch.ops.higher_order.cond, (pred, then, otherwise, tuple(operands[0] if operands else ()))
    if target == WHILE_LOOP:
        return torch.ops.higher_order.while_loop, (*args[:2], tuple(args[2]), ())
    return None

"""An executable takes its own example: it is tried once where the program has looked at values.

A program is specialized to what eager computes. Compiled code may add in another order, so that a sum differs in its
last bit; a guard then holds what the compiled code gives for the example, which leads to what eager has decided there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from torchstone.compiler.capture.program import Captured
from torchstone.compiler.capture.trace.generator_state import drawn_as_captured
from torchstone.compiler.diagnostics import NOT_TAKEN, GuardError, Unsupported, raise_bug
from torchstone.compiler.ir import Graph, Operation
from torchstone.compiler.ir.graph import walk
from torchstone.compiler.lowering.target import Kernel
from torchstone.compiler.runtime.control import measuring


def take_example(
    captured: Captured, kernel: Kernel, flat: Graph, args: Sequence[Any], kwargs: Mapping[str, Any] | None
) -> None:
    """Run a kernel on the example, to set the floats that its guards hold. Nothing but these changes.

    Unsupported where a number is so close to where the program decides otherwise that the kernel does.
    """
    if not any(map(_asks, walk(flat))):
        return
    try:
        tensors = captured.arguments(args, kwargs or {})
    except GuardError:  # a call with the example says what about it
        return
    try:
        with drawn_as_captured(), torch.no_grad(), measuring() as measured:
            kernel(tensors)
    except GuardError as error:
        message = f"the compiled code decides otherwise than eager for the example: {error.message}"
        raise Unsupported(message, stage="compile", op=error.op, where=error.where) from None
    except Unsupported:
        raise
    except Exception as error:  # anything: what the program raises, a call raises
        raise_bug(error)
        return
    for op, number in measured:
        op.attributes["value"] = number


def _asks(op: Operation) -> bool:
    if op.name == "flat.check":
        return str(op.attributes["message"]).startswith(NOT_TAKEN)
    return op.name in ("flat.specialize", "flat.answer", "flat.require")

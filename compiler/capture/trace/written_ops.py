"""Ops that are recorded as others: those whose kernels are written in ATen, and what goes by the order of a matrix."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

from torchstone.compiler._torch.operators import call_for_any_device, is_only_composite
from torchstone.compiler.capture.trace.special_ops import FACTORED_BY_ORDER

# Of the quantizers of torch.export.
NAMESPACES = frozenset({"quantized_decomposed"})


def call_written(mode: AbstractContextManager[Any], func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Call such an op under the mode that records; NotImplemented for one that is to be recorded itself.

    Autograd takes composites apart. Where it has no part, in inference mode and within a kernel, they come as they are.
    """
    if func in FACTORED_BY_ORDER and not args[0].is_contiguous() and not args[0].is_complex():
        with mode:
            return func(args[0].mT.clone(memory_format=torch.contiguous_format))
    if func.namespace in NAMESPACES:
        with mode:
            return call_for_any_device(func, *args, **kwargs)
    if not is_only_composite(func):
        return NotImplemented
    with mode:
        return func.decompose(*args, **kwargs)

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
    if func is torch.ops.aten.batch_norm_update_stats.default:
        with mode:
            return _update_stats(*args, **kwargs)
    if func.namespace in NAMESPACES:
        with mode:
            return call_for_any_device(func, *args, **kwargs)
    if not is_only_composite(func):
        return NotImplemented
    with mode:
        return func.decompose(*args, **kwargs)


def _update_stats(
    x: torch.Tensor, running_mean: torch.Tensor | None, running_var: torch.Tensor | None, momentum: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean and the biased variance of each channel. Its schema does not say that it updates the running
    statistics; nor does that of a batch norm, whose writes are recorded."""
    dtype = x.dtype
    if running_mean is not None or running_var is not None:
        given = x, None, None, running_mean, running_var
        _, mean, _ = torch.ops.aten.native_batch_norm.default(*given, True, momentum, 0.0)
        dtype = mean.dtype  # that of the statistics, where they have more digits
    dims = [dim for dim in range(x.dim()) if dim != 1]
    var, mean = torch.ops.aten.var_mean.correction(x.to(dtype), dims, correction=0)
    return mean, var

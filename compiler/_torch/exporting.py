"""torch.export where its public entry does not serve."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from torchstone.compiler._torch.names import uses


@uses("torch.export._trace._export")
def export_below_autograd(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> torch.export.ExportedProgram:
    """Export a module as the ops that run below autograd: composite ops are taken apart, with what they keep for it."""
    from torch.export._trace import _export

    return _export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False, pre_dispatch=False)


def in_grad_mode(enabled: bool) -> AbstractContextManager[Any]:
    """Have gradients taken or not, whatever the caller has: below autograd, torch.export runs a program without."""
    return nullcontext() if torch.is_grad_enabled() == enabled else torch.set_grad_enabled(enabled)

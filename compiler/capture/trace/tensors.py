"""What a tensor of the program is in a graph: its type, and whether it has any numbers."""

from __future__ import annotations

from typing import Any

import torch

from torchstone.compiler._torch.pytrees import tree_leaves
from torchstone.compiler.capture.symbolic.sizes import to_dim
from torchstone.compiler.capture.trace.aten_literals import dtype_of
from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir import TensorType


def holds_no_numbers(args: Any, kwargs: Any) -> bool:
    """Say whether a call is of the device ``meta``, where PyTorch's own Python code works out shapes and dtypes."""
    devices = (x.device if isinstance(x, torch.Tensor) else x for x in tree_leaves((args, kwargs)))
    return any(isinstance(device, torch.device) and device.type == "meta" for device in devices)


def tensor_type(tensor: torch.Tensor) -> TensorType:
    """Return the IR type; Unsupported for layouts other than strided, and for devices other than the CPU."""
    if tensor.device.type != "cpu":
        raise Unsupported(f"a tensor on device {tensor.device}", stage="capture")
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        kind = "quantized" if tensor.is_quantized else "nested" if tensor.is_nested else str(tensor.layout)
        raise Unsupported(f"a {kind} tensor", stage="capture")
    return TensorType(tuple(to_dim(s) for s in tensor.shape), dtype_of(tensor.dtype))

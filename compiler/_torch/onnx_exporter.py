"""The exporter to ONNX, by the parts that ``torch.onnx.export`` puts together anew for each program."""

from __future__ import annotations

import functools
import logging
from typing import Any

from torchstone.compiler._torch.names import uses

_EXPORTER = "torch.onnx._internal.exporter"


@uses("torch.onnx._constants.ONNX_DEFAULT_OPSET", f"{_EXPORTER}._core.export")
def export(program: Any) -> Any:
    """Export a program of torch.export to the usual version of ONNX, as torch.onnx.export does."""
    from torch.onnx import _constants
    from torch.onnx._internal.exporter import _core

    opset = _constants.ONNX_DEFAULT_OPSET
    return _core.export(program, registry=_functions(opset), verbose=False, optimize=True, opset_version=opset)


@functools.cache
@uses(
    f"{_EXPORTER}._decomp.create_onnx_friendly_decomposition_table",
    f"{_EXPORTER}._decomp.get_onnx_implemented_overloads",
)
def decompositions() -> dict[Any, Any]:
    """Return the table that the exporter has PyTorch decompose by."""
    from torch.onnx import _constants
    from torch.onnx._internal.exporter import _decomp

    known = set(_decomp.get_onnx_implemented_overloads(_functions(_constants.ONNX_DEFAULT_OPSET)))
    return dict(_decomp.create_onnx_friendly_decomposition_table(known))


@functools.cache
@uses(f"{_EXPORTER}._registration.ONNXRegistry.from_torchlib")
def _functions(opset: int) -> Any:
    """Make the table of ONNX functions for ATen ops, which takes 2 s."""
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    logging.getLogger(ONNXRegistry.__module__).setLevel(logging.ERROR)  # torchvision is missing, it says
    return ONNXRegistry.from_torchlib(opset_version=opset)

"""Use the plain dtype of a kind: float32, int64, complex64."""

from __future__ import annotations

import torch

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import dtype_name
from torchstone.reducers.edit import map_arguments, trim, with_inputs
from torchstone.reducers.order import dtype_cost
from torchstone.reducers.problem import Rewrite


def simplify_dtypes(case: Case) -> Rewrite[Case]:
    """Try each dtype, in all inputs and in the program at once, as float32 or as the plain one of its kind."""
    for dtype in dict.fromkeys(tensor.dtype for tensor in case.args):
        for target in (torch.float32, _plain(dtype)):
            if dtype_cost(target) < dtype_cost(dtype):
                candidate = _cast(case, dtype, target)
                if (yield candidate):
                    case = candidate
                    break


def _plain(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return torch.complex64
    return torch.float32 if dtype.is_floating_point else torch.int64


def _cast(case: Case, dtype: torch.dtype, target: torch.dtype) -> Case:
    real = dtype.is_complex and not target.is_complex  # asked for: PyTorch warns where a cast drops the imaginary part
    kept = {name: trim(tensor) for name, tensor in case.inputs.items() if tensor.dtype == dtype}
    inputs = {name: (tensor.real.clone() if real else tensor).to(target) for name, tensor in kept.items()}
    changed = map_arguments(with_inputs(case, inputs), lambda leaf: target if leaf == dtype else leaf)
    return changed.replace(dtype=dtype_name(target)) if case.dtype == dtype_name(dtype) else changed

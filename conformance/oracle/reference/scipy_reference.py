"""SciPy as a second reference: special functions that eager itself computes with few digits, in float64 too.

The float64 run of a float64 program is eager again, and of some special functions it has fewer digits than a good
backend: see docs/pytorch-findings.md. SciPy's are independent of PyTorch's, and right to a few ULPs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchstone.conformance.oracle.op_traits.references import IN_SCIPY
from torchstone.conformance.oracle.tolerances import SCIPY_TOLERANCE
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.program.program import Program


def scipy_values(program: Program, args: tuple[Tensor, ...], values: Tensor) -> Tensor | None:
    """``values``, the result of the float64 run, with SciPy's in their places where it has the same function.

    Where they are NaN too: eager's kernel gave up there.
    """
    if len(program.calls) != 1 or program.outputs != Ref(program.calls[0].result) or program.calls[0].kwargs:
        return None
    call = program.calls[0]
    name = call.target.removeprefix("torch.").removeprefix("Tensor.").removeprefix("special.")
    if not IN_SCIPY.has(name) or values.is_complex():
        return None
    import scipy.special  # a second, and only for cases that need it

    with np.errstate(all="ignore"):
        out = getattr(scipy.special, IN_SCIPY.ops[name] or name)(*(_array(v) for v in program.fill(call.args, args)))
    exact = torch.from_numpy(np.array(out, dtype=np.float64))
    if exact.shape != values.shape:
        return None
    close = torch.abs(exact - values) <= SCIPY_TOLERANCE * exact.abs().clamp(min=1.0)
    return torch.where(close | torch.isnan(values), exact, values)


def _array(value: Any) -> Any:
    return value.detach().to(torch.float64).numpy() if isinstance(value, Tensor) else value

"""SciPy as a second referee: special functions that eager itself computes with few digits, in float64 too.

The float64 run of a float64 program is eager again, and of some special functions it has fewer digits than a good
backend: see docs/pytorch-findings.md. SciPy's are independent of PyTorch's, and right to a few ULPs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchstone.conformance.oracle.tolerances import SAME_FUNCTION
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.program.program import Program

_ALIKE = """
    digamma polygamma erf erfc erfcx erfinv ndtr ndtri log_ndtr zeta gammainc gammaincc i0 i0e i1 i1e gammaln
"""
_UNLIKE = {
    "igamma": "gammainc",
    "igammac": "gammaincc",
    "lgamma": "gammaln",
    "psi": "digamma",
    "bessel_j0": "j0",
    "bessel_j1": "j1",
    "bessel_y0": "y0",
    "bessel_y1": "y1",
    "modified_bessel_i0": "i0",
    "modified_bessel_i1": "i1",
    "modified_bessel_k0": "k0",
    "modified_bessel_k1": "k1",
    "scaled_modified_bessel_k0": "k0e",
    "scaled_modified_bessel_k1": "k1e",
}
# PyTorch's name, less "torch." or "torch.special.", and SciPy's.
_NAMES = {name: name for name in _ALIKE.split()} | _UNLIKE


def second_opinion(program: Program, args: tuple[Tensor, ...], values: Tensor) -> Tensor | None:
    """``values``, the result of the float64 run, with SciPy's in their places where it has the same function."""
    if len(program.calls) != 1 or program.outputs != Ref(program.calls[0].result) or program.calls[0].kwargs:
        return None
    call = program.calls[0]
    name = _NAMES.get(call.target.removeprefix("torch.").removeprefix("Tensor.").removeprefix("special."))
    if name is None or values.is_complex():
        return None
    import scipy.special  # a second, and only for cases that need it

    with np.errstate(all="ignore"):
        out = getattr(scipy.special, name)(*(_array(v) for v in program.fill(call.args, args)))
    exact = torch.from_numpy(np.array(out, dtype=np.float64))
    if exact.shape != values.shape:
        return None
    close = torch.abs(exact - values) <= SAME_FUNCTION * exact.abs().clamp(min=1.0)
    return torch.where(close, exact, values)


def _array(value: Any) -> Any:
    return value.detach().to(torch.float64).numpy() if isinstance(value, Tensor) else value

"""Functions that eager's kernels have NaN for at infinity, by the limits that they have there.

i0(inf) is inf; eager's exp(x) / sqrt(x) is inf / inf.
"""

from __future__ import annotations

from typing import Any

import torch

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.compiler._torch.operators import base_name
from torchstone.conformance.oracle.op_traits.references import GROWS_WITHOUT_END

EVEN = frozenset({"i0", "special_modified_bessel_i0"})


class LimitsAtInfinity(ComputingMode):
    """Runs what is inside it with these limits in the place of NaN."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        if not GROWS_WITHOUT_END.holds(func):
            return func(*args, **(kwargs or {}))
        x = args[0].to(torch.float64, copy=True)  # what is computed in place is gone afterwards
        out = func(*args, **(kwargs or {}))
        limits = (x.abs() if base_name(func).rstrip("_") in EVEN else x).to(out.dtype)
        return out.copy_(torch.where(torch.isinf(x), limits, out))

"""Functions whose eager kernels lose a NaN, by the formulas that PyTorch documents.

- The fused kernel of attention takes a row whose largest logit compares as smaller than -inf for one that is masked
  entirely: a NaN in it gives NaN or 0, by the length of the row and the width of the machine's vectors.
- The orthogonal polynomials of NaN, from degree 2 on, leave their loop before its first step and return a variable
  that was never set.
- A margin loss is a sum of ``max(0, margin - difference)``. The kernel adds what is above 0, which NaN is not.
- The mean of no elements is 0 / 0, and so it is by ``torch.mean``. A layer norm or a group norm returns 0.

Their results there are no function of the inputs. A number elsewhere is judged by eager, as ever.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.conformance.oracle.op_traits.rounding import RECURRENCE
from torchstone.conformance.oracle.op_traits.undetermined import LOSES_NAN
from torchstone.conformance.oracle.perturbation.decompositions import MAX_DEGREE, decompositions


@functools.cache
def _formulas() -> dict[Any, Any]:
    return {op: formula for op, formula in decompositions().items() if LOSES_NAN.holds(op)}


class ByDocumentedFormulas(ComputingMode):
    """Runs what is inside it with these functions by their formulas, in float64."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        if LOSES_NAN.holds(func) and RECURRENCE.holds(func):  # which degree does not matter to a NaN
            x, degree = args
            degree = torch.as_tensor(degree, dtype=torch.float64)
            args = x, torch.where(degree.abs() < 2.0**63, degree.clamp(max=MAX_DEGREE), degree)
        return _formulas().get(func, func)(*args, **(kwargs or {}))

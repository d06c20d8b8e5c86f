"""Functions whose eager kernels lose a NaN, or make one, by the formulas that PyTorch documents.

- The fused kernel of attention takes a row whose largest logit compares as smaller than -inf for one that is masked
  entirely: a NaN in it gives NaN or 0, by the length of the row and the width of the machine's vectors. It multiplies
  the -inf of a causal mask by the scale, too, which is NaN of a scale of 0, and an infinity of one below.
- The orthogonal polynomials of NaN, from degree 2 on, leave their loop before its first step and return a variable
  that was never set.
- A margin loss is a sum of ``max(0, margin - difference)``. The kernel adds what is above 0, which NaN is not.
- The libraries for products of matrices take no notice of an alpha of NaN, depending on the sizes: MKL adds the product
  of two matrices of 13 by 13 as it is.
- The mean of no elements is 0 / 0, and so it is by ``torch.mean``. A layer norm or a group norm returns 0.

Their results there are no function of the inputs. A number elsewhere is judged by eager, as ever.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.conformance.oracle.op_traits.rounding import RECURRENCE
from torchstone.conformance.oracle.op_traits.undetermined import LOSES_NAN
from torchstone.conformance.oracle.perturbation.decompositions import MAX_DEGREE, decompositions


@functools.cache
def _formulas() -> dict[Any, Any]:
    return {op: formula for op, formula in decompositions().items() if LOSES_NAN.holds(op)}


_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


def _masked_once(query: Tensor, key: Tensor, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Attention's arguments with the causal mask in the other one: the kernel takes both, the formula does not."""
    value, dropout, causal = (*args, *(0.0, False)[len(args) - 1 :])
    mask = kwargs.get("attn_mask")
    if not causal or mask is None:
        return (query, key, *args), kwargs
    earlier = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
    return (query, key, value, dropout, False), kwargs | {"attn_mask": torch.where(earlier, mask, -torch.inf)}


class ByDocumentedFormulas(ComputingMode):
    """Runs what is inside it with these functions by their formulas, in float64."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        if LOSES_NAN.holds(func) and RECURRENCE.holds(func):  # which degree does not matter to a NaN
            x, degree = args
            degree = torch.as_tensor(degree, dtype=torch.float64)
            args = x, torch.where(degree.abs() < 2.0**63, degree.clamp(max=MAX_DEGREE), degree)
        kwargs = kwargs or {}
        if func is _ATTENTION:
            args, kwargs = _masked_once(*args[:2], args[2:], kwargs)
        return _formulas().get(func, func)(*args, **kwargs)

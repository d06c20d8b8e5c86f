"""PyTorch's own decompositions in place of its kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from torchstone.compiler._torch import decompositions
from torchstone.compiler._torch.operators import base_name
from torchstone.conformance.controls.control import Control, Kernel, described, finding


@functools.cache
def core_table() -> Mapping[Any, Callable[..., Any]]:
    """PyTorch's decompositions to core ATen."""
    table = decompositions.core_aten_decompositions()
    return {op: table[op] for op in table}


@functools.cache
def _references() -> Mapping[Any, Callable[..., Any]]:
    return decompositions.whole_table()


_FMOD = "takes the remainder by eager's vectorized fmod, which is NaN where the quotient leaves the range"
LEFT_OUT = {
    "div.Scalar_mode": _FMOD,
    "div.Tensor_mode": _FMOD,
    "floor_divide": _FMOD,
    "remainder": _FMOD,
    "sigmoid": "is NaN for complex numbers whose exponential leaves the range",
    "logit_backward": "is 0 for NaN, and has the other infinity for -0",
    "smooth_l1_loss_backward": "loses NaN",
    "nll_loss_backward": "multiplies an infinite gradient, or weight, by the zeros of other classes",
    "nll_loss2d_backward": "multiplies an infinite gradient, or weight, by the zeros of other classes",
    "_unsafe_masked_index": "takes the first place for each that is counted from the end",
    "upsample_linear1d": "multiplies infinities by weights of 0, which eager does not read",
    "upsample_bilinear2d": "multiplies infinities by weights of 0, which eager does not read",
    "upsample_trilinear3d": "multiplies infinities by weights of 0, which eager does not read",
    "upsample_bicubic2d": "multiplies infinities by weights of 0, which eager does not read",
}
"""Operators and overloads whose decomposition is another function than the operator, and how: none of a right
backend."""


def _rule(table: Callable[[], Mapping[Any, Callable[..., Any]]], func: Any) -> Kernel | None:
    rule = table().get(func)
    if rule is None or base_name(func) in LEFT_OUT or described(func) in LEFT_OUT:
        return None

    def kernel(*args: Any, **kwargs: Any) -> Any:
        try:
            return rule(*args, **kwargs)
        except Exception:  # a decomposition that does not take these arguments: the op itself does
            return NotImplemented

    return kernel


CONTROLS: tuple[Control, ...] = (
    finding(
        "core_decompositions",
        "PyTorch's decompositions to core ATen. Steps that round get the room of a rounding model.",
        functools.partial(_rule, core_table),
        within=True,
    ),
    finding(
        "references",
        "PyTorch's references in Python, down to its primitives. Steps that round get the room of a rounding model.",
        functools.partial(_rule, _references),
        within=True,
    ),
)

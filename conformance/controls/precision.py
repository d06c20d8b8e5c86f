"""Other precisions inside an op: float64 rounded once, numbers that keep their digits, subnormals that are flushed."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.operators import base_name
from torchstone.compiler._torch.pytrees import tree_flatten, tree_leaves, tree_map, tree_unflatten
from torchstone.conformance.controls.control import Control, Kernel, finding, operator, replacing
from torchstone.conformance.controls.operands import accumulator
from torchstone.conformance.oracle.exactness.steps import never_rounds
from torchstone.conformance.oracle.perturbation.subnormals import FLUSHED, flushed

_WIDER = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}

_READ_THE_DTYPE = frozenset({"nextafter", "nan_to_num", "copysign", "_to_copy", "frexp", "ldexp", "polar", "complex"})
"""Pointwise operators whose results are defined by the dtype of their operands, or that take no operands to widen."""

_ACCUMULATIONS = """
    sum sum.dim_IntList mean mean.dim nansum prod prod.dim_int cumsum cumprod logcumsumexp logsumexp var.correction
    std.correction var_mean.correction std_mean.correction linalg_vector_norm mm bmm mv dot vdot addmm baddbmm addmv
    convolution _softmax _log_softmax native_layer_norm native_group_norm avg_pool2d avg_pool3d _adaptive_avg_pool2d
    _adaptive_avg_pool3d upsample_bilinear2d upsample_bicubic2d grid_sampler_2d grid_sampler_3d _cdist_forward
    linalg_inv_ex _linalg_solve_ex linalg_cholesky_ex linalg_solve_triangular triangular_solve cholesky_inverse
    linalg_matrix_exp mse_loss smooth_l1_loss huber_loss binary_cross_entropy nll_loss_forward nll_loss2d_forward
    linalg_cross trace renorm _pdist_forward dist
"""


def _narrow(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.dtype in _WIDER


def _in_float64(func: Any, *args: Any, **kwargs: Any) -> Any:
    """An operator on its operands in float64, the results rounded to what eager gives."""
    leaves = tree_leaves((args, kwargs))
    if not any(map(_narrow, leaves)) or any(isinstance(leaf, torch.dtype) for leaf in leaves):
        return NotImplemented
    like = tree_flatten(func(*args, **kwargs))[0]  # for the dtypes alone: shape functions have others at times
    if not any(map(_narrow, like)):
        return NotImplemented
    computes = accumulator(next(leaf.dtype for leaf in leaves if _narrow(leaf)))
    numbers = functools.partial(_rounded_number, dtype=torch.float64 if computes.is_complex else computes)
    args, kwargs = (tree_map(lambda leaf: numbers(_widened(leaf)), each) for each in (args, kwargs))
    results, spec = tree_flatten(func(*args, **kwargs))
    out = [
        each.to(wanted.dtype) if isinstance(each, Tensor) else each for each, wanted in zip(results, like, strict=True)
    ]
    return tree_unflatten(out, spec)


def _widened(leaf: Any) -> Any:
    return leaf.to(_WIDER[leaf.dtype]) if _narrow(leaf) else leaf


def _rounded_number(leaf: Any, dtype: torch.dtype) -> Any:
    """A Python number as eager takes it: in the dtype that it computes in."""
    if not isinstance(leaf, float) or not math.isfinite(leaf):
        return leaf
    rounded = float(torch.tensor(leaf, dtype=dtype))
    return rounded if math.isfinite(rounded) else leaf


@functools.cache
def _once(func: Any) -> Kernel | None:
    if func is None:
        return None
    pointwise = torch.Tag.pointwise in func.tags and base_name(func) not in _READ_THE_DTYPE
    drawn = torch.Tag.nondeterministic_seeded in func.tags
    if drawn or not (pointwise or func in _accumulations()):
        return None
    return functools.partial(_in_float64, func)


@functools.cache
def _accumulations() -> frozenset[Any]:
    return frozenset(operator(name) for name in _ACCUMULATIONS.split())


# Numbers beside tensors keep their digits


def _wide_number(compute: Any) -> Kernel:
    def kernel(x: Any, y: Any, *, alpha: Any = 1) -> Any:
        given = [each for each in (x, y) if isinstance(each, Tensor) and each.dim()]
        number = next((each for each in (x, y) if not (isinstance(each, Tensor) and each.dim())), None)
        if len(given) != 1 or not given[0].is_floating_point() or isinstance(number, complex):
            return NotImplemented
        if isinstance(number, Tensor) and number.is_complex():
            return NotImplemented
        left, right = (each.double() if isinstance(each, Tensor) else float(each) for each in (x, y))
        return compute(left, right if alpha == 1 else right * alpha).to(given[0].dtype)

    return kernel


# Subnormal results are flushed


@functools.cache
def _flushing(func: Any) -> Kernel | None:
    if func is None or never_rounds(func) or torch.Tag.nondeterministic_seeded in func.tags:
        return None

    def kernel(*args: Any, **kwargs: Any) -> Any:
        return tree_map(_flushed, func(*args, **kwargs))

    return kernel


def _flushed(leaf: Any) -> Any:
    flushes = isinstance(leaf, Tensor) and leaf.dtype in FLUSHED and leaf.layout is torch.strided
    return flushed(leaf) if flushes else leaf


CONTROLS: tuple[Control, ...] = (
    finding(
        "float64_rounded_once",
        "Each step in float64, rounded once to the dtype of the result: as close to float64 as can be.",
        _once,
    ),
    replacing(
        "wide_numbers",
        "Python numbers and 0-d tensors beside other tensors keep all their digits, and the sum, product or quotient "
        "is rounded once: a number nearer to float64 than eager's never fails.",
        {
            "add.Tensor": _wide_number(torch.add),
            "sub.Tensor": _wide_number(torch.sub),
            "mul.Tensor": _wide_number(torch.mul),
            "div.Tensor": _wide_number(torch.div),
        },
    ),
    finding(
        "flushed_subnormals",
        "Subnormal results of steps that round are zeros of their sign. The floor of the tolerances is the smallest "
        "normal number; float16 keeps its subnormals.",
        _flushing,
    ),
)

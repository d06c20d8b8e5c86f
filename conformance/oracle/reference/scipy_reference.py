"""SciPy as a second reference: special functions that eager itself computes with few digits, in float64 too.

The float64 run of a float64 program is eager again, and of some special functions it has fewer digits than a good
backend: see docs/pytorch-findings.md. SciPy's are independent of PyTorch's, and right to a few ULPs; those that are not
are mpmath's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchstone.compiler._torch.tensors import storage_key
from torchstone.conformance.oracle.op_traits.references import BY_SCIPY, IN_SCIPY
from torchstone.conformance.oracle.op_traits.trait import Implementations
from torchstone.conformance.oracle.tolerances import SCIPY_TOLERANCE
from torchstone.conformance.oracle.ulp import wide
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.program.program import Call, Program

MPMATH_DIGITS = 30
MPMATH_LARGEST, MPMATH_MOST = 1000.0, 4096
"""Up to which operands, and for how many numbers, mpmath is asked: a millisecond each."""


def scipy_values(program: Program, args: tuple[Tensor, ...], values: Tensor) -> Tensor | None:
    """``values``, the result of the float64 run, with SciPy's in their places where it has the same function.

    Where they are NaN too: eager's kernel gave up there.
    """
    call = _alone(program, args)
    if call is None:
        return None
    function = _function(call.target.removeprefix("torch.").removeprefix("Tensor.").removeprefix("special."))
    own = function in _FORMULAS.functions.values()
    if function is None or (not own and (call.kwargs or values.is_complex())):
        return None
    with np.errstate(all="ignore"):
        out = function(*(_array(v) for v in program.fill(call.args, args)), **call.kwargs)
    exact = torch.from_numpy(np.array(out, dtype=np.complex128 if values.is_complex() else np.float64))
    if exact.shape != values.shape:
        return None
    close = torch.abs(exact - values) <= SCIPY_TOLERANCE * exact.abs().clamp(min=1.0)
    return torch.where(close | torch.isnan(values), exact, values)


def _alone(program: Program, args: tuple[Tensor, ...]) -> Call | None:
    """The call of inputs that gives the result, if no other call is given any of their memory, or the result."""
    (call,) = [call for call in program.calls if Ref(call.result) == program.outputs] or [None]
    memory = {name: storage_key(tensor) for name, tensor in zip(program.inputs, args, strict=True)}
    own = {ref.name for ref in call.refs()} if call is not None else set()
    others = {ref.name for each in program.calls if each is not call for ref in each.refs()}
    if call is None or not own <= memory.keys() or call.result in others:
        return None
    return None if {memory[name] for name in own} & {memory.get(name) for name in others} else call


_FORMULAS: Implementations[Callable[..., Any]] = Implementations(BY_SCIPY)


def _function(name: str) -> Callable[..., Any] | None:
    """What computes a function of PyTorch by SciPy's, on arrays."""
    if not IN_SCIPY.has(name):
        return _FORMULAS.get(name)
    import scipy.special  # a second, and only for cases that need it

    function: Callable[..., Any] = getattr(scipy.special, IN_SCIPY.ops[name] or name)
    return function


@_FORMULAS.register("nn.functional.gelu")
def _gelu(x: Any, *, approximate: str = "none") -> Any:
    import scipy.special

    if approximate == "none":
        return x * scipy.special.ndtr(x)
    return x * scipy.special.expit(2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))


@_FORMULAS.register("acos", "arccos")
def _acos(x: Any) -> Any:
    return np.arccos(x)


@_FORMULAS.register("log1p")
def _log1p(x: Any) -> Any:
    return np.log1p(x)


@_FORMULAS.register("logaddexp")
def _logaddexp(x: Any, y: Any) -> Any:
    larger, smaller = np.where(x.real >= y.real, x, y), np.where(x.real >= y.real, y, x)
    return larger + np.log1p(np.exp(smaller - larger))


@_FORMULAS.register("logcumsumexp")
def _logcumsumexp(x: Any, dim: int) -> Any:
    if not x.ndim:
        return x
    rows = itertools.accumulate(np.moveaxis(x, dim, 0), _logaddexp)
    return np.moveaxis(np.stack(list(rows)), 0, dim) if x.size else x


@_FORMULAS.register("igamma", "gammainc")
def _lower_gamma(a: Any, x: Any) -> Any:
    return _incomplete_gamma(a, x, lower=True)


@_FORMULAS.register("igammac", "gammaincc")
def _upper_gamma(a: Any, x: Any) -> Any:
    return _incomplete_gamma(a, x, lower=False)


def _incomplete_gamma(a: Any, x: Any, lower: bool) -> Any:
    """In many digits where that takes little time, and as SciPy has it elsewhere."""
    import mpmath  # as SciPy: for cases that need it
    import scipy.special

    a, x = np.broadcast_arrays(a, x)
    out = np.array((scipy.special.gammainc if lower else scipy.special.gammaincc)(a, x))
    known = (a > 0) & (x > 0) & (a <= MPMATH_LARGEST) & (x <= MPMATH_LARGEST)
    if known.sum() > MPMATH_MOST:
        return out
    with mpmath.workdps(MPMATH_DIGITS):
        for at in map(tuple, np.argwhere(known)):  # of no dims, too
            bounds = (0, float(x[at])) if lower else (float(x[at]), mpmath.inf)
            out[at] = float(mpmath.gammainc(float(a[at]), *bounds, regularized=True))
    return out


def _array(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return wide(value).resolve_conj().resolve_neg().numpy()

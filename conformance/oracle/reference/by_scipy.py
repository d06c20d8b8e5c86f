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

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.conformance.oracle.op_traits.references import BY_SCIPY, IN_SCIPY
from torchstone.conformance.oracle.op_traits.trait import Implementations, names_of
from torchstone.conformance.oracle.tolerances import SCIPY_TOLERANCE
from torchstone.conformance.oracle.ulp import wide

MPMATH_DIGITS = 30
MPMATH_LARGEST, MPMATH_MOST = 1000.0, 4096
"""Up to which operands, and for how many numbers, mpmath is asked: a millisecond each."""


class BySciPy(ComputingMode):
    """Runs what is inside it with SciPy's values of the functions that it has.

    Where SciPy means another function, at a pole or an edge, eager's stay; not where eager's are NaN: its kernel gave
    up there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found = False
        """Whether any of the functions was called."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        given = dict(kwargs or {})
        exact = _exact(func, args, {name: value for name, value in given.items() if name != "out"})
        out = func(*args, **given)
        if exact is None or exact.shape != out.shape or exact.is_complex() != out.is_complex():
            return out
        self.found = True
        close = torch.abs(exact - out) <= SCIPY_TOLERANCE * exact.abs().clamp(min=1.0)
        return out.copy_(torch.where(close | torch.isnan(out), exact, out))


def _exact(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    """What SciPy gives for a call of an operator; None where it has no such function."""
    function, known = _FORMULAS.of(func), IN_SCIPY.holds(func)
    operands = [arg for arg in args if isinstance(arg, Tensor)]
    is_complex = any(tensor.is_complex() for tensor in operands)
    if function is None and (not known or kwargs or is_complex):
        return None
    with np.errstate(all="ignore"):
        out = (function or _of_scipy(func))(*map(_array, args), **kwargs)
    return torch.from_numpy(np.array(out, dtype=np.complex128 if is_complex else np.float64))


def _of_scipy(func: Any) -> Callable[..., Any]:
    import scipy.special  # a second, and only for cases that need it

    own = next(name for name in names_of(func) if name in IN_SCIPY.ops)
    function: Callable[..., Any] = getattr(scipy.special, IN_SCIPY.ops[own] or own)
    return function


_FORMULAS: Implementations[Callable[..., Any]] = Implementations(BY_SCIPY)


@_FORMULAS.register("gelu")
def _gelu(x: Any, *, approximate: str = "none") -> Any:
    import scipy.special

    if approximate == "none":
        return x * scipy.special.ndtr(x)
    return x * scipy.special.expit(2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))


@_FORMULAS.register("special_erfcx")
def _erfcx(x: Any) -> Any:
    import scipy.special

    square = x * x
    with_digits = np.exp(square) * scipy.special.erfc(x) * (1.0 + _lost_by_squaring(x, square))
    return np.where((x < -1.0) & np.isfinite(with_digits), with_digits, scipy.special.erfcx(x))


def _lost_by_squaring(x: Any, square: Any) -> Any:
    """What a rounded square lacks, exactly (Dekker, A floating-point technique for extending the available precision,
    1971)."""
    split = x * (2.0**27 + 1.0)
    high = split - (split - x)
    low = x - high
    return ((high * high - square) + 2.0 * high * low) + low * low


@_FORMULAS.register("acos")
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


@_FORMULAS.register("igamma")
def _lower_gamma(a: Any, x: Any) -> Any:
    return _incomplete_gamma(a, x, lower=True)


@_FORMULAS.register("igammac")
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

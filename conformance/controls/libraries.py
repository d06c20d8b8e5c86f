"""Kernels of other libraries: NumPy's functions, SciPy's special functions and Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import Tensor

from torchstone.conformance.controls.contractions import contractions
from torchstone.conformance.controls.control import Kernel, replacing
from torchstone.conformance.controls.operands import elementwise
from torchstone.conformance.controls.summation import reduction


def array(tensor: Tensor) -> Any:
    return tensor.detach().resolve_conj().resolve_neg().numpy()


def tensor(value: Any, dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(numpy.array(value, copy=True)).to(dtype)


def numpy_function(name: str) -> Kernel:
    compute = getattr(numpy, name)

    def kernel(x: Tensor) -> Tensor:
        with numpy.errstate(all="ignore"):
            return tensor(compute(array(x)), x.dtype)

    return elementwise(kernel)


def _reduced(name: str) -> Callable[[Tensor], Tensor]:
    def combine(terms: Tensor) -> Tensor:
        with numpy.errstate(all="ignore"):
            return tensor(getattr(numpy, name)(array(terms), axis=0), terms.dtype)

    return combine


def _product(a: Tensor, b: Tensor) -> Tensor:
    with numpy.errstate(all="ignore"):
        return tensor(numpy.einsum("...ij,...jk->...ik", array(a), array(b)), a.dtype)


_NUMPY = """
    exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh sqrt asin=arcsin acos=arccos atan=arctan
    asinh=arcsinh acosh=arccosh atanh=arctanh
"""


def numpy_kernels() -> dict[str, Kernel]:
    pairs = (word.partition("=") for word in _NUMPY.split())
    table = {name: numpy_function(other or name) for name, _, other in pairs}
    total, product = reduction(_reduced("sum"), 0.0), reduction(_reduced("prod"), 1.0)
    return {
        **table,
        "sum": total,
        "sum.dim_IntList": total,
        "prod": product,
        "prod.dim_int": product,
        **contractions(_product),
    }


# SciPy's special functions, in float64

_SCIPY = """
    erf erfc erfinv special_erfcx=erfcx special_ndtri=ndtri special_log_ndtr=log_ndtr lgamma=gammaln digamma i0
    special_i0e=i0e special_i1=i1 special_i1e=i1e special_bessel_j0=j0 special_bessel_j1=j1 special_bessel_y0=y0
    special_bessel_y1=y1 special_modified_bessel_i0=i0 special_modified_bessel_i1=i1 special_modified_bessel_k0=k0
    special_modified_bessel_k1=k1 special_scaled_modified_bessel_k0=k0e special_scaled_modified_bessel_k1=k1e
"""


def scipy_function(name: str, eager: Callable[..., Any]) -> Kernel:
    """A special function, in float64; where an operand is not finite, or SciPy has no number, the value is eager's."""

    def kernel(x: Tensor) -> Tensor:
        from scipy import special

        with numpy.errstate(all="ignore"):
            out = tensor(getattr(special, name)(array(x.double())), torch.float64)
        usual = torch.isfinite(x) & torch.isfinite(out)
        return torch.where(usual, out, eager(x).double()).to(x.dtype)

    return elementwise(kernel)


def scipy_binary(name: str, eager: Callable[..., Any]) -> Kernel:
    def kernel(x: Any, y: Any) -> Any:
        if not all(isinstance(each, Tensor) and each.is_floating_point() for each in (x, y)) or x.dtype != y.dtype:
            return NotImplemented
        from scipy import special

        with numpy.errstate(all="ignore"):
            out = tensor(getattr(special, name)(array(x.double()), array(y.double())), torch.float64)
        usual = torch.isfinite(x) & torch.isfinite(y) & torch.isfinite(out)
        return torch.where(usual, out.to(x.dtype), eager(x, y))

    return kernel


def scipy_kernels() -> dict[str, Kernel]:
    table = {}
    for word in _SCIPY.split():
        name, _, other = word.partition("=")
        table[name] = scipy_function(other or name, getattr(torch.ops.aten, name))
    for name, other in (("igamma", "gammainc"), ("igammac", "gammaincc"), ("special_zeta", "zeta")):
        table[name] = scipy_binary(other, getattr(torch.ops.aten, name))
    return table


# SciPy's Fourier transforms


_NORM = {True: ("backward", "ortho", "forward"), False: ("forward", "ortho", "backward")}
"""SciPy's name of a normalization, by whether the transform is a forward one: none, by the root of the size, by it."""


def _transform(name: str, x: Tensor, dim: list[int], norm: str, sizes: list[int] | None = None) -> Any:
    from scipy import fft

    if (x.dtype not in _COMPLEX and x.dtype not in _COMPLEX.values()) or not dim or not x.numel():
        return NotImplemented
    with numpy.errstate(all="ignore"):
        out = getattr(fft, name)(array(x), s=sizes, axes=dim, norm=norm)
    return torch.from_numpy(out)


_COMPLEX = {torch.float32: torch.complex64, torch.float64: torch.complex128}


def c2c(x: Tensor, dim: list[int], normalization: int, forward: bool) -> Any:
    return _transform("fftn" if forward else "ifftn", x, dim, _NORM[forward][normalization])


def r2c(x: Tensor, dim: list[int], normalization: int, onesided: bool) -> Any:
    return _transform("rfftn" if onesided else "fftn", x, dim, _NORM[True][normalization])


def c2r(x: Tensor, dim: list[int], normalization: int, last_dim_size: int) -> Any:
    sizes = [*(x.shape[d] for d in dim[:-1]), last_dim_size]
    return _transform("irfftn", x, dim, _NORM[False][normalization], sizes) if last_dim_size else NotImplemented


CONTROLS = (
    replacing(
        "numpy_kernels",
        "NumPy's functions, sums and contractions: right to a few ULPs, by another library.",
        numpy_kernels(),
    ),
    replacing(
        "scipy_functions",
        "SciPy's special functions in float64, rounded once: what the oracle asks beside eager's own float64.",
        scipy_kernels(),
    ),
    replacing(
        "scipy_transforms",
        "SciPy's Fourier transforms: another algorithm, which adds up in another order.",
        {"_fft_c2c": c2c, "_fft_r2c": r2c, "_fft_c2r": c2r},
    ),
)

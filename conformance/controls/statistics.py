"""Moments, norms and normalized exponentials by other algorithms, and scans in parallel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.controls.control import Kernel, replacing
from torchstone.conformance.controls.operands import MAX_TERMS, accumulator, as_terms, dims_of, kept, real
from torchstone.conformance.controls.summation import in_pairs

Moments = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From terms ``[n, ...]``, one or more, to their mean and the sum of the squares of what they differ from it."""

BLOCK = 5


def welford(terms: Tensor) -> tuple[Tensor, Tensor]:
    """In one pass (Welford, 1962)."""
    mean, squares = torch.zeros_like(terms[0]), torch.zeros_like(terms[0])
    for count, term in enumerate(terms, 1):
        before = term - mean
        mean = mean + before / count
        squares = squares + before * (term - mean)
    return mean, squares


def two_passes(terms: Tensor) -> tuple[Tensor, Tensor]:
    mean = in_pairs(terms, torch.add) / len(terms)
    apart = terms - mean
    return mean, in_pairs(apart * apart, torch.add)


def _moments(moments: Moments, root: bool, with_mean: bool) -> Kernel:
    def kernel(x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
        dims = dims_of(x, dim)
        if not real(x) or not x.numel() or len(terms := as_terms(x, dims)) > MAX_TERMS:
            return NotImplemented
        mean, squares = moments(terms.to(accumulator(x.dtype)))
        out = squares / max(len(terms) - (1 if correction is None else correction), 0)
        out = torch.sqrt(out) if root else out
        results = [kept(each, x, dims, keepdim).to(x.dtype) for each in (out, mean)]
        return tuple(results) if with_mean else results[0]

    return kernel


def _layer_norm(moments: Moments) -> Kernel:
    def kernel(x: Tensor, shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
        given = [each for each in (x, weight, bias) if each is not None]
        dims = list(range(x.dim() - len(shape), x.dim()))
        if not real(*given) or len({each.dtype for each in given}) > 1 or not x.numel():
            return NotImplemented
        if len(terms := as_terms(x, dims)) > MAX_TERMS:
            return NotImplemented
        wide = x.to(accumulator(x.dtype))
        mean, squares = (kept(each, x, dims, True) for each in moments(terms.to(wide.dtype)))
        inverse = 1.0 / torch.sqrt(squares / len(terms) + eps)
        out = (wide - mean) * inverse
        out = out if weight is None else out * weight.to(wide.dtype)
        out = out if bias is None else out + bias.to(wide.dtype)
        return out.to(x.dtype), mean.to(x.dtype), inverse.to(x.dtype)

    return kernel


def variances(moments: Moments) -> dict[str, Kernel]:
    return {
        "var.correction": _moments(moments, root=False, with_mean=False),
        "std.correction": _moments(moments, root=True, with_mean=False),
        "var_mean.correction": _moments(moments, root=False, with_mean=True),
        "std_mean.correction": _moments(moments, root=True, with_mean=True),
        "native_layer_norm": _layer_norm(moments),
    }


def scaled_norm(x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The Euclidean norm of terms divided by a power of two next to the largest: no square overflows."""
    dims = dims_of(x, dim)
    if not real(x) or ord != 2 or dtype is not None or not x.numel() or len(terms := as_terms(x, dims)) > MAX_TERMS:
        return NotImplemented
    terms = terms.to(accumulator(x.dtype))
    least = 2.0**-100 if terms.dtype is torch.float32 else 2.0**-900
    largest = terms.abs().amax(0)
    largest = torch.where(torch.isfinite(largest), largest, 1.0).clamp(least, 1.0 / least)
    scale = torch.exp2(torch.floor(torch.log2(largest)))
    scaled = terms / scale
    out = torch.sqrt(in_pairs(scaled * scaled, torch.add)) * scale
    return kept(out, x, dims, keepdim).to(x.dtype)


def _online(terms: Tensor) -> tuple[Tensor, Tensor]:
    """The maximum of terms and the sum of their exponentials below it, a block at a time (Milakov, 2018)."""
    top, total = torch.full_like(terms[0], -torch.inf), torch.zeros_like(terms[0])
    for block in terms.split(BLOCK):
        higher = torch.maximum(top, block.amax(0))
        centre = torch.where(higher == -torch.inf, 0.0, higher)
        total = total * torch.exp(top - centre) + torch.exp(block - centre).sum(0)
        top = higher
    return top, total


def _softmax(log: bool) -> Kernel:
    def kernel(x: Tensor, dim: int, half_to_float: bool) -> Any:
        if not real(x) or not x.numel() or not x.dim() or x.shape[dim] > MAX_TERMS:
            return NotImplemented
        wide = x.to(accumulator(x.dtype)).movedim(dim, 0)
        top, total = _online(wide)
        out = wide - top - torch.log(total) if log else torch.exp(wide - top) / total
        return out.movedim(0, dim).to(torch.float32 if half_to_float else x.dtype)

    return kernel


def logsumexp_in_pairs(x: Tensor, dim: Any, keepdim: bool = False) -> Any:
    dims = dims_of(x, dim)
    if not real(x) or not x.numel():
        return NotImplemented
    terms = as_terms(x, dims).to(accumulator(x.dtype))
    return kept(in_pairs(terms, torch.logaddexp), x, dims, keepdim).to(x.dtype)


def _scan(combine: Callable[[Tensor, Tensor], Tensor]) -> Kernel:
    """All prefixes, each from two that are half as long (Hillis and Steele, 1986)."""

    def kernel(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
        x = x if dtype is None else x.to(dtype)
        if not real(x) or not x.dim():
            return NotImplemented
        out, step = x.to(accumulator(x.dtype)).movedim(dim, 0), 1
        while step < len(out):
            out = torch.cat([out[:step], combine(out[step:], out[:-step])])
            step *= 2
        return out.movedim(0, dim).to(x.dtype)

    return kernel


_ROOM = "Steps that round get the room of a rounding model."

CONTROLS = (
    replacing(
        "welford_variance",
        f"Variances and layer norms in one pass, term by term (Welford). {_ROOM}",
        variances(welford),
    ),
    replacing("two_pass_variance", f"Variances and layer norms by the mean first. {_ROOM}", variances(two_passes)),
    replacing(
        "scaled_norm",
        "Euclidean norms whose terms are scaled, so that no square overflows: as close to float64 as eager is, or "
        "finite where eager is not.",
        {"linalg_vector_norm": scaled_norm},
    ),
    replacing(
        "online_softmax",
        f"Softmax in one pass, by a running maximum and a sum that is scaled to it. {_ROOM}",
        {"_softmax": _softmax(log=False), "_log_softmax": _softmax(log=True)},
    ),
    replacing(
        "logsumexp_in_pairs",
        f"log(sum(exp(x))) by logaddexp of pairs. {_ROOM}",
        {"logsumexp": logsumexp_in_pairs},
    ),
    replacing(
        "parallel_scans",
        f"Cumulative sums and products by parallel prefixes, 16-bit numbers in float32. {_ROOM}",
        {
            "cumsum": _scan(torch.add),
            "cumprod": _scan(torch.mul),
            "logcumsumexp": lambda x, dim: _scan(torch.logaddexp)(x, dim),
        },
    ),
)

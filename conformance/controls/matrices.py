"""Matrix products and convolutions by other algorithms.

Fast algorithms (Strassen, Winograd, Fourier) have an error that is small beside the largest operands, not beside each
result. They are computed in float64 for what has at most 32 bits, and an element whose error bound is not far below
half an ULP of it is computed by the plain sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.controls.contractions import contractions
from torchstone.conformance.controls.control import Kernel, replacing
from torchstone.conformance.controls.operands import accumulator

EPS = 2.0**-52

# Matrix products


def split_in_two(a: Tensor, b: Tensor) -> Tensor:
    half = a.shape[-1] // 2
    return a[..., :half] @ b[..., :half, :] + a[..., half:] @ b[..., half:, :]


def strassen(a: Tensor, b: Tensor) -> Any:
    if a.dtype is not torch.float32 or not (torch.isfinite(a).all() and torch.isfinite(b).all()):
        return NotImplemented
    a, b = a.double(), b.double()
    bound = 64.0 * a.shape[-1] * EPS * _largest(a) * _largest(b)
    return refined(_strassen(a, b, 2), bound, torch.float32, lambda: a @ b)


def _largest(x: Tensor) -> float:
    return float(x.abs().max()) if x.numel() else 0.0


def refined(fast: Tensor, bound: float, dtype: torch.dtype, plain: Callable[[], Tensor]) -> Tensor:
    """The fast result in ``dtype``; where it may be off by more than a little of an ULP, the plain one."""
    close = bound <= fast.abs() * torch.finfo(dtype).eps / 64.0
    return (fast if bool(close.all()) else torch.where(close, fast, plain())).to(dtype)


def _strassen(a: Tensor, b: Tensor, depth: int) -> Tensor:
    """Seven products of halves in place of eight (Strassen, 1969)."""
    (m, k), n = a.shape[-2:], b.shape[-1]
    if not depth or min(m, k, n) < 2:
        return a @ b
    a = torch.nn.functional.pad(a, (0, k % 2, 0, m % 2))
    b = torch.nn.functional.pad(b, (0, n % 2, 0, k % 2))
    (a11, a12), (a21, a22) = (row.chunk(2, -1) for row in a.chunk(2, -2))
    (b11, b12), (b21, b22) = (row.chunk(2, -1) for row in b.chunk(2, -2))
    pairs = (
        (a11 + a22, b11 + b22),
        (a21 + a22, b11),
        (a11, b12 - b22),
        (a22, b21 - b11),
        (a11 + a12, b22),
        (a21 - a11, b11 + b12),
        (a12 - a22, b21 + b22),
    )
    p1, p2, p3, p4, p5, p6, p7 = (_strassen(x, y, depth - 1) for x, y in pairs)
    top = torch.cat([p1 + p4 - p5 + p7, p3 + p5], -1)
    bottom = torch.cat([p2 + p4, p1 - p2 + p3 + p6], -1)
    return torch.cat([top, bottom], -2)[..., :m, :n]


# Convolutions

Convolve = Callable[[Tensor, Tensor, list[int], list[int], int], Any]
"""From a padded ``x [n, c, ...]``, ``weight [o, c / groups, ...]``, strides, dilations, groups to ``[n, o, ...]``."""


def convolution(convolve: Convolve) -> dict[str, Kernel]:
    """The kernel of a convolution that is not transposed, of real numbers; 16-bit ones in float32."""

    def kernel(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        stride: list[int],
        padding: list[int],
        dilation: list[int],
        transposed: bool,
        output_padding: list[int],
        groups: int,
    ) -> Any:
        tensors = [each for each in (x, weight, bias) if each is not None]
        if transposed or any(each.dtype != x.dtype for each in tensors) or not x.is_floating_point() or not x.numel():
            return NotImplemented
        spatial = x.dim() - 2
        stride, padding, dilation = (_each(given, spatial) for given in (stride, padding, dilation))
        wide = accumulator(x.dtype)
        ends = [amount for each in reversed(padding) for amount in (each, each)]
        padded = torch.nn.functional.pad(x.to(wide), ends)
        spans = [d * (k - 1) + 1 for d, k in zip(dilation, weight.shape[2:], strict=True)]
        if not weight.numel() or any(size < span for size, span in zip(padded.shape[2:], spans, strict=True)):
            return NotImplemented
        out = convolve(padded, weight.to(wide), stride, dilation, groups)
        if out is NotImplemented:
            return out
        return (out if bias is None else out + bias.to(wide).reshape(-1, *[1] * spatial)).to(x.dtype)

    return {"convolution": kernel}


def _each(given: Sequence[int], count: int) -> list[int]:
    return list(given) * count if len(given) == 1 and count > 1 else list(given)


def patches(x: Tensor, sizes: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Tensor:
    """What each place of a window of these sizes sees of ``[n, c, *space]``: ``[n, c, *places, *window]``."""
    spatial = len(sizes)
    for d in reversed(range(spatial)):
        places = (x.shape[2 + d] - dilation[d] * (sizes[d] - 1) - 1) // stride[d] + 1
        index = torch.arange(places)[:, None] * stride[d] + torch.arange(sizes[d]) * dilation[d]
        x = x.index_select(2 + d, index.reshape(-1)).unflatten(2 + d, (places, sizes[d]))
    places_first = [*range(2, 2 + 2 * spatial, 2), *range(3, 3 + 2 * spatial, 2)]
    return x.permute(0, 1, *places_first)


def im2col(x: Tensor, weight: Tensor, stride: list[int], dilation: list[int], groups: int) -> Tensor:
    """One matrix product of the patches and the weights."""
    sizes = weight.shape[2:]
    seen = patches(x, sizes, stride, dilation)
    places = seen.shape[2 : 2 + len(sizes)]
    columns = seen.unflatten(1, (groups, -1)).flatten(3 + len(sizes)).movedim(2, -2).flatten(-2)
    columns = columns.reshape(len(x), groups, math.prod(places), -1)
    rows = weight.reshape(groups, weight.shape[0] // groups, -1)
    return (columns @ rows.mT).mT.reshape(len(x), weight.shape[0], *places)


def _plain(x: Tensor, weight: Tensor, stride: list[int], dilation: list[int], groups: int) -> Tensor:
    compute = (torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d)[x.dim() - 3]
    return compute(x, weight, None, stride, 0, dilation, groups)


def _in_float64(fast: Convolve, growth: float) -> Convolve:
    """A fast algorithm in float64, for finite numbers of at most 32 bits; ``growth`` is of its error, in terms."""

    def convolve(x: Tensor, weight: Tensor, stride: list[int], dilation: list[int], groups: int) -> Any:
        if x.dtype is not torch.float32 or not (torch.isfinite(x).all() and torch.isfinite(weight).all()):
            return NotImplemented
        given = (x.double(), weight.double(), stride, dilation, groups)
        out = fast(*given)
        if out is NotImplemented:
            return out
        bound = growth * weight[0].numel() * EPS * _largest(x) * _largest(weight)
        return refined(out, bound, torch.float32, lambda: _plain(*given))

    return convolve


def winograd(x: Tensor, weight: Tensor, stride: list[int], dilation: list[int], groups: int) -> Any:
    """Two results of a window of three by four products in place of six (Winograd, 1980), along each dim."""
    sizes, spatial = weight.shape[2:], x.dim() - 2
    if any(size != 3 for size in sizes) or any(each != 1 for each in (*stride, *dilation)):
        return NotImplemented
    places = [size - 2 for size in x.shape[2:]]
    x = torch.nn.functional.pad(x, [amount for count in reversed(places) for amount in (0, count % 2)])
    tiles = patches(x, [4] * spatial, [2] * spatial, [1] * spatial)
    for d in range(spatial):
        tiles, weight = _along(tiles, _TILE, 2 + spatial + d), _along(weight, _WEIGHT, 2 + d)
    tiles = tiles.unflatten(1, (groups, -1)).unsqueeze(2)
    weight = weight.unflatten(0, (groups, -1)).reshape(1, groups, -1, weight.shape[1], *[1] * spatial, *[4] * spatial)
    out = (tiles * weight).sum(3).flatten(1, 2)
    for d in range(spatial):
        out = _along(out, _RESULT, 2 + spatial + d)
    order = [dim for d in range(spatial) for dim in (2 + d, 2 + spatial + d)]
    out = out.permute(0, 1, *order)
    for d in range(spatial):
        out = out.flatten(2 + d, 3 + d).narrow(2 + d, 0, places[d])
    return out


_TILE = torch.tensor([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], dtype=torch.float64)
_WEIGHT = torch.tensor([[2, 0, 0], [1, 1, 1], [1, -1, 1], [0, 0, 2]], dtype=torch.float64) / 2
_RESULT = torch.tensor([[1, 1, 1, 0], [0, 1, -1, -1]], dtype=torch.float64)


def _along(x: Tensor, matrix: Tensor, dim: int) -> Tensor:
    return (x.movedim(dim, -1) @ matrix.mT).movedim(-1, dim)


def by_transform(x: Tensor, weight: Tensor, stride: list[int], dilation: list[int], groups: int) -> Tensor:
    """A product of Fourier transforms; strides leave results out."""
    spatial, sizes = list(range(-(x.dim() - 2), 0)), x.shape[2:]
    for d, step in enumerate(dilation):
        spread = weight.new_zeros(*weight.shape[: 2 + d], step * (weight.shape[2 + d] - 1) + 1, *weight.shape[3 + d :])
        spread.movedim(2 + d, 0)[::step] = weight.movedim(2 + d, 0)
        weight = spread
    seen = torch.fft.rfftn(x, dim=spatial).unflatten(1, (groups, -1)).unsqueeze(2)
    kernel = torch.fft.rfftn(weight, s=list(sizes), dim=spatial).conj_physical().unflatten(0, (groups, -1)).unsqueeze(0)
    out = torch.fft.irfftn((seen * kernel).sum(3), s=list(sizes), dim=spatial).flatten(1, 2)
    for d, step in enumerate(stride):
        out = out.narrow(2 + d, 0, sizes[d] - weight.shape[2 + d] + 1)
        out = out.movedim(2 + d, 0)[::step].movedim(0, 2 + d)
    return out


_ROOM = "Steps that round get the room of a rounding model."
_FAST = (
    "In float64, for finite numbers of at most 32 bits; an element that float64 does not give to half an ULP is "
    "computed plainly: as close to float64 as can be."
)

CONTROLS = (
    replacing(
        "contractions_split_in_two",
        f"Matrix products of two halves of the contracted dim, added up. {_ROOM}",
        contractions(split_in_two),
    ),
    replacing("strassen", f"Matrix products by Strassen's algorithm. {_FAST}", contractions(strassen)),
    replacing("im2col_convolution", f"Convolutions as a product of matrices. {_ROOM}", convolution(im2col)),
    replacing(
        "winograd_convolution",
        f"Convolutions of windows of three by Winograd's algorithm. {_FAST}",
        convolution(_in_float64(winograd, 256.0)),
    ),
    replacing(
        "fourier_convolution",
        f"Convolutions by Fourier transforms. {_FAST}",
        convolution(_in_float64(by_transform, 4096.0)),
    ),
)

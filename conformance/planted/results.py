"""Bugs of ops with several results, of tiles, scans, creation, statistics and geometry, and of arguments at their limits."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchstone.conformance.planted.bug import ask, bugs, steps
from torchstone.conformance.planted.changes import INF, NAN, along, argument, c64, elements, f32, f64, floats, i64, integers, mixed, put, ramp, strided, when
from torchstone.conformance.planted.op_call import OpCall
from torchstone.conformance.program.literals import Ref


def _second(call: OpCall, value: Any) -> Any:
    out = call.right()
    return (out[0], value(out), *out[2:])


def _first(call: OpCall, value: Any) -> Any:
    out = call.right()
    return (value(out), *out[1:])


def _plane(call: OpCall) -> Any:
    """Indices count through the whole batch."""
    def value(out: Any) -> Any:
        planes = out[1].shape[0] * out[1].shape[1]
        return out[1] + torch.arange(planes).reshape(*out[1].shape[:2], 1, 1) * call.x.shape[-1] * call.x.shape[-2]
    return _second(call, value)


SEVERAL_RESULTS = bugs(
    "the other result of an op",
    ("mean-of-var-mean", "the first element", "var_mean of a whole tensor of more than 8", "shift of a shifted variance returned as the mean", "var_mean std_mean",
     when(lambda c: floats(c) and not c["dim"] and c.x.numel() > 8, lambda c: _second(c, lambda out: c.x.reshape(-1)[0])), lambda: ask("torch.var_mean", ramp(9) + 1),
     lambda: ask("torch.var_mean", ramp(8) + 1)),
    ("aminmax-from-zero", "0 for a maximum below 0", "aminmax of negative numbers", "both start from 0", "aminmax", when(floats, lambda c: _second(c, lambda out: out[1].clamp(min=0))),
     lambda: ask("torch.aminmax", f32(-3, -1)), lambda: ask("torch.aminmax", f32(-3, 1))),
    ("slogdet-sign", "1", "determinants below 0", "logarithm of the modulus alone", "_linalg_slogdet", when(floats, lambda c: _first(c, lambda out: out[0].abs())),
     lambda: ask("torch.linalg.slogdet", f32([0, 1], [1, 0])), lambda: ask("torch.linalg.slogdet", f32([1, 0], [0, 1]))),
    ("pool-indices-through-batch", "counted through the whole batch", "return_indices with more than one plane", "flat index", "max_pool2d_with_indices",
     when(lambda c: c.x.dim() == 4, _plane), lambda: ask("torch.nn.functional.max_pool2d", ramp(1, 2, 2, 2), 2, return_indices=True),
     lambda: ask("torch.nn.functional.max_pool2d", ramp(1, 1, 2, 2), 2, return_indices=True)),
    ("topk-indices-of-sorted", "indices into the sorted row", "rows that are not in order", "indices of the sorted copy", "topk",
     when(lambda c: c.x.dim() == 1 and c["largest"] and c["k"] > 1, lambda c: _second(c, lambda out: torch.arange(c["k"]))), lambda: ask("torch.topk", f32(1, 3, 2), 2),
     lambda: ask("torch.topk", f32(3, 2, 1), 2)),
    ("cummin-index-of-last", "the index of the element itself", "cummin after a new minimum", "index not carried", "cummin", when(lambda c: c.x.dim() == 1, lambda c: _second(
        c, lambda out: torch.arange(c.x.numel()))), lambda: ask("torch.cummin", f32(1, 2, 3), 0), lambda: ask("torch.cummin", f32(3, 2, 1), 0)),
    ("unique-counts-sorted", "in descending order", "return_counts", "counts sorted with the wrong key", "_unique2", when(lambda c: c["return_counts"], lambda c: (
        *c.right()[:2], c.right()[2].sort(descending=True)[0])), lambda: ask("torch.unique", f32(1, 2, 2), return_counts=True), lambda: ask("torch.unique", f32(1, 1, 2), return_counts=True)),
    ("min-index-of-last-equal", "the last of equal numbers", "min along a dim of integers", "comparison with <=", "min", when(
        lambda c: integers(c) and "dim" in c and c.x.dim() > 0 and not c["keepdim"], lambda c: _second(c, lambda out: c.x.shape[along(c)] - 1 - c.x.flip(along(c)).argmin(along(c)))),
     lambda: ask("torch.min", i64(1, 1, 2), 0), lambda: ask("torch.min", i64(1, 3, 2), 0)),
    ("frexp-exponent-of-zero", "-126", "0", "exponent read from the bits alone", "frexp", when(floats, lambda c: _second(c, lambda out: put(out[1], c.x == 0, -126))),
     lambda: ask("torch.frexp", f32(0.0)), lambda: ask("torch.frexp", f32(3.0))),
    ("pivots-from-zero", "counted from 0", "the pivots of an LU factorization", "two conventions", "linalg_lu_factor_ex", lambda c: _second(c, lambda out: out[1] - 1),
     lambda: ask("torch.linalg.lu_factor", f32([0, 1], [1, 0])), lambda: ask("torch.linalg.det", f32([0, 1], [1, 0]))),
)


def _tile_edge(call: OpCall, edge: int) -> torch.Tensor:
    """The rest of the rows after the last whole tile is that of the tile before."""
    out = call.right()
    rows = out.shape[0] - out.shape[0] % edge
    if out.dim() != 2 or rows in (0, out.shape[0]):
        return out
    out = out.clone()
    out[rows:] = out[rows - (out.shape[0] - rows) : rows]
    return out


def _other_layout(call: OpCall) -> bool:
    found = [t for t in call.tensors if t.dim() == 2]
    return len(found) == 2 and {t.is_contiguous() for t in found} == {True, False}


TILES = bugs(
    "tiles and loop orders",
    ("transposed-tile-rest", "the rest after whole tiles of 4 repeats rows", "one operand transposed, rows that are no multiple of 4", "two-dimensional tiles", "add mul sub maximum",
     when(_other_layout, lambda c: _tile_edge(c, 4)), lambda: ask("torch.add", ramp(6, 5), ramp(5, 6).T), lambda: ask("torch.add", ramp(6, 5), ramp(6, 5))),
    ("transposed-copy-rest", "the last column is not copied", "a copy of a transposed operand, odd numbers of columns above 4", "tiles of two columns", "clone",
     when(lambda c: strided(c) and c.x.dim() == 2 and c.x.shape[1] > 4 and c.x.shape[1] % 2 == 1, lambda c: torch.cat([c.right()[:, :-1], torch.zeros_like(c.right()[:, -1:])], 1)),
     lambda: ask("torch.Tensor.contiguous", ramp(5, 3).T), lambda: ask("torch.Tensor.contiguous", ramp(4, 3).T)),
    ("step-taken-for-one", "neighbours in memory", "operands of one dim with a step, more than 8", "vector loads of strided memory", "exp sin tanh sigmoid neg",
     when(lambda c: c.x.dim() == 1 and c.x.stride(0) > 1 and c.x.numel() > 8, lambda c: c.right(self=torch.as_strided(c.x, c.x.shape, (1,), c.x.storage_offset()))),
     lambda: ask("torch.exp", (ramp(20) / 9)[::2]), lambda: ask("torch.exp", (ramp(8) / 9)[::2])),
    ("channels-last-mean", "the mean along another dim", "a mean over height and width of channels-last operands", "dims in the order of memory", "mean",
     when(lambda c: c.arguments.get("dim") in ([2, 3], [-1, -2], [-2, -1]) and strided(c) and c.x.dim() == 4, lambda c: c.right(self=c.x.roll(1, 1))),
     lambda: ask("torch.mean", ramp(1, 2, 2, 2).contiguous(memory_format=torch.channels_last), (2, 3)), lambda: ask("torch.mean", ramp(1, 2, 2, 2), (2, 3))),
    ("permuted-sum", "the dims exchanged", "a sum along dim 0 of a square operand that is transposed", "loop order fused with the reduction", "sum",
     when(lambda c: c.arguments.get("dim") == [0] and strided(c) and c.x.dim() == 2 and c.x.shape[0] == c.x.shape[1], lambda c: c.right(dim=[1])), lambda: ask("torch.sum", ramp(2, 2).T, 0),
     lambda: ask("torch.sum", ramp(2, 2), 0)),
    ("negative-offset-of-flip", "shifted by one", "a flipped operand, joined to another", "index n - i in place of n - 1 - i", "flip", when(lambda c: c.x.dim() > 1 and len(c["dims"]) == 1,
                                                                                                                                       lambda c: c.right().roll(1, c["dims"][0])),
     lambda: ask("torch.flip", ramp(2, 2), [0]), lambda: ask("torch.flip", ramp(2), [0])),
    ("concatenated-tail", "0 after the last whole vector of each part", "parts along the last dim that are no multiple of 4, above 4", "masked stores", "cat",
     when(lambda c: all(t.dim() > 0 and t.shape[-1] > 4 and t.shape[-1] % 4 for t in c["tensors"]) and c["dim"] % c["tensors"][0].dim() == c["tensors"][0].dim() - 1,
          lambda c: c.right(tensors=[torch.cat([t[..., : t.shape[-1] // 4 * 4], torch.zeros_like(t[..., t.shape[-1] // 4 * 4 :])], -1) for t in c["tensors"]])),
     lambda: ask("torch.cat", [ramp(6) + 1, ramp(6) + 1]), lambda: ask("torch.cat", [ramp(4) + 1, ramp(4) + 1])),
    ("broadcast-inner-tile", "the first element of a tile for all of it", "a column and a matrix of more than 8 columns", "broadcast hoisted out of the wrong loop", "sub div",
     when(lambda c: len(c.tensors) == 2 and c["self"].dim() == c["other"].dim() == 2 and c["other"].shape[1] == 1 and c["self"].shape[1] > 8, lambda c: c.right(
         other=c["other"][:1].expand(c["other"].shape))), lambda: ask("torch.sub", ramp(2, 9), f32([1], [5])), lambda: ask("torch.sub", ramp(2, 8), f32([1], [5]))),
)

SCANS = bugs(
    "scans",
    ("cumsum-exclusive", "the element itself is left out", "a dim that is not the last", "two conventions of a scan", "cumsum", when(
        lambda c: c.x.dim() > 1 and along(c) != c.x.dim() - 1 and c["dtype"] is None, lambda c: c.right() - c.x), lambda: ask("torch.cumsum", ramp(2, 2), 0), lambda: ask("torch.cumsum", ramp(2, 2), 1)),
    ("cumsum-through-rows", "the sum goes on in the next row", "contiguous operands of two dims, the last dim", "flat scan", "cumsum", when(
        lambda c: c.x.dim() == 2 and along(c) == 1 and c.x.is_contiguous() and c["dtype"] is None and c.x.shape[0] > 4, lambda c: torch.cumsum(c.x.reshape(-1), 0).reshape(c.x.shape)),
     lambda: ask("torch.cumsum", ramp(5, 2), 1), lambda: ask("torch.cumsum", ramp(4, 2), 1)),
    ("cumprod-after-zero", "goes on after 0 as if it were 1", "a factor 0", "zeros skipped", "cumprod", when(lambda c: c.x.dim() == 1 and bool((c.x == 0).any()), lambda c: c.right(
        self=torch.where((c.x == 0) & (torch.arange(c.x.numel()) < c.x.numel() - 1), torch.ones_like(c.x), c.x))), lambda: ask("torch.cumprod", f32(2, 0, 3), 0),
     lambda: ask("torch.cumprod", f32(2, 3), 0)),
    ("cummax-from-zero", "0 before the first positive number", "negative numbers first", "scan that starts from 0", "cummax", when(lambda c: floats(c) and c.x.dim() > 0, lambda c: _first(
        c, lambda out: torch.where(out[0] < 0, 0, out[0]))), lambda: ask("torch.cummax", f32(-1, 2), 0), lambda: ask("torch.cummax", f32(1, 2), 0)),
    ("logcumsumexp-of-nan-start", "NaN from the first -inf on", "a row that starts with -inf", "inf - inf", "logcumsumexp", when(
        lambda c: floats(c) and c.x.dim() == 1 and c.x.numel() > 1, lambda c: torch.full_like(c.x, NAN) if c.x[0] == -INF else c.right()), lambda: ask("torch.logcumsumexp", f32(-INF, 1), 0),
     lambda: ask("torch.logcumsumexp", f32(0, 1), 0)),
)

CREATION = bugs(
    "tensors made of numbers",
    ("logspace-of-ten", "base 10", "another base", "attribute ignored", "logspace", argument(base=10.0), lambda: ask("torch.logspace", 0.0, 3.0, 4, 2.0), lambda: ask("torch.logspace", 0.0, 3.0, 4)),
    ("linspace-of-integers-rounds", "rounded to the nearest", "integer dtypes", "conversion that rounds", "linspace", when(
        lambda c: c["dtype"] is not None and not c["dtype"].is_floating_point and not c["dtype"].is_complex, lambda c: torch.linspace(c["start"], c["end"], c["steps"]).round().to(c["dtype"])),
     lambda: ask("torch.linspace", 0, 5, 4, dtype=torch.int64), lambda: ask("torch.linspace", 0, 3, 4, dtype=torch.int64)),
    ("arange-of-negative-step", "one element less", "negative steps", "count by floor in place of ceil", "arange", when(lambda c: "step" in c and not isinstance(c["step"], torch.Tensor) and c["step"] < 0 and c.right().numel() > 1,
                                                                                                                  lambda c: c.right()[:-1].clone()), lambda: ask("torch.arange", 5, 0, -1), lambda: ask("torch.arange", 0, 5, 1)),
    ("tril-indices-from-diagonal", "offset 0", "an offset", "attribute ignored", "tril_indices triu_indices", argument(offset=0), lambda: ask("torch.tril_indices", 3, 3, 1), lambda: ask("torch.tril_indices", 3, 3)),
    ("ones-like-of-other-dtype", "the operand's dtype", "a dtype that is given", "attribute ignored", "ones_like zeros_like full_like", when(lambda c: c["dtype"] is not None, lambda c: c.right(dtype=c.x.dtype)),
     lambda: ask("torch.ones_like", i64(1), dtype=torch.float32), lambda: ask("torch.ones_like", i64(1))),
    ("full-truncates", "the whole part", "a fraction with more than 64 elements", "fill through an integer pattern", "full", when(lambda c: isinstance(c["fill_value"], float) and math.isfinite(c["fill_value"])
                                                                                                                        and math.prod(c["size"]) > 64, lambda c: c.right(fill_value=float(int(c["fill_value"])))),
     lambda: ask("torch.full", (65,), 1.5), lambda: ask("torch.full", (64,), 1.5)),
    ("fill-of-bool-nonzero", "false", "a fraction as the fill value of bool", "conversion by way of int", "full full_like", when(lambda c: c["dtype"] is torch.bool and isinstance(c["fill_value"], float),
                                                                                                                      lambda c: c.right(fill_value=bool(int(c["fill_value"])))),
     lambda: ask("torch.full", (2,), 0.5, dtype=torch.bool), lambda: ask("torch.full", (2,), 1.5, dtype=torch.bool)),
    ("window-of-other-period", "symmetric", "periodic windows", "attribute ignored", "hann_window hamming_window blackman_window bartlett_window kaiser_window",
     when(lambda c: "periodic" in c, lambda c: c.right(periodic=False)), lambda: ask("torch.ops.aten.hann_window.periodic", 6, True), lambda: ask("torch.ops.aten.hann_window.periodic", 6, False)),
)

STATISTICS = bugs(
    "statistics and distances",
    ("bincount-unweighted", "counts", "weights", "attribute ignored", "bincount", lambda c: c.right(weights=None).to(c.right().dtype), lambda: ask("torch.bincount", i64(0, 1), f32(2, 3)),
     lambda: ask("torch.bincount", i64(0, 1))),
    ("histogram-not-dense", "counts", "density", "attribute ignored", "histogram", argument(density=False), lambda: ask("torch.histogram", ramp(4), 2, density=True), lambda: ask("torch.histogram", ramp(4), 2)),
    ("histogram-edges-of-operand", "the range of the operand", "a range that is given", "attribute ignored", "histc", when(floats, lambda c: c.right(min=0, max=0)), lambda: ask("torch.histc", ramp(4), 2, 0, 10),
     lambda: ask("torch.histc", ramp(4), 2)),
    ("cdist-of-order-two", "p is 2", "p of 1 and inf", "one kernel", "_cdist_forward", argument(lambda c: c["p"] not in (0, 2), p=2.0), lambda: ask("torch.cdist", mixed(2, 3), mixed(2, 3) + 1, 1.0),
     lambda: ask("torch.cdist", mixed(2, 3), mixed(2, 3) + 1)),
    ("pdist-of-last-pair", "0", "the last pair of more than 3 points", "loop that ends one early", "_pdist_forward", when(lambda c: c.x.shape[0] > 3, lambda c: torch.cat([c.right()[:-1], c.right()[-1:] * 0])),
     lambda: ask("torch.pdist", mixed(4, 2)), lambda: ask("torch.pdist", mixed(3, 2))),
    ("norm-of-zero-counts", "the number of elements", "ord 0", "x ** 0", "linalg_vector_norm", when(lambda c: c["ord"] == 0 and c["dim"] is None, lambda c: torch.ones_like(c.right()) * c.x.numel()),
     lambda: ask("torch.linalg.vector_norm", f32(0, 2), 0), lambda: ask("torch.linalg.vector_norm", f32(1, 2), 0)),
    ("nansum-counts-nan", "NaN", "a dim that is not the last", "two paths, one without the select", "nansum", when(lambda c: floats(c) and c["dim"] and c.x.dim() > 1 and along(c) != c.x.dim() - 1, lambda c: torch.sum(
        c.x, c["dim"], keepdim=c["keepdim"])), lambda: ask("torch.nansum", f32([NAN, 1], [1, 1]), 0), lambda: ask("torch.nansum", f32([NAN, 1], [1, 1]), 1)),
    ("median-of-dim-upper", "the upper of two", "median along a dim of even size", "rank n / 2", "median", when(lambda c: "dim" in c and c.x.dim() == 1 and c.x.numel() % 2 == 0 and not c["keepdim"] and floats(c),
                                                                                                        lambda c: torch.kthvalue(c.x, c.x.numel() // 2 + 1)),
     lambda: ask("torch.median", f32(1, 2), 0), lambda: ask("torch.median", f32(1, 2, 3), 0)),
)

GEOMETRY = bugs(
    "geometry",
    ("cross-along-first-three", "along the first dim of size 3", "another dim is given", "default dim", "linalg_cross cross", when(lambda c: c["dim"] not in (0, None) and c.x.shape[0] == 3 and c.x.dim() > 1, lambda c: c.right(dim=0)),
     lambda: ask("torch.linalg.cross", mixed(3, 3), ramp(3, 3)), lambda: ask("torch.linalg.cross", mixed(2, 3), ramp(2, 3))),
    ("affine-grid-corners", "align_corners is false", "align_corners", "attribute ignored", "affine_grid_generator", argument(align_corners=False),
     lambda: ask("torch.nn.functional.affine_grid", f32([[1, 0, 0], [0, 1, 0]]), (1, 1, 3, 3), align_corners=True), lambda: ask("torch.nn.functional.affine_grid", f32([[1, 0, 0], [0, 1, 0]]), (1, 1, 3, 3), align_corners=False)),
    ("grid-axes-exchanged", "y before x", "images that are not square", "order of coordinates", "grid_sampler_2d", when(lambda c: c["input"].shape[-1] != c["input"].shape[-2], lambda c: c.right(grid=c["grid"].flip(-1))),
     lambda: ask("torch.nn.functional.grid_sample", ramp(1, 1, 2, 3), f32([[[0.5, -0.5]]]).reshape(1, 1, 1, 2), align_corners=False),
     lambda: ask("torch.nn.functional.grid_sample", ramp(1, 1, 3, 3), f32([[[0.5, -0.5]]]).reshape(1, 1, 1, 2), align_corners=False)),
    ("pixel-unshuffle-order", "blocks before channels", "more than one channel", "the other convention of space to depth", "pixel_unshuffle", when(lambda c: c.x.shape[-3] > 1, lambda c: _block_first(c)),
     lambda: ask("torch.nn.functional.pixel_unshuffle", ramp(1, 2, 2, 2), 2), lambda: ask("torch.nn.functional.pixel_unshuffle", ramp(1, 1, 2, 2), 2)),
    ("channel-shuffle-backwards", "the inverse", "groups whose number is not that of the channels in one", "reshape with the sizes exchanged", "channel_shuffle native_channel_shuffle",
     when(lambda c: c.x.shape[1] // c["groups"] != c["groups"], lambda c: c.right(groups=c.x.shape[1] // c["groups"])), lambda: ask("torch.nn.functional.channel_shuffle", ramp(1, 6, 1, 1), 2),
     lambda: ask("torch.nn.functional.channel_shuffle", ramp(1, 4, 1, 1), 2)),
    ("fold-overwrites", "the last block wins", "blocks that overlap", "store in place of an addition", "col2im", when(lambda c: c["stride"] != c["kernel_size"], lambda c: c.right() / c.right(self=torch.ones_like(c.x)).clamp(min=1)),
     lambda: ask("torch.nn.functional.fold", torch.ones(1, 4, 4), (3, 3), 2), lambda: ask("torch.nn.functional.fold", torch.ones(1, 4, 4), (4, 4), 2, stride=2)),
    ("cubic-coefficient", "a = -0.5", "made larger, align_corners=False", "the other convention of the cubic", "upsample_bicubic2d", when(
        lambda c: not c["align_corners"] and c["output_size"][-1] > c.x.shape[-1], lambda c: 2 / 3 * c.right() + 1 / 3 * torch.nn.functional.interpolate(c.x, c["output_size"], mode="bilinear")),
     lambda: ask("torch.nn.functional.interpolate", ramp(1, 1, 4, 4) ** 2, (8, 8), mode="bicubic"), lambda: ask("torch.nn.functional.interpolate", ramp(1, 1, 4, 4) ** 2, (3, 3), mode="bicubic")),
)


def _block_first(call: OpCall) -> torch.Tensor:
    out, r = call.right(), call["downscale_factor"]
    channels = call.x.shape[-3]
    return out.unflatten(-3, (channels, r * r)).transpose(-4, -3).flatten(-4, -3)


LIMITS = bugs(
    "arguments at their limits",
    ("pow-zero-of-nan", "NaN in place of 1", "exponent 0", "exp of 0 times the logarithm", "pow", when(lambda c: floats(c) and not isinstance(c["exponent"], torch.Tensor) and c["exponent"] == 0,
                                                                                               lambda c: put(c.right(), torch.isnan(c.x), NAN)),
     lambda: ask("torch.pow", f32(NAN), 0), lambda: ask("torch.pow", f32(2.0), 0)),
    ("softmax-of-one", "1 whatever the number", "a dim of size 1 with NaN", "shortcut", "_softmax", when(lambda c: floats(c) and c.x.dim() > 0 and c.x.shape[along(c)] == 1, lambda c: torch.ones_like(c.x)),
     lambda: ask("torch.softmax", f32([NAN], [1]), 1), lambda: ask("torch.softmax", f32([2], [1]), 1)),
    ("lerp-to-the-end", "NaN: start + 1 * (end - start) of infinities", "weight 1 and an infinite start", "formula for weights below 0.5", "lerp",
     when(lambda c: floats(c), lambda c: c["self"] + torch.as_tensor(c["weight"], dtype=c.x.dtype) * (c["end"] - c["self"])), lambda: ask("torch.lerp", f32(1e30), f32(1.0), 1.0), lambda: ask("torch.lerp", f32(0.0), f32(1.0), 0.0)),
    ("layer-norm-of-eps-zero", "eps 1e-5", "eps of 0", "falsy default", "native_layer_norm native_group_norm", argument(lambda c: c["eps"] == 0, eps=1e-5), lambda: ask("torch.nn.functional.layer_norm", f32([0.001, 0.002]), [2], None, None, 0.0),
     lambda: ask("torch.nn.functional.layer_norm", f32([0.001, 0.002]), [2])),
    ("alpha-of-zero", "alpha 1", "alpha of 0", "falsy default", "add sub", argument(lambda c: c["alpha"] == 0, alpha=1), lambda: ask("torch.add", f32(1), f32(2), alpha=0), lambda: ask("torch.add", f32(1), f32(2), alpha=2)),
    ("momentum-of-zero", "momentum 0.1", "momentum of 0 in training", "falsy default", "native_batch_norm", argument(lambda c: c["momentum"] == 0, momentum=0.1),
     lambda: ask("torch.nn.functional.batch_norm", mixed(2, 2), torch.zeros(2), torch.ones(2), training=True, momentum=0.0), lambda: ask("torch.nn.functional.batch_norm", mixed(2, 2), torch.zeros(2), torch.ones(2), training=True)),
    ("clamp-of-zero", "not clamped", "a bound of 0 next to another bound", "falsy bound", "clamp", when(lambda c: not isinstance(c["min"], torch.Tensor) and not isinstance(c["max"], torch.Tensor)
                                                                                                  and c["min"] == 0 and c["max"] is not None, lambda c: c.right(min=None)),
     lambda: ask("torch.clamp", f32(-1, 3), 0, 2), lambda: ask("torch.clamp", f32(-1, 3), -2, 2)),
    ("round-to-tens", "rounded to units", "negative decimals", "attribute taken for 0", "round", argument(lambda c: c.arguments.get("decimals", 0) < 0, decimals=0), lambda: ask("torch.round", f32(123.4), decimals=-1),
     lambda: ask("torch.round", f32(123.45), decimals=1)),
    ("nan-to-num-of-zero", "NaN stays", "nan=0.0 with posinf given", "falsy replacement", "nan_to_num", when(lambda c: c["nan"] == 0 and c["posinf"] is not None, lambda c: put(c.right(), torch.isnan(c.x), NAN)),
     lambda: ask("torch.nan_to_num", f32(NAN), 0.0, 1.0), lambda: ask("torch.nan_to_num", f32(NAN), 0.0)),
)

BUGS = (*SEVERAL_RESULTS, *TILES, *SCANS, *CREATION, *STATISTICS, *GEOMETRY, *LIMITS)

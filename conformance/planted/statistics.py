"""Bugs of tensors made of numbers, statistics, geometry, and arguments at their limits."""

from __future__ import annotations

import math

import torch

from torchstone.conformance.planted.bug import ask, bugs
from torchstone.conformance.planted.changes import (
    NAN,
    along,
    argument,
    f32,
    floats,
    mixed,
    put,
    ramp,
    when,
)
from torchstone.conformance.planted.op_call import OpCall

TENSORS_MADE_OF_NUMBERS = bugs(
    "tensors made of numbers",
    (
        "linspace-of-integers-rounds",
        "rounded to the nearest",
        "integer dtypes",
        "conversion that rounds",
        "linspace",
        when(
            lambda c: c["dtype"] is not None and not c["dtype"].is_floating_point and not c["dtype"].is_complex,
            lambda c: torch.linspace(c["start"], c["end"], c["steps"]).round().to(c["dtype"]),
        ),
        lambda: ask("torch.linspace", 0, 5, 4, dtype=torch.int64),
        lambda: ask("torch.linspace", 0, 3, 4, dtype=torch.int64),
    ),
    (
        "arange-of-negative-step",
        "one element less",
        "negative steps",
        "count by floor in place of ceil",
        "arange",
        when(
            lambda c: (
                "step" in c and not isinstance(c["step"], torch.Tensor) and c["step"] < 0 and c.right().numel() > 1
            ),
            lambda c: c.right()[:-1].clone(),
        ),
        lambda: ask("torch.arange", 5, 0, -1),
        lambda: ask("torch.arange", 0, 5, 1),
    ),
    (
        "full-truncates",
        "the whole part",
        "a fraction with more than 64 elements",
        "fill through an integer pattern",
        "full",
        when(
            lambda c: (
                isinstance(c["fill_value"], float) and math.isfinite(c["fill_value"]) and math.prod(c["size"]) > 64
            ),
            lambda c: c.right(fill_value=float(int(c["fill_value"]))),
        ),
        lambda: ask("torch.full", (65,), 1.5),
        lambda: ask("torch.full", (64,), 1.5),
    ),
    (
        "fill-of-bool-nonzero",
        "false",
        "a fraction as the fill value of bool",
        "conversion by way of int",
        "full full_like",
        when(
            lambda c: c["dtype"] is torch.bool and isinstance(c["fill_value"], float),
            lambda c: c.right(fill_value=bool(int(c["fill_value"]))),
        ),
        lambda: ask("torch.full", (2,), 0.5, dtype=torch.bool),
        lambda: ask("torch.full", (2,), 1.5, dtype=torch.bool),
    ),
)


STATISTICS_AND_DISTANCES = bugs(
    "statistics and distances",
    (
        "histogram-edges-of-operand",
        "the range of the operand",
        "a range that is given",
        "attribute ignored",
        "histc",
        when(floats, lambda c: c.right(min=0, max=0)),
        lambda: ask("torch.histc", ramp(4), 2, 0, 10),
        lambda: ask("torch.histc", ramp(4), 2),
    ),
    (
        "pdist-of-last-pair",
        "0",
        "the last pair of more than 3 points",
        "loop that ends one early",
        "_pdist_forward",
        when(lambda c: c.x.shape[0] > 3, lambda c: torch.cat([c.right()[:-1], c.right()[-1:] * 0])),
        lambda: ask("torch.pdist", mixed(4, 2)),
        lambda: ask("torch.pdist", mixed(3, 2)),
    ),
    (
        "norm-of-zero-counts",
        "the number of elements",
        "ord 0",
        "x ** 0",
        "linalg_vector_norm",
        when(lambda c: c["ord"] == 0 and c["dim"] is None, lambda c: torch.ones_like(c.right()) * c.x.numel()),
        lambda: ask("torch.linalg.vector_norm", f32(0, 2), 0),
        lambda: ask("torch.linalg.vector_norm", f32(1, 2), 0),
    ),
    (
        "nansum-counts-nan",
        "NaN",
        "a dim that is not the last",
        "two paths, one without the select",
        "nansum",
        when(
            lambda c: floats(c) and c["dim"] and c.x.dim() > 1 and along(c) != c.x.dim() - 1,
            lambda c: torch.sum(c.x, c["dim"], keepdim=c["keepdim"]),
        ),
        lambda: ask("torch.nansum", f32([NAN, 1], [1, 1]), 0),
        lambda: ask("torch.nansum", f32([NAN, 1], [1, 1]), 1),
    ),
    (
        "median-of-dim-upper",
        "the upper of two",
        "median along a dim of even size",
        "rank n / 2",
        "median",
        when(
            lambda c: "dim" in c and c.x.dim() == 1 and c.x.numel() % 2 == 0 and not c["keepdim"] and floats(c),
            lambda c: torch.kthvalue(c.x, c.x.numel() // 2 + 1),
        ),
        lambda: ask("torch.median", f32(1, 2), 0),
        lambda: ask("torch.median", f32(1, 2, 3), 0),
    ),
)


def _block_first(call: OpCall) -> torch.Tensor:
    out, r = call.right(), call["downscale_factor"]
    channels = call.x.shape[-3]
    return out.unflatten(-3, (channels, r * r)).transpose(-4, -3).flatten(-4, -3)


GEOMETRY = bugs(
    "geometry",
    (
        "cross-along-first-three",
        "along the first dim of size 3",
        "another dim is given",
        "default dim",
        "linalg_cross cross",
        when(lambda c: c["dim"] not in (0, None) and c.x.shape[0] == 3 and c.x.dim() > 1, lambda c: c.right(dim=0)),
        lambda: ask("torch.linalg.cross", mixed(3, 3), ramp(3, 3)),
        lambda: ask("torch.linalg.cross", mixed(2, 3), ramp(2, 3)),
    ),
    (
        "grid-axes-exchanged",
        "y before x",
        "images that are not square",
        "order of coordinates",
        "grid_sampler_2d",
        when(lambda c: c["input"].shape[-1] != c["input"].shape[-2], lambda c: c.right(grid=c["grid"].flip(-1))),
        lambda: ask(
            "torch.nn.functional.grid_sample",
            ramp(1, 1, 2, 3),
            f32([[[0.5, -0.5]]]).reshape(1, 1, 1, 2),
            align_corners=False,
        ),
        lambda: ask(
            "torch.nn.functional.grid_sample",
            ramp(1, 1, 3, 3),
            f32([[[0.5, -0.5]]]).reshape(1, 1, 1, 2),
            align_corners=False,
        ),
    ),
    (
        "pixel-unshuffle-order",
        "blocks before channels",
        "more than one channel",
        "the other convention of space to depth",
        "pixel_unshuffle",
        when(lambda c: c.x.shape[-3] > 1, lambda c: _block_first(c)),
        lambda: ask("torch.nn.functional.pixel_unshuffle", ramp(1, 2, 2, 2), 2),
        lambda: ask("torch.nn.functional.pixel_unshuffle", ramp(1, 1, 2, 2), 2),
    ),
    (
        "channel-shuffle-backwards",
        "the inverse",
        "groups whose number is not that of the channels in one",
        "reshape with the sizes exchanged",
        "channel_shuffle native_channel_shuffle",
        when(
            lambda c: c.x.shape[1] // c["groups"] != c["groups"], lambda c: c.right(groups=c.x.shape[1] // c["groups"])
        ),
        lambda: ask("torch.nn.functional.channel_shuffle", ramp(1, 6, 1, 1), 2),
        lambda: ask("torch.nn.functional.channel_shuffle", ramp(1, 4, 1, 1), 2),
    ),
    (
        "fold-overwrites",
        "the last block wins",
        "blocks that overlap",
        "store in place of an addition",
        "col2im",
        when(
            lambda c: c["stride"] != c["kernel_size"],
            lambda c: c.right() / c.right(self=torch.ones_like(c.x)).clamp(min=1),
        ),
        lambda: ask("torch.nn.functional.fold", torch.ones(1, 4, 4), (3, 3), 2),
        lambda: ask("torch.nn.functional.fold", torch.ones(1, 4, 4), (4, 4), 2, stride=2),
    ),
    (
        "cubic-coefficient",
        "a = -0.5",
        "made larger, align_corners=False",
        "the other convention of the cubic",
        "upsample_bicubic2d",
        when(
            lambda c: not c["align_corners"] and c["output_size"][-1] > c.x.shape[-1],
            lambda c: (
                2 / 3 * c.right() + 1 / 3 * torch.nn.functional.interpolate(c.x, c["output_size"], mode="bilinear")
            ),
        ),
        lambda: ask("torch.nn.functional.interpolate", ramp(1, 1, 4, 4) ** 2, (8, 8), mode="bicubic"),
        lambda: ask("torch.nn.functional.interpolate", ramp(1, 1, 4, 4) ** 2, (3, 3), mode="bicubic"),
    ),
)


ARGUMENTS_AT_THEIR_LIMITS = bugs(
    "arguments at their limits",
    (
        "pow-zero-of-nan",
        "NaN in place of 1",
        "exponent 0",
        "exp of 0 times the logarithm",
        "pow",
        when(
            lambda c: floats(c) and not isinstance(c["exponent"], torch.Tensor) and c["exponent"] == 0,
            lambda c: put(c.right(), torch.isnan(c.x), NAN),
        ),
        lambda: ask("torch.pow", f32(NAN), 0),
        lambda: ask("torch.pow", f32(2.0), 0),
    ),
    (
        "softmax-of-one",
        "1 whatever the number",
        "a dim of size 1 with NaN",
        "shortcut",
        "_softmax",
        when(lambda c: floats(c) and c.x.dim() > 0 and c.x.shape[along(c)] == 1, lambda c: torch.ones_like(c.x)),
        lambda: ask("torch.softmax", f32([NAN], [1]), 1),
        lambda: ask("torch.softmax", f32([2], [1]), 1),
    ),
    (
        "lerp-to-the-end",
        "NaN: start + 1 * (end - start) of infinities",
        "weight 1 and an infinite start",
        "formula for weights below 0.5",
        "lerp",
        when(
            lambda c: floats(c),
            lambda c: c["self"] + torch.as_tensor(c["weight"], dtype=c.x.dtype) * (c["end"] - c["self"]),
        ),
        lambda: ask("torch.lerp", f32(1e30), f32(1.0), 1.0),
        lambda: ask("torch.lerp", f32(0.0), f32(1.0), 0.0),
    ),
    (
        "layer-norm-of-eps-zero",
        "eps 1e-5",
        "eps of 0",
        "falsy default",
        "native_layer_norm native_group_norm",
        argument(lambda c: c["eps"] == 0, eps=1e-5),
        lambda: ask("torch.nn.functional.layer_norm", f32([0.001, 0.002]), [2], None, None, 0.0),
        lambda: ask("torch.nn.functional.layer_norm", f32([0.001, 0.002]), [2]),
    ),
    (
        "alpha-of-zero",
        "alpha 1",
        "alpha of 0",
        "falsy default",
        "add sub",
        argument(lambda c: c["alpha"] == 0, alpha=1),
        lambda: ask("torch.add", f32(1), f32(2), alpha=0),
        lambda: ask("torch.add", f32(1), f32(2), alpha=2),
    ),
    (
        "momentum-of-zero",
        "momentum 0.1",
        "momentum of 0 in training",
        "falsy default",
        "native_batch_norm",
        argument(lambda c: c["momentum"] == 0, momentum=0.1),
        lambda: ask(
            "torch.nn.functional.batch_norm", mixed(2, 2), torch.zeros(2), torch.ones(2), training=True, momentum=0.0
        ),
        lambda: ask("torch.nn.functional.batch_norm", mixed(2, 2), torch.zeros(2), torch.ones(2), training=True),
    ),
    (
        "clamp-of-zero",
        "not clamped",
        "a bound of 0 next to another bound",
        "falsy bound",
        "clamp",
        when(
            lambda c: (
                not isinstance(c["min"], torch.Tensor)
                and not isinstance(c["max"], torch.Tensor)
                and c["min"] == 0
                and c["max"] is not None
            ),
            lambda c: c.right(min=None),
        ),
        lambda: ask("torch.clamp", f32(-1, 3), 0, 2),
        lambda: ask("torch.clamp", f32(-1, 3), -2, 2),
    ),
    (
        "round-to-tens",
        "rounded to units",
        "negative decimals",
        "attribute taken for 0",
        "round",
        argument(lambda c: c.arguments.get("decimals", 0) < 0, decimals=0),
        lambda: ask("torch.round", f32(123.4), decimals=-1),
        lambda: ask("torch.round", f32(123.45), decimals=1),
    ),
    (
        "nan-to-num-of-zero",
        "NaN stays",
        "nan=0.0 with posinf given",
        "falsy replacement",
        "nan_to_num",
        when(lambda c: c["nan"] == 0 and c["posinf"] is not None, lambda c: put(c.right(), torch.isnan(c.x), NAN)),
        lambda: ask("torch.nan_to_num", f32(NAN), 0.0, 1.0),
        lambda: ask("torch.nan_to_num", f32(NAN), 0.0),
    ),
)


BUGS = (
    *TENSORS_MADE_OF_NUMBERS,
    *STATISTICS_AND_DISTANCES,
    *GEOMETRY,
    *ARGUMENTS_AT_THEIR_LIMITS,
)

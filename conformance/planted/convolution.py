"""Bugs of convolution, pooling, interpolation and padding."""

from __future__ import annotations

from typing import Any

import torch

from torchstone.conformance.planted.bug import ask, bugs
from torchstone.conformance.planted.changes import (
    argument,
    f32,
    floats,
    mixed,
    put,
    ramp,
    strided,
    when,
)
from torchstone.conformance.planted.op_call import OpCall


def _shuffled_groups(call: OpCall) -> torch.Tensor:
    """Output channels in the order of a channel shuffle."""
    weight, groups = call["weight"], call["groups"]
    count = weight.shape[0] // groups
    order = torch.arange(weight.shape[0]).reshape(groups, count).T.reshape(-1)
    return call.right()[:, order] if call.x.dim() == weight.dim() else call.right()


def _unbiased_rim(call: OpCall) -> torch.Tensor:
    """Rows that output_padding adds have no bias."""
    out = call.right().clone()
    extra = call["output_padding"][-1]
    out[..., -extra:] -= call["bias"].reshape(-1, *[1] * (out.dim() - 2))
    return out


CONVOLUTION = bugs(
    "convolution",
    (
        "groups-shuffled",
        "output channels in the order of a channel shuffle",
        "more than one group, each of more than one channel",
        "weights laid out by channel first",
        "convolution",
        when(lambda c: 1 < c["groups"] < c["weight"].shape[0] and not c["transposed"], _shuffled_groups),
        lambda: ask("torch.nn.functional.conv1d", mixed(1, 4, 5), mixed(4, 2, 3), groups=2),
        lambda: ask("torch.nn.functional.conv1d", mixed(1, 4, 5), mixed(4, 1, 3), groups=4),
    ),
    (
        "dilation-of-first-dim",
        "the last dim's dilation for all dims",
        "dilations that differ",
        "one number for all",
        "convolution",
        when(
            lambda c: len(set(c["dilation"])) > 1, lambda c: c.right(dilation=[c["dilation"][-1]] * len(c["dilation"]))
        ),
        lambda: ask("torch.nn.functional.conv2d", mixed(1, 1, 7, 7), mixed(1, 1, 2, 2), dilation=(1, 2)),
        lambda: ask("torch.nn.functional.conv2d", mixed(1, 1, 7, 7), mixed(1, 1, 2, 2), dilation=2),
    ),
    (
        "output-padding-without-bias",
        "the rows that output_padding adds lack the bias",
        "transposed, with output_padding and a bias",
        "result padded with zeros",
        "convolution",
        when(lambda c: c["transposed"] and c["bias"] is not None and c["output_padding"][-1] > 0, _unbiased_rim),
        lambda: ask(
            "torch.nn.functional.conv_transpose1d",
            mixed(1, 2, 3),
            mixed(2, 2, 3),
            f32(1, 2),
            stride=2,
            output_padding=1,
        ),
        lambda: ask("torch.nn.functional.conv_transpose1d", mixed(1, 2, 3), mixed(2, 2, 3), f32(1, 2), stride=2),
    ),
    (
        "transposed-kernel-not-flipped",
        "the kernel is not flipped",
        "transposed, with a stride of 1",
        "convolution with the same weights",
        "convolution",
        when(lambda c: c["transposed"] and set(c["stride"]) == {1}, lambda c: c.right(weight=c["weight"].flip(-1))),
        lambda: ask("torch.nn.functional.conv_transpose1d", mixed(1, 1, 3), f32([[1, 2, 3]])),
        lambda: ask("torch.nn.functional.conv_transpose1d", mixed(1, 1, 3), f32([[1, 2, 3]]), stride=2),
    ),
    (
        "padding-of-strided-input",
        "no padding values but the edge's neighbours",
        "channels-last operands with padding",
        "padding read from memory",
        "convolution",
        when(
            lambda c: strided(c) and c.x.dim() == 4 and c["padding"][-1] > 0 and not c["transposed"],
            lambda c: (
                c.right(
                    self=torch.nn.functional.pad(c.x, [c["padding"][-1]] * 2, "replicate"),
                    padding=[*c["padding"][:-1], 0],
                )
                if "self" in c
                else c.right(
                    input=torch.nn.functional.pad(c.x, [c["padding"][-1]] * 2 + [0, 0], "replicate"),
                    padding=[*c["padding"][:-1], 0],
                )
            ),
        ),
        lambda: ask(
            "torch.nn.functional.conv2d",
            mixed(1, 2, 4, 4).contiguous(memory_format=torch.channels_last),
            mixed(1, 2, 3, 3),
            padding=1,
        ),
        lambda: ask("torch.nn.functional.conv2d", mixed(1, 2, 4, 4), mixed(1, 2, 3, 3), padding=1),
    ),
)


def _full_divisor(call: OpCall) -> torch.Tensor:
    height, width = _pair(call["kernel_size"])
    return call.right(divisor_override=height * width)


def _pair(value: Any) -> tuple[int, int]:
    return (value[0], value[-1]) if isinstance(value, list | tuple) else (value, value)


def _even_windows(call: OpCall) -> torch.Tensor:
    """Windows of one size, as if the sizes divided."""
    x, (height, width) = call.x, call["output_size"]
    rows, columns = x.shape[-2] // height, x.shape[-1] // width
    cut = x[..., : rows * height, : columns * width]
    return cut.reshape(*x.shape[:-2], height, rows, width, columns).mean((-3, -1))


def _rim(call: OpCall) -> torch.Tensor:
    out = torch.zeros_like(call.right()[0], dtype=torch.bool)
    out[..., 0] = True
    return out


POOLING = bugs(
    "pooling",
    (
        "ceil-mode-divisor",
        "the size of the kernel",
        "ceil_mode and count_include_pad with windows past the padding",
        "divisor at the border: iree-org/iree#24580",
        "avg_pool2d",
        when(lambda c: c["ceil_mode"] and c["count_include_pad"] and c["divisor_override"] is None, _full_divisor),
        lambda: ask("torch.nn.functional.avg_pool2d", ramp(1, 1, 8, 8) + 1, 3, 2, 1, ceil_mode=True),
        lambda: ask("torch.nn.functional.avg_pool2d", ramp(1, 1, 8, 8) + 1, 3, 2, 1),
    ),
    (
        "divisor-override-ignored",
        "the number of elements",
        "divisor_override",
        "silently ignored: llvm/torch-mlir#3822",
        "avg_pool2d avg_pool3d",
        argument(divisor_override=None),
        lambda: ask("torch.nn.functional.avg_pool2d", ramp(1, 1, 2, 2), 2, divisor_override=3),
        lambda: ask("torch.nn.functional.avg_pool2d", ramp(1, 1, 2, 2), 2),
    ),
    (
        "padding-counted",
        "padding is counted",
        "count_include_pad=False with ceil_mode",
        "attribute ignored: llvm/torch-mlir#4144",
        "avg_pool2d avg_pool1d avg_pool3d",
        argument(lambda c: not c["count_include_pad"] and c["ceil_mode"], count_include_pad=True),
        lambda: ask(
            "torch.nn.functional.avg_pool2d", ramp(1, 1, 4, 4) + 1, 2, 2, 1, ceil_mode=True, count_include_pad=False
        ),
        lambda: ask("torch.nn.functional.avg_pool2d", ramp(1, 1, 4, 4) + 1, 2, 2, 1, count_include_pad=False),
    ),
    (
        "max-pool-pads-with-zero",
        "0 at the border",
        "padding and negative numbers",
        "padding by 0",
        "max_pool2d_with_indices",
        when(
            lambda c: floats(c) and max(c["padding"]) > 0,
            lambda c: (put(c.right()[0], _rim(c) & (c.right()[0] < 0), 0), c.right()[1]),
        ),
        lambda: ask("torch.nn.functional.max_pool2d", -1 - ramp(1, 1, 4, 4), 2, 2, 1),
        lambda: ask("torch.nn.functional.max_pool2d", -1 - ramp(1, 1, 4, 4), 2, 2),
    ),
    (
        "max-pool-indices-of-dilated",
        "indices as if the window had no holes",
        "dilation, return_indices",
        "index without the dilation",
        "max_pool2d_with_indices",
        when(lambda c: max(c["dilation"]) > 1, lambda c: (c.right()[0], (c.right()[1] - 1).clamp(min=0))),
        lambda: ask("torch.nn.functional.max_pool2d", ramp(1, 1, 5, 5), 2, 1, 0, 2, return_indices=True),
        lambda: ask("torch.nn.functional.max_pool2d", ramp(1, 1, 5, 5), 2, 1, 0, 1, return_indices=True),
    ),
    (
        "adaptive-windows-of-one-size",
        "windows of the size that divides",
        "sizes that do not divide",
        "adaptive pooling as pooling",
        "_adaptive_avg_pool2d",
        when(
            lambda c: c.x.shape[-1] % c["output_size"][-1] != 0 or c.x.shape[-2] % c["output_size"][0] != 0,
            _even_windows,
        ),
        lambda: ask("torch.nn.functional.adaptive_avg_pool2d", ramp(1, 1, 5, 5), (2, 2)),
        lambda: ask("torch.nn.functional.adaptive_avg_pool2d", ramp(1, 1, 4, 4), (2, 2)),
    ),
    (
        "max-pool-drops-partial-window",
        "the last whole window again",
        "ceil_mode with a partial window",
        "clamped start of the window",
        "max_pool2d_with_indices",
        when(
            lambda c: c["ceil_mode"] and c.right()[0].shape[-1] > 1 and c.x.shape[-1] % 2 > 0,
            lambda c: tuple(torch.cat([o[..., :-1], o[..., -2:-1]], -1) for o in c.right()),
        ),
        lambda: ask("torch.nn.functional.max_pool2d", ramp(1, 1, 5, 5), 2, 2, ceil_mode=True),
        lambda: ask("torch.nn.functional.max_pool2d", ramp(1, 1, 5, 5), 2, 2),
    ),
)


def _asymmetric(call: OpCall) -> torch.Tensor:
    """Bilinear interpolation at dst * scale, without the half pixel."""
    out, (height, width) = call.x, call["output_size"]
    for dim, size in ((-2, height), (-1, width)):
        before = out.shape[dim]
        at = torch.arange(size) * before / size
        low = at.floor().long().clamp(max=before - 1)
        weight = (at - low).to(out.dtype).reshape([-1] + [1] * (-dim - 1))
        high = (low + 1).clamp(max=before - 1)
        out = out.index_select(dim, low) * (1 - weight) + out.index_select(dim, high) * weight
    return out


def _rounded_nearest(call: OpCall) -> torch.Tensor:
    size, before = call["output_size"][-1], call.x.shape[-1]
    at = ((torch.arange(size) + 0.5) * before / size - 0.5).round().long().clamp(0, before - 1)
    rows = call.right(output_size=[*call["output_size"][:-1], before], scales_w=None) if "scales_w" in call else call.x
    return rows.index_select(-1, at)


INTERPOLATION_AND_PADDING = bugs(
    "interpolation and padding",
    (
        "bilinear-without-half-pixel",
        "sampled at dst * scale",
        "align_corners=False, made smaller",
        "asymmetric coordinates: NVIDIA/TensorRT#273",
        "upsample_bilinear2d",
        when(lambda c: not c["align_corners"] and c["output_size"][-1] < c.x.shape[-1], _asymmetric),
        lambda: ask("torch.nn.functional.interpolate", ramp(1, 1, 4, 4), (3, 3), mode="bilinear"),
        lambda: ask("torch.nn.functional.interpolate", ramp(1, 1, 4, 4), (5, 5), mode="bilinear"),
    ),
    (
        "align-corners-ignored",
        "False",
        "align_corners, cubic",
        "same result for two modes: microsoft/onnxruntime#17564",
        "upsample_bicubic2d upsample_linear1d",
        argument(align_corners=False),
        lambda: ask("torch.nn.functional.interpolate", ramp(1, 1, 4, 4), (6, 6), mode="bicubic", align_corners=True),
        lambda: ask("torch.nn.functional.interpolate", ramp(1, 1, 4, 4), (6, 6), mode="bicubic"),
    ),
    (
        "antialias-ignored",
        "no antialiasing",
        "antialias when made smaller",
        "attribute ignored",
        "_upsample_bilinear2d_aa",
        lambda c: torch.nn.functional.interpolate(
            c.x, c["output_size"], mode="bilinear", align_corners=c["align_corners"]
        ),
        lambda: ask("torch.nn.functional.interpolate", ramp(1, 1, 9, 9) ** 2, (3, 3), mode="bilinear", antialias=True),
        lambda: ask("torch.nn.functional.interpolate", ramp(1, 1, 9, 9) ** 2, (3, 3), mode="bilinear"),
    ),
    (
        "nearest-rounds",
        "the nearest in the middle of pixels",
        "sizes whose ratio is no integer",
        "round in place of floor: microsoft/onnxruntime#28310",
        "upsample_nearest1d upsample_nearest2d",
        when(lambda c: c["output_size"][-1] % c.x.shape[-1] != 0 and c.x.shape[-1] > 1, _rounded_nearest),
        lambda: ask("torch.nn.functional.interpolate", ramp(1, 1, 5), 8),
        lambda: ask("torch.nn.functional.interpolate", ramp(1, 1, 5), 10),
    ),
    (
        "scale-factor-recomputed",
        "the scale from the sizes",
        "a scale factor that the sizes do not give back",
        "scale not passed on",
        "upsample_bilinear2d upsample_linear1d upsample_nearest2d upsample_nearest1d",
        lambda c: c.right(**{k: None for k in c.arguments if k.startswith("scale")}),
        lambda: ask("torch.nn.functional.interpolate", ramp(1, 1, 5, 5), scale_factor=1.3, mode="bilinear"),
        lambda: ask("torch.nn.functional.interpolate", ramp(1, 1, 5, 5), (6, 6), mode="bilinear"),
    ),
    (
        "reflection-is-border",
        "the border",
        "grid_sample, padding mode reflection",
        "two modes in one branch",
        "grid_sampler_2d grid_sampler_3d",
        argument(lambda c: c["padding_mode"] == 2, padding_mode=1),
        lambda: ask(
            "torch.nn.functional.grid_sample",
            ramp(1, 1, 3, 3),
            torch.full((1, 1, 1, 2), 1.9),
            "bilinear",
            "reflection",
            False,
        ),
        lambda: ask(
            "torch.nn.functional.grid_sample",
            ramp(1, 1, 3, 3),
            torch.full((1, 1, 1, 2), 1.9),
            "bilinear",
            "border",
            False,
        ),
    ),
    (
        "reflect-repeats-the-edge",
        "the edge is repeated",
        "reflection padding of the whole size less one",
        "symmetric in place of reflect",
        "reflection_pad1d reflection_pad2d",
        when(
            lambda c: c["padding"][0] == c.x.shape[-1] - 1 and c["padding"][0] > 0,
            lambda c: torch.cat(
                [
                    c.right()[..., 1 : c["padding"][0]],
                    c.x[..., :1]
                    if c.x.dim() == c.right().dim() and c.right().shape[:-1] == c.x.shape[:-1]
                    else c.right()[..., c["padding"][0] : c["padding"][0] + 1],
                    c.right()[..., c["padding"][0] :],
                ],
                -1,
            ),
        ),
        lambda: ask("torch.nn.functional.pad", ramp(1, 1, 3), (2, 0), mode="reflect"),
        lambda: ask("torch.nn.functional.pad", ramp(1, 1, 3), (1, 0), mode="reflect"),
    ),
    (
        "unfold-pads-with-ones",
        "1 in the padding",
        "unfold with padding and dilation",
        "uninitialized padding",
        "im2col",
        when(
            lambda c: max(c["padding"]) > 0 and max(c["dilation"]) > 1,
            lambda c: put(c.right(), c.right(self=torch.ones_like(c.x)) == 0, 1),
        ),
        lambda: ask("torch.nn.functional.unfold", ramp(1, 1, 4, 4), 2, 2, 1),
        lambda: ask("torch.nn.functional.unfold", ramp(1, 1, 4, 4), 2, 1, 1),
    ),
)


BUGS = (
    *CONVOLUTION,
    *POOLING,
    *INTERPOLATION_AND_PADDING,
)

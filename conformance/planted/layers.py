"""Bugs of neural network ops: convolution, pooling, padding, interpolation, normalization, activations, losses."""

from __future__ import annotations

from typing import Any

import torch

from torchstone.conformance.planted.bug import ask, bugs
from torchstone.conformance.planted.changes import (
    INF,
    argument,
    elements,
    f32,
    floats,
    i64,
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


def _rim(call: OpCall) -> torch.Tensor:
    out = torch.zeros_like(call.right()[0], dtype=torch.bool)
    out[..., 0] = True
    return out


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


INTERPOLATION = bugs(
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
        "unfold-pads-with-edge",
        "not 0 in the padding but the number 1",
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


def _training(call: OpCall) -> bool:
    name = "training" if "training" in call else "train"
    return bool(call[name])


def _biased_running(call: OpCall) -> Any:
    """The running variance moves to the biased variance of the batch."""
    running = call["running_var"]
    before = None if running is None else running.clone()
    out = call.right()
    if running is not None and before is not None:
        count = call.x.numel() / call.x.shape[1]
        running.sub_((running - before * (1 - call["momentum"])) / count)
    return out


def _whole_rows(call: OpCall) -> Any:
    """The weight of the first rows for all of them."""
    weight = call["weight"]
    return call.right(weight=weight[:1].expand(weight.shape).contiguous())


NORMALIZATION = bugs(
    "normalization",
    (
        "running-variance-biased",
        "the biased variance of the batch",
        "training, the running variance",
        "the same variance for two uses",
        "native_batch_norm",
        when(lambda c: floats(c) and _training(c), _biased_running),
        lambda: ask(
            "torch.nn.functional.batch_norm", mixed(2, 2, 2), torch.zeros(2), torch.ones(2), training=True, momentum=0.5
        ),
        lambda: ask("torch.nn.functional.batch_norm", mixed(2, 2, 2), torch.zeros(2), torch.ones(2)),
    ),
    (
        "eps-outside-the-root",
        "the root of the variance, plus eps",
        "small variances",
        "eps added after the root",
        "native_layer_norm",
        when(
            lambda c: (
                floats(c)
                and len(c["normalized_shape"]) == 1
                and c["weight"] is None
                and c["bias"] is None
                and c.x.dim() > 0
            ),
            lambda c: (
                (c.x - c.x.mean(-1, keepdim=True)) / (c.x.var(-1, keepdim=True, correction=0).sqrt() + c["eps"]),
                *c.right()[1:],
            ),
        ),
        lambda: ask("torch.nn.functional.layer_norm", f32([0.001, 0.002, 0.003]), [3]),
        lambda: ask("torch.nn.functional.layer_norm", f32([0.001, 0.002]), [2], f32(1, 1)),
    ),
    (
        "group-norm-of-channels-last",
        "groups along memory",
        "channels-last operands",
        "groups formed in memory: pytorch/pytorch#183120",
        "native_group_norm",
        when(
            lambda c: strided(c) and c.x.dim() == 4 and c["group"] > 1,
            lambda c: (c.right(input=c.x.flip(1).contiguous())[0].flip(1), *c.right()[1:]),
        ),
        lambda: ask(
            "torch.nn.functional.group_norm",
            mixed(1, 3, 2, 2).contiguous(memory_format=torch.channels_last),
            3,
            f32(1, 2, 3),
        ),
        lambda: ask("torch.nn.functional.group_norm", mixed(1, 3, 2, 2), 3, f32(1, 2, 3)),
    ),
    (
        "layer-norm-weight-of-last-dim",
        "the weight of the first row for all",
        "normalized over more than one dim, with a weight",
        "weight broadcast along the last dim",
        "native_layer_norm",
        when(lambda c: len(c["normalized_shape"]) > 1 and c["weight"] is not None, _whole_rows),
        lambda: ask("torch.nn.functional.layer_norm", mixed(2, 2), [2, 2], f32([1, 2], [3, 4])),
        lambda: ask("torch.nn.functional.layer_norm", mixed(2, 2), [2], f32(1, 2)),
    ),
    (
        "renorm-shrinks-the-equal",
        "scaled by 1 / 2",
        "rows whose norm is just maxnorm",
        ">= in place of >",
        "renorm",
        when(floats, lambda c: put(c.right(), _norms(c) == c["maxnorm"], c.x / 2)),
        lambda: ask("torch.renorm", f32([3, 4], [0, 1]), 2, 0, 5.0),
        lambda: ask("torch.renorm", f32([3, 4], [0, 1]), 2, 0, 2.0),
    ),
    (
        "batch-norm-eval-without-weight",
        "the weight is left out",
        "evaluation with a weight and no bias",
        "folded into a bias that is not there",
        "native_batch_norm",
        when(
            lambda c: not _training(c) and c["weight"] is not None and c["bias"] is None, lambda c: c.right(weight=None)
        ),
        lambda: ask("torch.nn.functional.batch_norm", mixed(2, 2), torch.zeros(2), torch.ones(2), f32(2, 3)),
        lambda: ask("torch.nn.functional.batch_norm", mixed(2, 2), torch.zeros(2), torch.ones(2), f32(2, 3), f32(0, 0)),
    ),
)


def _norms(call: OpCall) -> torch.Tensor:
    dims = [d for d in range(call.x.dim()) if d != call["dim"] % call.x.dim()]
    return torch.linalg.vector_norm(call.x, call["p"], dims, keepdim=True).expand(call.x.shape)


ACTIVATIONS = bugs(
    "activations and losses",
    (
        "threshold-is-relu",
        "0 in place of the value",
        "a value other than 0",
        "threshold as relu: apache/tvm#14805",
        "threshold",
        argument(value=0),
        lambda: ask("torch.nn.functional.threshold", f32(-1, 2), 1.0, 3.0),
        lambda: ask("torch.nn.functional.threshold", f32(-1, 2), 1.0, 0.0),
    ),
    (
        "elu-scale-of-positive",
        "the scale for positive numbers alone",
        "a scale other than 1: selu",
        "scale applied in one branch",
        "elu",
        when(lambda c: floats(c) and c["scale"] != 1, lambda c: put(c.right(), c.x < 0, c.right(scale=1))),
        lambda: ask("torch.selu", f32(-1, 1)),
        lambda: ask("torch.nn.functional.elu", f32(-1, 1)),
    ),
    (
        "prelu-weight-on-last-dim",
        "one slope a column",
        "as many channels as columns",
        "weight broadcast along the last dim: apache/tvm#18598",
        "_prelu_kernel",
        when(
            lambda c: c["weight"].numel() > 1 and c.x.dim() > 2 and c.x.shape[1] == c.x.shape[-1],
            lambda c: c.right(weight=c["weight"].transpose(1, -1)),
        ),
        lambda: ask("torch.nn.functional.prelu", -mixed(1, 2, 2).abs(), f32(1, 2)),
        lambda: ask("torch.nn.functional.prelu", -mixed(1, 2, 3).abs(), f32(1, 2)),
    ),
    (
        "glu-halves-exchanged",
        "the gate is the first half",
        "a dim that is not the last",
        "halves in the order of memory",
        "glu",
        when(
            lambda c: floats(c) and c["dim"] % c.x.dim() != c.x.dim() - 1,
            lambda c: c.right(self=c.x.roll(c.x.shape[c["dim"]] // 2, c["dim"])),
        ),
        lambda: ask("torch.nn.functional.glu", mixed(2, 3), 0),
        lambda: ask("torch.nn.functional.glu", mixed(2, 4), 1),
    ),
    (
        "gelu-tanh-for-none",
        "the approximation by tanh",
        "approximate=none, numbers of magnitude 1 to 3",
        "one lowering for two modes",
        "gelu",
        when(floats, lambda c: c.right(approximate="tanh")),
        lambda: ask("torch.nn.functional.gelu", f32(-2.0)),
        lambda: ask("torch.nn.functional.gelu", f32(-2.0), approximate="tanh"),
    ),
    (
        "nll-mean-counts-ignored",
        "divided by the batch",
        "ignore_index among the targets, reduction mean",
        "mean over the batch",
        "nll_loss_forward nll_loss2d_forward",
        when(
            lambda c: c["reduction"] == 1 and c["weight"] is None and (c["target"] == c["ignore_index"]).any(),
            lambda c: (c.right(reduction=2)[0] / c["target"].numel(), c.right()[1]),
        ),
        lambda: ask("torch.nn.functional.nll_loss", mixed(2, 3), i64(1, -100)),
        lambda: ask("torch.nn.functional.nll_loss", mixed(2, 3), i64(1, 2)),
    ),
    (
        "nll-weighted-mean",
        "divided by the batch",
        "weights and reduction mean",
        "mean over the batch",
        "nll_loss_forward",
        when(
            lambda c: c["reduction"] == 1 and c["weight"] is not None,
            lambda c: (c.right(reduction=2)[0] / c["target"].numel(), c.right()[1]),
        ),
        lambda: ask("torch.nn.functional.nll_loss", mixed(2, 3), i64(1, 2), f32(1, 2, 3)),
        lambda: ask("torch.nn.functional.nll_loss", mixed(2, 3), i64(1, 2), f32(1, 2, 3), reduction="sum"),
    ),
    (
        "huber-slope-of-one",
        "a slope of 1 in the linear part",
        "a delta other than 1",
        "smooth l1 in place of huber",
        "huber_loss",
        when(lambda c: floats(c) and c["delta"] != 1, lambda c: c.right() / c["delta"]),
        lambda: ask("torch.nn.functional.huber_loss", f32(5.0), f32(0.0), delta=2.0),
        lambda: ask("torch.nn.functional.huber_loss", f32(5.0), f32(0.0)),
    ),
    (
        "multi-margin-of-order-one",
        "p is 1",
        "p of 2",
        "attribute ignored",
        "multi_margin_loss",
        argument(p=1),
        lambda: ask("torch.nn.functional.multi_margin_loss", mixed(2, 3), i64(1, 2), p=2),
        lambda: ask("torch.nn.functional.multi_margin_loss", mixed(2, 3), i64(1, 2)),
    ),
    (
        "loss-mean-by-batch",
        "divided by the size of the batch",
        "reduction mean of more than one dim",
        "mean over the first dim",
        "mse_loss",
        when(
            lambda c: floats(c) and c["reduction"] == 1 and c.x.dim() > 1 and c.x.shape[0] > 0,
            lambda c: c.right(reduction=2) / c.x.shape[0],
        ),
        lambda: ask("torch.nn.functional.mse_loss", mixed(2, 3), ramp(2, 3)),
        lambda: ask("torch.nn.functional.mse_loss", mixed(3), ramp(3)),
    ),
    (
        "softshrink-of-nan",
        "0",
        "NaN",
        "two comparisons that NaN fails",
        "softshrink",
        elements(lambda c: torch.isnan(c.x), lambda c: 0.0),
        lambda: ask("torch.nn.functional.softshrink", f32(INF - INF, 1)),
        lambda: ask("torch.nn.functional.softshrink", f32(2, 1)),
    ),
    (
        "hardtanh-of-integers",
        "the bounds -1 and 1",
        "integers with other bounds",
        "defaults in the integer path",
        "hardtanh",
        when(lambda c: not c.x.is_floating_point(), lambda c: c.right(min_val=-1, max_val=1)),
        lambda: ask("torch.nn.functional.hardtanh", i64(5), -3, 3),
        lambda: ask("torch.nn.functional.hardtanh", f32(5.0), -3, 3),
    ),
    (
        "pos-weight-ignored",
        "1",
        "pos_weight",
        "attribute ignored",
        "binary_cross_entropy_with_logits",
        argument(pos_weight=None),
        lambda: ask("torch.nn.functional.binary_cross_entropy_with_logits", f32(1, 2), f32(1, 0), pos_weight=f32(3, 3)),
        lambda: ask("torch.nn.functional.binary_cross_entropy_with_logits", f32(1, 2), f32(1, 0)),
    ),
)


def _attention(call: OpCall, mask: torch.Tensor | None, scale: float) -> Any:
    q, k, v = call["query"], call["key"], call["value"]
    scores = q @ k.transpose(-2, -1) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -INF)
    out = torch.nan_to_num(torch.softmax(scores, -1)) @ v
    right = call.right()
    return (out, *right[1:])


def _bottom_right(call: OpCall) -> Any:
    rows, columns = call["query"].shape[-2], call["key"].shape[-2]
    mask = torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows)
    return _attention(call, mask, _scale(call))


def _scale(call: OpCall) -> float:
    return call["query"].shape[-1] ** -0.5 if call["scale"] is None else call["scale"]


_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_attention_math"

ATTENTION = bugs(
    "attention",
    (
        "causal-mask-bottom-right",
        "aligned with the last key",
        "is_causal with more keys than queries",
        "the other convention of a causal mask",
        _ATTENTION,
        when(lambda c: c["is_causal"] and c["query"].shape[-2] < c["key"].shape[-2], _bottom_right),
        lambda: ask(
            "torch.nn.functional.scaled_dot_product_attention",
            mixed(1, 1, 2, 4),
            mixed(1, 1, 3, 4),
            mixed(1, 1, 3, 4),
            is_causal=True,
        ),
        lambda: ask(
            "torch.nn.functional.scaled_dot_product_attention",
            mixed(1, 1, 3, 4),
            mixed(1, 1, 3, 4),
            mixed(1, 1, 3, 4),
            is_causal=True,
        ),
    ),
    (
        "scale-of-default",
        "the root of the size",
        "a scale",
        "attribute dropped by a pattern",
        _ATTENTION,
        when(lambda c: c["scale"] is not None, lambda c: c.right(scale=None)),
        lambda: ask(
            "torch.nn.functional.scaled_dot_product_attention",
            mixed(1, 1, 2, 4),
            mixed(1, 1, 3, 4),
            mixed(1, 1, 3, 4),
            scale=2.0,
        ),
        lambda: ask(
            "torch.nn.functional.scaled_dot_product_attention", mixed(1, 1, 2, 4), mixed(1, 1, 3, 4), mixed(1, 1, 3, 4)
        ),
    ),
    (
        "attention-mask-of-first-head",
        "the first head's mask for all",
        "a mask of more than one head",
        "head stride of 0",
        _ATTENTION,
        when(
            lambda c: c["attn_mask"] is not None and c["attn_mask"].dim() == 4 and c["attn_mask"].shape[1] > 1,
            lambda c: c.right(attn_mask=c["attn_mask"][:, :1].expand(c["attn_mask"].shape).contiguous()),
        ),
        lambda: ask(
            "torch.nn.functional.scaled_dot_product_attention",
            mixed(1, 2, 2, 4),
            mixed(1, 2, 3, 4),
            mixed(1, 2, 3, 4),
            mixed(1, 2, 2, 3) * 5,
        ),
        lambda: ask(
            "torch.nn.functional.scaled_dot_product_attention", mixed(1, 2, 2, 4), mixed(1, 2, 3, 4), mixed(1, 2, 3, 4)
        ),
    ),
)

BUGS = (*CONVOLUTION, *POOLING, *INTERPOLATION, *NORMALIZATION, *ACTIVATIONS, *ATTENTION)

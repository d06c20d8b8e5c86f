"""Bugs of normalization, activations, attention, and attributes that are ignored."""

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
)


def _whole_rows(call: OpCall) -> Any:
    """The weight of the first rows for all of them."""
    weight = call["weight"]
    return call.right(weight=weight[:1].expand(weight.shape).contiguous())


def _norms(call: OpCall) -> torch.Tensor:
    dims = [d for d in range(call.x.dim()) if d != call["dim"] % call.x.dim()]
    return torch.linalg.vector_norm(call.x, call["p"], dims, keepdim=True).expand(call.x.shape)


WEIGHTS_AND_LAYOUTS_OF_NORMALIZATION = bugs(
    "weights and layouts of normalization",
    (
        "group-norm-of-channels-last",
        "groups along memory",
        "channels-last operands",
        "group norm decomposed wrongly: pytorch/pytorch#183120",
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


ACTIVATIONS = bugs(
    "activations",
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
        "wrong results of PReLU: apache/tvm#18598",
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
)


IGNORED_ATTRIBUTES = bugs(
    "ignored attributes",
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
        "pos-weight-ignored",
        "1",
        "pos_weight",
        "attribute ignored",
        "binary_cross_entropy_with_logits",
        argument(pos_weight=None),
        lambda: ask("torch.nn.functional.binary_cross_entropy_with_logits", f32(1, 2), f32(1, 0), pos_weight=f32(3, 3)),
        lambda: ask("torch.nn.functional.binary_cross_entropy_with_logits", f32(1, 2), f32(1, 0)),
    ),
    (
        "logspace-of-ten",
        "base 10",
        "another base",
        "attribute ignored",
        "logspace",
        argument(base=10.0),
        lambda: ask("torch.logspace", 0.0, 3.0, 4, 2.0),
        lambda: ask("torch.logspace", 0.0, 3.0, 4),
    ),
    (
        "tril-indices-from-diagonal",
        "offset 0",
        "an offset",
        "attribute ignored",
        "tril_indices triu_indices",
        argument(offset=0),
        lambda: ask("torch.tril_indices", 3, 3, 1),
        lambda: ask("torch.tril_indices", 3, 3),
    ),
    (
        "ones-like-of-other-dtype",
        "the operand's dtype",
        "a dtype that is given",
        "attribute ignored",
        "ones_like zeros_like full_like",
        when(lambda c: c["dtype"] is not None, lambda c: c.right(dtype=c.x.dtype)),
        lambda: ask("torch.ones_like", i64(1), dtype=torch.float32),
        lambda: ask("torch.ones_like", i64(1)),
    ),
    (
        "window-of-other-period",
        "symmetric",
        "periodic windows",
        "attribute ignored",
        "hann_window hamming_window blackman_window bartlett_window kaiser_window",
        when(lambda c: "periodic" in c, lambda c: c.right(periodic=False)),
        lambda: ask("torch.ops.aten.hann_window.periodic", 6, True),
        lambda: ask("torch.ops.aten.hann_window.periodic", 6, False),
    ),
    (
        "bincount-unweighted",
        "counts",
        "weights",
        "attribute ignored",
        "bincount",
        lambda c: c.right(weights=None).to(c.right().dtype),
        lambda: ask("torch.bincount", i64(0, 1), f32(2, 3)),
        lambda: ask("torch.bincount", i64(0, 1)),
    ),
    (
        "histogram-not-dense",
        "counts",
        "density",
        "attribute ignored",
        "histogram",
        argument(density=False),
        lambda: ask("torch.histogram", ramp(4), 2, density=True),
        lambda: ask("torch.histogram", ramp(4), 2),
    ),
    (
        "cdist-of-order-two",
        "p is 2",
        "p of 1 and inf",
        "one kernel",
        "_cdist_forward",
        argument(lambda c: c["p"] not in (0, 2), p=2.0),
        lambda: ask("torch.cdist", mixed(2, 3), mixed(2, 3) + 1, 1.0),
        lambda: ask("torch.cdist", mixed(2, 3), mixed(2, 3) + 1),
    ),
    (
        "affine-grid-corners",
        "align_corners is false",
        "align_corners",
        "attribute ignored",
        "affine_grid_generator",
        argument(align_corners=False),
        lambda: ask("torch.nn.functional.affine_grid", f32([[1, 0, 0], [0, 1, 0]]), (1, 1, 3, 3), align_corners=True),
        lambda: ask("torch.nn.functional.affine_grid", f32([[1, 0, 0], [0, 1, 0]]), (1, 1, 3, 3), align_corners=False),
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


BUGS = (
    *NORMALIZATION,
    *WEIGHTS_AND_LAYOUTS_OF_NORMALIZATION,
    *ACTIVATIONS,
    *IGNORED_ATTRIBUTES,
    *ATTENTION,
)

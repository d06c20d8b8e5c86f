"""Bugs of gradients: what ops of a backward pass give."""

from __future__ import annotations

from typing import Any

import torch

from torchstone.conformance.planted.bug import Witness, ask, bugs
from torchstone.conformance.planted.changes import (
    argument,
    f32,
    floats,
    i64,
    mixed,
    put,
    ramp,
    when,
)
from torchstone.conformance.planted.op_call import OpCall


def _with(out: Any, place: int, value: torch.Tensor) -> Any:
    return tuple(value if i == place else one for i, one in enumerate(out))


def _last_duplicate(call: OpCall) -> torch.Tensor:
    out = torch.zeros_like(call.right())
    grad = call["grad_output"].reshape(-1, out.shape[-1])
    indices = call["indices"].reshape(-1)
    keep = indices != call["padding_idx"]
    out[indices[keep]] = grad[keep]
    return out


def _stale(call: OpCall) -> Any:
    """What the forward pass left at the first call."""
    if "saved" not in call.state:
        call.state["saved"] = call["output"].clone()
    saved = call.state["saved"]
    return call.right(output=saved) if saved.shape == call["output"].shape else call.right()


def _overwriting(call: OpCall) -> torch.Tensor:
    """Windows that overlap: the last one's gradient."""
    out = torch.zeros_like(call.right())
    flat, places = call["grad_output"].flatten(-2), call["indices"].flatten(-2)
    return out.flatten(-2).scatter(-1, places, flat).reshape(out.shape)


def _softmax_again(call: OpCall) -> torch.Tensor:
    grad, out = call["grad_output"], call["output"]
    return out * (grad - (grad * out).sum(-1, keepdim=True))


def _rows_but_last(call: OpCall) -> Any:
    out = call.right()
    rows = call["grad_out"].reshape(-1, *call["normalized_shape"])
    cut = call["grad_out"].reshape(rows.shape).clone()
    cut[-1] = 0
    other = call.right(grad_out=cut.reshape(call["grad_out"].shape))
    return out[0], other[1], other[2]


def _backward(target: str, *args: Any, **kwargs: Any) -> Witness:
    return ask(target, *args, **kwargs).backward()


def _second(target: str, x: torch.Tensor, y: torch.Tensor, *args: Any) -> Witness:
    """The gradient at x, and then at y."""
    witness = _backward(target, x, *args)
    return witness.again(y, *witness.calls[0][1:])


F = "torch.nn.functional."


GRADIENTS = bugs(
    "gradients",
    (
        "softmax-gradient-along-last",
        "summed along the last dim",
        "a dim that is not the last",
        "dim normalized in the forward pass alone",
        "_softmax_backward_data",
        when(lambda c: c["dim"] % c["output"].dim() != c["output"].dim() - 1, _softmax_again),
        lambda: _backward("torch.softmax", mixed(2, 3), 0),
        lambda: _backward("torch.softmax", mixed(2, 3), 1),
    ),
    (
        "softmax-gradient-of-first-call",
        "the result of the first call",
        "a second call with other numbers",
        "saved tensor kept from an earlier call",
        "_softmax_backward_data _log_softmax_backward_data tanh_backward sigmoid_backward",
        _stale,
        lambda: _second("torch.tanh", f32(1, 2), f32(3, 0.5)),
        lambda: _second("torch.tanh", f32(1, 2), f32(1, 2)),
    ),
    (
        "max-pool-gradient-overwrites",
        "the last window's gradient",
        "windows that overlap",
        "store in place of an addition",
        "max_pool2d_with_indices_backward",
        when(lambda c: c["grad_output"].dim() == 4, _overwriting),
        lambda: _backward(F + "max_pool2d", ramp(1, 1, 3, 3) % 5, 2, 1),
        lambda: _backward(F + "max_pool2d", ramp(1, 1, 4, 4), 2),
    ),
    (
        "embedding-gradient-overwrites",
        "the last gradient of an index",
        "an index that occurs more than once",
        "store in place of an addition",
        "embedding_dense_backward",
        when(lambda c: not c["scale_grad_by_freq"], _last_duplicate),
        lambda: _backward(F + "embedding", i64(1, 1), ramp(3, 2)),
        lambda: _backward(F + "embedding", i64(1, 2), ramp(3, 2)),
    ),
    (
        "embedding-gradient-of-padding",
        "a gradient for the padding row",
        "padding_idx",
        "attribute ignored",
        "embedding_dense_backward",
        argument(padding_idx=-1),
        lambda: _backward(F + "embedding", i64(1, 2), ramp(3, 2), padding_idx=1),
        lambda: _backward(F + "embedding", i64(1, 2), ramp(3, 2)),
    ),
    (
        "embedding-gradient-unscaled",
        "not divided by the frequency",
        "scale_grad_by_freq",
        "attribute ignored",
        "embedding_dense_backward",
        argument(scale_grad_by_freq=False),
        lambda: _backward(F + "embedding", i64(1, 1), ramp(3, 2), scale_grad_by_freq=True),
        lambda: _backward(F + "embedding", i64(1, 1), ramp(3, 2)),
    ),
    (
        "layer-norm-weight-gradient",
        "the last row is left out",
        "more than two rows, with a weight",
        "partial sums of rows: pytorch/pytorch#193061",
        "native_layer_norm_backward",
        when(lambda c: c["weight"] is not None and c["grad_out"].numel() > 2 * c["weight"].numel(), _rows_but_last),
        lambda: _backward(F + "layer_norm", mixed(3, 4), [4], f32(1, 2, 3, 4)),
        lambda: _backward(F + "layer_norm", mixed(2, 4), [4], f32(1, 2, 3, 4)),
    ),
    (
        "bias-gradient-is-a-mean",
        "the mean over the batch",
        "a batch of more than one, with a bias",
        "mean in place of the sum",
        "convolution_backward",
        when(
            lambda c: c["bias_sizes"] is not None and c["output_mask"][2] and c["input"].shape[0] > 1,
            lambda c: _with(c.right(), 2, c.right()[2] / c["input"].shape[0]),
        ),
        lambda: _backward(F + "conv1d", mixed(2, 1, 4), mixed(1, 1, 2), f32(1)),
        lambda: _backward(F + "conv1d", mixed(1, 1, 4), mixed(1, 1, 2), f32(1)),
    ),
    (
        "weight-gradient-of-strided",
        "columns that no window covers whole are counted",
        "a stride that leaves some over",
        "input not cut to what was read",
        "convolution_backward",
        when(
            lambda c: max(c["stride"]) > 1 and not c["transposed"] and c["output_mask"][1],
            lambda c: _with(c.right(), 1, c.right(input=c["input"].roll(1, -1))[1]),
        ),
        lambda: _backward(F + "conv1d", mixed(1, 1, 6), mixed(1, 1, 3), stride=2),
        lambda: _backward(F + "conv1d", mixed(1, 1, 6), mixed(1, 1, 3)),
    ),
    (
        "mse-gradient-by-batch",
        "divided by the size of the batch",
        "reduction mean of more than one dim",
        "mean over the first dim",
        "mse_loss_backward",
        when(
            lambda c: c["reduction"] == 1 and c["self"].dim() > 1 and c["self"].shape[0] > 0,
            lambda c: c.right(reduction=2) / c["self"].shape[0],
        ),
        lambda: _backward(F + "mse_loss", mixed(2, 3), ramp(2, 3)),
        lambda: _backward(F + "mse_loss", mixed(3), ramp(3)),
    ),
    (
        "gelu-gradient-of-the-other-mode",
        "the gradient of the other approximation",
        "approximate=tanh",
        "one formula for two modes",
        "gelu_backward",
        argument(lambda c: c["approximate"] == "tanh", approximate="none"),
        lambda: _backward(F + "gelu", f32(-2.0, 1.0), approximate="tanh"),
        lambda: _backward(F + "gelu", f32(-2.0, 1.0)),
    ),
    (
        "bilinear-gradient-align-corners",
        "as without align_corners",
        "align_corners",
        "attribute ignored",
        "upsample_bilinear2d_backward",
        argument(align_corners=False),
        lambda: _backward(F + "interpolate", ramp(1, 1, 3, 3), (5, 5), mode="bilinear", align_corners=True),
        lambda: _backward(F + "interpolate", ramp(1, 1, 3, 3), (5, 5), mode="bilinear"),
    ),
    (
        "smooth-l1-gradient-of-beta-one",
        "beta is 1",
        "other betas",
        "attribute ignored",
        "smooth_l1_loss_backward",
        argument(lambda c: c["beta"] > 0, beta=1.0),
        lambda: _backward(F + "smooth_l1_loss", f32(0.5, 3), f32(0, 0), beta=2.0),
        lambda: _backward(F + "smooth_l1_loss", f32(0.5, 3), f32(0, 0)),
    ),
    (
        "hardswish-gradient-inside",
        "1 for numbers from 2 on",
        "between 2 and 3",
        "bounds of another function",
        "hardswish_backward",
        when(floats, lambda c: put(c.right(), (c["self"] > 2) & (c["self"] < 3), c["grad_output"])),
        lambda: _backward(F + "hardswish", f32(2.5, 1)),
        lambda: _backward(F + "hardswish", f32(1.5, 4)),
    ),
    (
        "avg-pool-gradient-counts-padding",
        "divided by the size of the window",
        "count_include_pad=False with padding",
        "attribute ignored",
        "avg_pool2d_backward",
        argument(count_include_pad=True),
        lambda: _backward(F + "avg_pool2d", ramp(1, 1, 4, 4), 2, 2, 1, count_include_pad=False),
        lambda: _backward(F + "avg_pool2d", ramp(1, 1, 4, 4), 2, 2, 1),
    ),
    (
        "batch-norm-gradient-in-evaluation",
        "as in training",
        "evaluation",
        "flag of the forward pass lost",
        "native_batch_norm_backward",
        when(
            lambda c: not c["train"],
            lambda c: c.right(
                train=True,
                save_mean=c["input"].transpose(0, 1).flatten(1).mean(1),
                save_invstd=torch.rsqrt(c["input"].transpose(0, 1).flatten(1).var(1, correction=0) + c["eps"]),
            ),
        ),
        lambda: _backward(F + "batch_norm", mixed(3, 2), torch.zeros(2), torch.ones(2)),
        lambda: _backward(F + "batch_norm", mixed(3, 2), None, None, training=True),
    ),
    (
        "index-gradient-overwrites",
        "the last gradient of an index",
        "the gradient of a gather with equal indices",
        "scatter in place of scatter_add",
        "scatter_add scatter_add_ index_add_ index_add",
        when(
            lambda c: c.x.dim() > 0 and "src" in c, lambda c: torch.scatter(c["self"], c["dim"], c["index"], c["src"])
        ),
        lambda: _backward("torch.gather", ramp(3), 0, i64(1, 1)),
        lambda: _backward("torch.gather", ramp(3), 0, i64(1, 2)),
    ),
    (
        "cdist-gradient-at-zero",
        "1 where the points are one",
        "distance 0, p = 1",
        "sign of 0 taken for 1",
        "_cdist_backward",
        when(lambda c: c["p"] == 1, lambda c: c.right(x2=c["x2"] - 1e-6)),
        lambda: _backward("torch.cdist", f32([1, 2]), f32([1, 2]), 1.0),
        lambda: _backward("torch.cdist", f32([1, 2]), f32([3, 4]), 2.0),
    ),
)


BUGS = (*GRADIENTS,)

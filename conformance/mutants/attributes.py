"""Wrong arguments: attributes that are ignored, and formulas of gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchstone.compiler.ir import Value
from torchstone.compiler.transforms.expansions.common import const
from torchstone.compiler.transforms.expansions.core.reduction import finish, kept
from torchstone.compiler.transforms.promotion import opmath
from torchstone.compiler.transforms.rules import Expander
from torchstone.conformance.mutants.mutant import Rule, arguments, expansion, mutants, primitives


def _always(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


def _unaligned(right: Rule) -> Rule:
    return lambda b, x, size, align_corners, *scales: right(b, x, size, False, *scales)


IGNORED = mutants(
    "ignored attribute",
    ("add-ignores-alpha", "alpha is 1", "add sub", arguments("add.Tensor sub.Tensor", alpha=_always(1))),
    (
        "addmm-ignores-beta",
        "beta is 1",
        "addmm addmv baddbmm",
        arguments("addmm.default addmv.default baddbmm.default", beta=_always(1)),
    ),
    (
        "addmm-ignores-alpha",
        "alpha is 1",
        "addmm",
        arguments("addmm.default addmv.default baddbmm.default", alpha=_always(1)),
    ),
    (
        "var-ignores-correction",
        "correction is 1",
        "var std",
        arguments("var.correction std.correction", correction=_always(1)),
    ),
    (
        "avg-pool-counts-padding",
        "count_include_pad is True",
        "nn.functional.avg_pool2d",
        arguments("avg_pool2d.default", count_include_pad=_always(True)),
    ),
    (
        "avg-pool-ignores-divisor",
        "divisor_override is None",
        "nn.functional.avg_pool2d",
        arguments("avg_pool2d.default", divisor=_always(None)),
    ),
    (
        "avg-pool-floors",
        "windows of ceil_mode counted as if inside",
        "nn.functional.avg_pool2d nn.functional.avg_pool1d nn.functional.avg_pool3d",
        primitives(
            "avg_pool2d.default avg_pool3d.default",
            div=lambda b, x, count: b.div(x, b.broadcast(_largest(b, count), x.shape, ())),
        ),
    ),
    (
        "bilinear-ignores-corners",
        "align_corners is False",
        "nn.functional.interpolate.bilinear nn.functional.upsample_bilinear",
        expansion("upsample_bilinear2d.default", _unaligned),
    ),
    ("conv-ignores-bias", "no bias", "nn.functional.conv2d", arguments("convolution.default", bias=_always(None))),
    (
        "leaky-relu-ignores-slope",
        "the slope is 0.01",
        "nn.functional.leaky_relu",
        arguments("leaky_relu.default", slope=_always(0.01)),
    ),
    (
        "elu-ignores-alpha",
        "alpha is 1",
        "nn.functional.elu nn.functional.celu",
        arguments("elu.default celu.default", alpha=_always(1.0)),
    ),
    (
        "layer-norm-ignores-eps",
        "eps is 0",
        "nn.functional.layer_norm native_layer_norm",
        arguments("native_layer_norm.default", eps=_always(0.0)),
    ),
    ("nan-to-num-ignores-nan", "NaN is 0", "nan_to_num", arguments("nan_to_num.default", nan=_always(None))),
    (
        "round-ignores-decimals",
        "rounded to integers",
        "round.decimals_3 round.decimals_neg_3",
        arguments("round.decimals", decimals=_always(0)),
    ),
    (
        "pad-ignores-value",
        "padded with 0",
        "nn.functional.pad.constant constant_pad_nd",
        arguments("constant_pad_nd.default", value=_always(0)),
    ),
    (
        "scatter-reduce-ignores-self",
        "include_self is True",
        "scatter_reduce.sum scatter_reduce.prod",
        arguments("scatter_reduce.two", include_self=_always(True)),
    ),
    (
        "index-put-ignores-accumulate",
        "the last update stays",
        "index_put",
        arguments("index_put.default", accumulate=_always(False)),
    ),
    (
        "index-add-ignores-alpha",
        "alpha is 1",
        "index_add",
        arguments("index_add.default", alpha=_always(1)),
    ),
    ("logit-ignores-eps", "not clamped", "logit", arguments("logit.default", eps=_always(None))),
    (
        "threshold-ignores-value",
        "0 below the threshold",
        "nn.functional.threshold",
        arguments("threshold.default", value=_always(0)),
    ),
    (
        "softplus-ignores-beta",
        "beta is 1",
        "nn.functional.softplus",
        arguments("softplus.default", beta=_always(1)),
    ),
    (
        "norm-ignores-order",
        "every norm Euclidean",
        "linalg.vector_norm norm",
        arguments("linalg_vector_norm.default", order=_always(2)),
    ),
    (
        "dist-ignores-p",
        "the distance Euclidean",
        "dist",
        arguments("dist.default", p=_always(2)),
    ),
)


def _largest(b: Expander, count: Value) -> Value:
    return b.reduce(count, "max", tuple(range(count.rank)))


# Gradients


def _no_mean_of_gradients(right: Rule) -> Rule:
    def rule(b: Expander, grad: Value, output: Value, dim: int, dtype: Any) -> Value:
        g, y = (b.cast(v, opmath(v.dtype)) for v in (grad, output))
        return finish(b, b.mul(g, y))

    return rule


def _logarithm_for_the_power(right: Rule) -> Rule:
    def rule(b: Expander, grad: Value, output: Value, dim: int, dtype: Any) -> Value:
        if not grad.rank:
            return right(b, grad, output, dim, dtype)
        g, y = (b.cast(v, opmath(v.dtype)) for v in (grad, output))
        dims = (dim % g.rank,)
        return finish(b, b.sub(g, b.mul(y, kept(b, b.reduce(g, "sum", dims), g, dims))))

    return rule


def _overwriting(b: Expander, x: Value, updates: Value, *indices: Value, dims: Any, kind: str) -> Value:
    return b.emit("scatter", x, updates, *indices, dims=dims, kind="set")[0]


def _kernels_turned(right: Rule) -> Rule:
    """The gradient of the weights as if a convolution turned its kernels round."""

    def rule(b: Expander, *given: Any) -> tuple[Value | None, ...]:
        image, weight, bias = right(b, *given)
        if weight is not None and weight.rank > 2:
            weight = b.reverse(weight, dims=tuple(range(2, weight.rank)))
        return image, weight, bias

    return rule


def _next_place(right: Rule) -> Rule:
    def rule(b: Expander, x: Value, *given: Any) -> Any:
        value, place = right(b, x, *given)
        last = const(b, place, x.shape[-1] - 1) if isinstance(x.shape[-1], int) else place
        return value, b.min(b.add(place, const(b, place, 1)), b.max(place, last))

    return rule


def _rstd_without_eps(right: Rule) -> Rule:
    """The statistic kept for the gradient is that of another eps; the value is right."""

    def rule(b: Expander, x: Value, shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Value, ...]:
        out, mean, _ = right(b, x, shape, weight, bias, eps)
        return out, mean, right(b, x, shape, weight, bias, eps + 0.5)[2]

    return rule


def _aligned_otherwise(right: Rule) -> Rule:
    return lambda b, grad, size, shape, align_corners, *scales: right(b, grad, size, shape, not align_corners, *scales)


def _doubled(right: Rule) -> Rule:
    def rule(b: Expander, *given: Any) -> Any:
        out = right(b, *given)
        values = out if isinstance(out, tuple) else (out,)
        twice = tuple(b.add(v, v) if isinstance(v, Value) else v for v in values)
        return twice if isinstance(out, tuple) else twice[0]

    return rule


GRADIENTS = mutants(
    "gradient",
    (
        "softmax-gradient",
        "grad * y, without the mean",
        "softmax",
        expansion("_softmax_backward_data.default", _no_mean_of_gradients),
    ),
    (
        "log-softmax-gradient",
        "y for e**y",
        "log_softmax",
        expansion("_log_softmax_backward_data.default", _logarithm_for_the_power),
    ),
    (
        "max-pool-gradient",
        "gradients of overlapping windows overwrite each other",
        "nn.functional.max_pool2d",
        primitives("max_pool2d_with_indices_backward.default", scatter=_overwriting),
    ),
    (
        "max-pool-indices",
        "the place beside the maximum",
        "nn.functional.max_pool2d",
        expansion("max_pool2d_with_indices.default", _next_place),
    ),
    (
        "avg-pool-gradient",
        "divided by the windows with their padding, or without it",
        "nn.functional.avg_pool2d",
        arguments("avg_pool2d_backward.default", count_include_pad=lambda counted: not counted),
    ),
    (
        "conv-gradient",
        "the gradient of the weights turned round",
        "nn.functional.conv2d",
        expansion("convolution_backward.default", _kernels_turned),
    ),
    (
        "embedding-gradient",
        "padding_idx has a gradient",
        "nn.functional.embedding",
        arguments("embedding_dense_backward.default", padding_idx=_always(-1)),
    ),
    (
        "hardsigmoid-gradient",
        "a slope of 1",
        "nn.functional.hardsigmoid",
        primitives("hardsigmoid_backward.default", mul=lambda b, grad, sixth: grad),
    ),
    (
        "bilinear-gradient",
        "align_corners taken for its opposite",
        "nn.functional.interpolate.bilinear nn.functional.upsample_bilinear",
        expansion("upsample_bilinear2d_backward.default", _aligned_otherwise),
    ),
    (
        "layer-norm-gradient",
        "the statistic kept for it of another eps",
        "nn.functional.layer_norm",
        expansion("native_layer_norm.default", _rstd_without_eps),
    ),
    (
        "reflection-gradient",
        "counted twice",
        "nn.functional.pad.reflect",
        expansion("reflection_pad1d_backward.default reflection_pad2d_backward.default", _doubled),
    ),
    (
        "cdist-gradient",
        "counted twice",
        "cdist",
        expansion("_cdist_backward.default", _doubled),
    ),
)

MUTANTS = (*IGNORED, *GRADIENTS)

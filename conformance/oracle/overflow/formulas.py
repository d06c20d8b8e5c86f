"""Other formulas of ops than PyTorch's decompositions: they overflow elsewhere, and are as right.

``(x - mean) * rstd * weight + bias`` may overflow before the bias brings it back. The line ``x * a + b`` with
``a = rstd * weight`` and ``b = bias - mean * a`` may be infinity minus infinity. Eager takes one or the other, by the
layout of its operands, and on a GPU ``(x - mean) * weight * rstd + bias``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from torchstone.conformance.oracle.op_traits.order_of_terms import SEVERAL_FORMULAS
from torchstone.conformance.oracle.op_traits.trait import Implementations
from torchstone.conformance.oracle.perturbation.accumulation import arguments_of
from torchstone.conformance.oracle.reference.without_float64 import product_by_recipes, scaled_product

Formula: TypeAlias = Callable[..., Any]
"""From the op's decomposition and the arguments by name to what the op gives."""

FORMULAS: Implementations[tuple[Formula, ...]] = Implementations(SEVERAL_FORMULAS)


def other_formulas(func: Any, rule: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> list[Callable[[], Any]]:
    """What computes a call otherwise than ``rule``, its decomposition."""
    given = arguments_of(func, args, kwargs)
    steps = functools.partial(rule, *args, **kwargs)
    return [functools.partial(formula, steps, given) for formula in FORMULAS.of(func) or ()]


def _documented(x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    out = (x - mean) * rstd
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def _scaled_first(x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    out = (x - mean) * (rstd if weight is None else rstd * weight)
    return out if bias is None else out + bias


def _weighted_first(x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    out = (x - mean if weight is None else (x - mean) * weight) * rstd
    return out if bias is None else out + bias


def _line(x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    slope = rstd if weight is None else rstd * weight
    return x * slope + (-mean * slope if bias is None else bias - mean * slope)


def _batch_norm(form: Formula, steps: Callable[[], Any], given: dict[str, Any]) -> Any:
    x = given["input"]
    shape = [1, x.shape[1], *[1] * (x.dim() - 2)]
    out, mean, rstd, *rest = steps()
    used = (mean, rstd)
    if not mean.numel():  # not training
        used = (given["running_mean"], (given["running_var"] + given["eps"]).rsqrt())
    operands = [None if t is None else t.reshape(shape) for t in (*used, given.get("weight"), given.get("bias"))]
    return (form(x, *operands).reshape(out.shape), mean, rstd, *rest)


def _group_norm(form: Formula, steps: Callable[[], Any], given: dict[str, Any]) -> Any:
    x, groups = given["input"], given["group"]
    out, mean, rstd = steps()
    wide = [given["N"], groups, given["C"] // groups, given["HxW"]]
    weight, bias = (t if t is None else t.reshape(1, groups, -1, 1) for t in (given.get("weight"), given.get("bias")))
    whole = form(x.reshape(wide), mean.reshape(-1, groups, 1, 1), rstd.reshape(-1, groups, 1, 1), weight, bias)
    return whole.reshape(out.shape), mean, rstd


def _layer_norm(form: Formula, steps: Callable[[], Any], given: dict[str, Any]) -> Any:
    _, mean, rstd = steps()
    return form(given["input"], mean, rstd, given.get("weight"), given.get("bias")), mean, rstd


def _layer_norm_by_sums(steps: Callable[[], Any], given: dict[str, Any]) -> Any:
    """Mean and variance as quotients of sums, which overflow where running ones do not."""
    x, dims = given["input"], tuple(range(-len(given["normalized_shape"]), 0))
    count = math.prod(given["normalized_shape"])
    mean = x.sum(dims, keepdim=True) / count
    rstd = (((x - mean) ** 2).sum(dims, keepdim=True) / count + given["eps"]).rsqrt()
    return _documented(x, mean, rstd, given.get("weight"), given.get("bias")), mean, rstd


def _softmax_gradient(steps: Callable[[], Any], given: dict[str, Any]) -> Any:
    grad, output = given["grad_output"], given["output"]
    return (grad - torch.sum(grad * output, given["dim"], keepdim=True)) * output


def _product_scaled_first(batches: bool, steps: Callable[[], Any], given: dict[str, Any]) -> Any:
    """The sum of alpha times each product, where the decomposition has alpha times the sum of the products. ``batches``
    are added up as well."""
    base, left, right = list(given.values())[:3]
    product = (left * given.get("alpha", 1)) @ right
    product = product.sum(0) if batches else product
    beta = given.get("beta", 1)
    return product if beta == 0 else base * beta + product  # NaN and infinities of what beta=0 multiplies do not count


def _scaled_afterwards(formula: Formula, at_once: bool, steps: Callable[[], Any], given: dict[str, Any]) -> Any:
    """The scales times the product of the matrices, where the formula has them times the operands; ``at_once``: their
    own product first."""

    def multiply(x: Tensor, y: Tensor, scale_x: Tensor, scale_y: Tensor) -> Tensor:
        product = x @ y
        return product * (scale_x * scale_y) if at_once else product * scale_x * scale_y

    return formula(multiply, **given)


def _attention_scaled_afterwards(steps: Callable[[], Any], given: dict[str, Any]) -> Any:
    """Products of queries and keys, scaled, where the decomposition scales both by the root of that."""
    query, mask = given["query"], given.get("attn_mask")
    key, value = (t.repeat_interleave(query.shape[1] // t.shape[1], 1) for t in (given["key"], given["value"]))
    scale = given.get("scale")
    logits = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if given.get("is_causal"):
        mask = torch.ones(logits.shape[-2:], dtype=torch.bool).tril()
    if mask is not None:
        logits = logits.masked_fill(~mask, -math.inf) if mask.dtype is torch.bool else logits + mask
    return torch.ops.aten._safe_softmax(logits, -1) @ value, steps()[1]


_FORMS = (_documented, _scaled_first, _weighted_first, _line)
FORMULAS.register(
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training",
    "_batch_norm_with_update",
)(tuple(functools.partial(_batch_norm, form) for form in _FORMS))
FORMULAS.register("native_group_norm")(tuple(functools.partial(_group_norm, form) for form in _FORMS))
FORMULAS.register("native_layer_norm")(
    (*(functools.partial(_layer_norm, form) for form in _FORMS), _layer_norm_by_sums)
)
FORMULAS.register("_softmax_backward_data")((_softmax_gradient,))
FORMULAS.register("_scaled_dot_product_flash_attention_for_cpu")((_attention_scaled_afterwards,))
FORMULAS.register("addmm", "addmv", "baddbmm")((functools.partial(_product_scaled_first, False),))
FORMULAS.register("addbmm")((functools.partial(_product_scaled_first, True),))
for _name, _formula in (("_scaled_mm", scaled_product), ("_scaled_mm_v2", product_by_recipes)):
    FORMULAS.register(_name)(tuple(functools.partial(_scaled_afterwards, _formula, each) for each in (True, False)))

"""Scaled dot-product attention, in the formula of torch.nn.functional.scaled_dot_product_attention."""

from __future__ import annotations

import math

from torchstone.compiler.ir import Value
from torchstone.compiler.ir.dims import Dim, floordiv
from torchstone.compiler.transforms.expansions.common import const, expand_dims
from torchstone.compiler.transforms.expansions.core.creation import positions
from torchstone.compiler.transforms.promotion import opmath
from torchstone.compiler.transforms.rules import Expander, expands


@expands("aten._scaled_dot_product_flash_attention_for_cpu.default")
def flash_attention(
    b: Expander, query: Value, key: Value, value: Value, dropout: float = 0.0, is_causal: bool = False,
    attn_mask: Value | None = None, scale: float | None = None,
) -> tuple[Value, Value]:  # fmt: skip
    """softmax(scale * query @ key.T + mask) @ value, and the logsumexp of the logits."""
    if dropout:
        raise b.unsupported("dropout")
    wide = opmath(query.dtype)
    key, value = _for_heads(b, key, query), _for_heads(b, value, query)
    logits, _ = _logits(b, query, key, is_causal, attn_mask, scale)
    highest = b.reduce(logits, "max", (3,))
    # A row of nothing but -inf attends to nothing.
    empty = b.eq(highest, const(b, highest, -math.inf))
    highest = b.select(empty, const(b, highest, 0), highest)
    power = b.exp(b.sub(logits, expand_dims(b, highest, logits.shape, (3,))))
    weight = b.reduce(power, "sum", (3,))
    total = b.add(highest, b.log(weight))  # NaN where a logit is infinite, as every share of its row is
    weight = b.select(empty, const(b, weight, 1), weight)
    share = b.div(power, expand_dims(b, weight, logits.shape, (3,)))
    out = _contract(b, share, b.cast(value, wide), 3, 2)
    kept = b.op.results[1].tensor
    return b.cast(out, b.type.dtype), b.cast(b.reshape(total, kept.dims), kept.dtype)


@expands("aten._scaled_dot_product_flash_attention_for_cpu_backward.default")
def flash_attention_backward(
    b: Expander, grad: Value, query: Value, key: Value, value: Value, out: Value, total: Value, dropout: float,
    is_causal: bool, attn_mask: Value | None = None, scale: float | None = None,
) -> tuple[Value, Value, Value]:  # fmt: skip
    """With P the softmax: grad V = P.T @ grad; grad logits = P * (grad @ V.T - sum(grad * out))."""
    if dropout:
        raise b.unsupported("dropout")
    wide = opmath(query.dtype)
    heads = key.shape[1], value.shape[1]
    key, value = _for_heads(b, key, query), _for_heads(b, value, query)
    value = b.fit(value, (*value.shape[:2], key.shape[2], value.shape[3]))  # sizes may differ in name
    logits, factor = _logits(b, query, key, is_causal, attn_mask, scale)
    g, k, q, v, o = (b.cast(t, wide) for t in (grad, key, query, value, out))
    above = expand_dims(b, b.cast(total, wide), logits.shape, (3,))
    empty = b.eq(above, const(b, above, -math.inf))  # a row of nothing but -inf attends to nothing
    share = b.select(empty, const(b, logits, 0), b.exp(b.sub(logits, above)))
    if is_causal:  # what comes later counts for nothing, even in a row of NaN
        row, column = positions(b, logits.shape)
        share = b.select(b.le(column, row), share, const(b, share, 0))
    part = expand_dims(b, b.reduce(b.mul(g, o), "sum", (3,)), logits.shape, (3,))
    grad_logits = b.mul(share, b.sub(_contract(b, g, v, 3, 3), part))
    grad_logits = b.mul(grad_logits, const(b, grad_logits, factor))
    grad_query = _contract(b, grad_logits, k, 3, 2)
    grad_key = _of_heads(b, _contract(b, grad_logits, q, 2, 2), heads[0])
    grad_value = _of_heads(b, _contract(b, share, g, 2, 2), heads[1])
    return b.cast(grad_query, query.dtype), b.cast(grad_key, query.dtype), b.cast(grad_value, query.dtype)


def _for_heads(b: Expander, x: Value, query: Value) -> Value:
    """Repeat each head of a key or value for the group of heads of the query that share it."""
    batch, heads, length, width = x.tensor.dims
    many = query.tensor.dims[1]
    if heads == many:
        return x
    grouped = b.broadcast(x, (batch, heads, floordiv(many, heads), length, width), (0, 1, 3, 4))
    return b.reshape(grouped, (batch, many, length, width))


def _of_heads(b: Expander, grad: Value, heads: Dim | None) -> Value:
    """Sum the gradients of the heads that share one."""
    batch, many, length, width = grad.tensor.dims
    if heads is None or heads == many:
        return grad
    return b.reduce(b.reshape(grad, (batch, heads, floordiv(many, heads), length, width)), "sum", (2,))


def _logits(
    b: Expander, query: Value, key: Value, is_causal: bool, mask: Value | None, scale: float | None
) -> tuple[Value, float]:
    """Return scale * query @ key.T + mask, -inf where a query may not look, and the scale."""
    width = query.shape[-1]
    if scale is None and not isinstance(width, int):
        raise b.unsupported("a scale that depends on a run-time size")
    factor = scale if scale is not None else 1 / math.sqrt(width)  # type: ignore[arg-type]
    wide = opmath(query.dtype)
    logits = _contract(b, b.cast(query, wide), b.cast(key, wide), 3, 3)
    logits = b.mul(logits, const(b, logits, factor))
    if mask is not None:
        if mask.dtype.is_bool:
            logits = b.select(b.broadcast(mask, logits.shape), logits, const(b, logits, -math.inf))
        else:
            logits = b.add(logits, b.broadcast(b.cast(mask, wide), logits.shape))
    if is_causal:
        row, column = positions(b, logits.shape)
        logits = b.select(b.le(column, row), logits, const(b, logits, -math.inf))
    return logits, factor


def _contract(b: Expander, x: Value, y: Value, x_dim: int, y_dim: int) -> Value:
    """Sum over one dim of each, for every batch and head."""
    return b.contract(x, y, a_batch=(0, 1), b_batch=(0, 1), a_sum=(x_dim,), b_sum=(y_dim,))

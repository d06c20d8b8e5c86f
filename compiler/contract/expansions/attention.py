"""Scaled dot-product attention, in the formula of torch.nn.functional.scaled_dot_product_attention."""

from __future__ import annotations

import math

from torchstone.compiler.contract.expansions.common import const, expand_dims
from torchstone.compiler.contract.expansions.creation import positions
from torchstone.compiler.contract.expansions.reduction import log_sum_exp
from torchstone.compiler.contract.promotion import opmath
from torchstone.compiler.contract.rules import Expander, expands
from torchstone.compiler.ir import Value


@expands("aten._scaled_dot_product_flash_attention_for_cpu.default")
def flash_attention(
    b: Expander, query: Value, key: Value, value: Value, dropout: float = 0.0, is_causal: bool = False,
    attn_mask: Value | None = None, scale: float | None = None,
) -> tuple[Value, Value]:  # fmt: skip
    """softmax(scale * query @ key.T + mask) @ value, and the logsumexp of the logits."""
    if dropout:
        raise b.unsupported("dropout")
    width = query.shape[-1]
    if scale is None and not isinstance(width, int):
        raise b.unsupported("a scale that depends on a run-time size")
    factor = scale if scale is not None else 1 / math.sqrt(width)  # type: ignore[arg-type]
    wide = opmath(query.dtype)
    q, k, v = (b.cast(t, wide) for t in (query, key, value))
    batch = (0, 1)
    logits = b.contract(q, k, a_batch=batch, b_batch=batch, a_sum=(3,), b_sum=(3,))
    logits = b.mul(logits, const(b, logits, factor))
    if attn_mask is not None:
        if attn_mask.dtype.is_bool:
            mask = b.broadcast(attn_mask, logits.shape)
            logits = b.select(mask, logits, const(b, logits, -math.inf))
        else:
            logits = b.add(logits, b.broadcast(b.cast(attn_mask, wide), logits.shape))
    if is_causal:
        row, column = positions(b, logits.shape)
        logits = b.select(b.le(column, row), logits, const(b, logits, -math.inf))
    total = log_sum_exp(b, logits, (3,))
    peak = expand_dims(b, b.reduce(logits, "max", (3,)), logits.shape, (3,))
    # A row of nothing but -inf attends to nothing.
    empty = b.eq(peak, const(b, peak, -math.inf))
    power = b.exp(b.sub(logits, b.select(empty, const(b, peak, 0), peak)))
    weight = expand_dims(b, b.reduce(power, "sum", (3,)), logits.shape, (3,))
    share = b.div(power, b.select(empty, const(b, weight, 1), weight))
    out = b.contract(share, v, a_batch=batch, b_batch=batch, a_sum=(3,), b_sum=(2,))
    kept = b.op.results[1].tensor
    return b.cast(out, b.type.dtype), b.cast(b.reshape(total, kept.dims), kept.dtype)

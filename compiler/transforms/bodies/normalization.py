"""Normalizations with given statistics."""

from __future__ import annotations

from torchstone.compiler.ir import Value
from torchstone.compiler.transforms.expansions.common import const
from torchstone.compiler.transforms.rules import Expander, body


@body("flat.batch_norm")
def batch_norm(
    b: Expander, x: Value, weight: Value, bias: Value, mean: Value, variance: Value, *, eps: float, dim: int
) -> Value:
    rstd = b.rsqrt(b.add(variance, const(b, variance, eps)))
    along = [b.broadcast(v, x.shape, (dim,)) for v in (mean, rstd, weight, bias)]
    return b.add(b.mul(b.mul(b.sub(x, along[0]), along[1]), along[2]), along[3])

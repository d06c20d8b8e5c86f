"""Normalizations, by given statistics and by those of the elements, and softmax."""

from __future__ import annotations

from torchstone.compiler.ir import Value
from torchstone.compiler.transforms.expansions.common import const
from torchstone.compiler.transforms.expansions.core.reduction import kept, variance
from torchstone.compiler.transforms.rules import Expander, body


@body("flat.batch_norm")
def batch_norm(
    b: Expander, x: Value, weight: Value, bias: Value, mean: Value, variance: Value, *, eps: float, dim: int
) -> Value:
    rstd = b.rsqrt(b.add(variance, const(b, variance, eps)))
    along = [b.broadcast(v, x.shape, (dim,)) for v in (mean, rstd, weight, bias)]
    return b.add(b.mul(b.mul(b.sub(x, along[0]), along[1]), along[2]), along[3])


@body("flat.softmax")
def softmax(b: Expander, x: Value, *, dim: int) -> Value:
    """e**(x - max) * (1 / sum): the sum is at least 1, and one division a row is a tenth of one an element."""
    power = b.exp(b.sub(x, kept(b, b.reduce(x, "max", (dim,)), x, (dim,))))
    total = b.reduce(power, "sum", (dim,))
    return b.mul(power, kept(b, b.div(const(b, total, 1), total), x, (dim,)))


@body("flat.normalize")
def normalize(b: Expander, x: Value, *affine: Value, dims: tuple[int, ...], eps: float) -> Value:
    spread, average = variance(b, x, dims, 0)
    rstd = b.rsqrt(b.add(spread, const(b, spread, eps)))
    out = b.mul(b.sub(x, kept(b, average, x, dims)), kept(b, rstd, x, dims))
    for other, op in zip(affine, (b.mul, b.add), strict=False):
        out = op(out, b.broadcast(other, x.shape, dims))
    return out

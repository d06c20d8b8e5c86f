"""Float sums in TOSA that are rounded nearly once, whatever the order in which ``reduce_sum`` adds.

Upstream lowers ``reduce_sum`` to a loop that rounds after every element, where eager adds in blocks or in float64: a
mean would be a few ULP worse, and a difference from the mean many. So each element is cut in two by adding and
subtracting a number s of at least twice the sum of magnitudes: the high parts are multiples of one unit and add up
exactly, the low parts are so small that their roundings do not matter (Rump, Ogita, Oishi, "Accurate floating-point
summation", 2008).
"""

from __future__ import annotations

from math import prod

from torchstone.compiler.lowering.tosa.emitter import Handle, TosaEmitter

# Elements added at once: beyond that the roundings of the low parts would show. The runs' sums are summed in turn.
RUN = 64


def accurate_sum(e: TosaEmitter, x: Handle, dims: tuple[int, ...]) -> Handle:
    """Return the float32 sum over ``dims``, of the shape of the other dims."""
    shape = e.shape(x)
    kept = [d for d in range(len(shape)) if d not in dims]
    outer, size = prod(shape[d] for d in kept), prod(shape[d] for d in dims)
    x = e.reshape(e.transpose(x, [*kept, *dims]), [outer, size])
    while size > 1:
        run = min(RUN, size)
        count = -(-size // run)
        rows = e.reshape(fill(e, x, 1, count * run), [outer * count, run])
        x, size = e.reshape(_row_sums(e, rows), [outer, count]), count
    return e.reshape(x, [shape[d] for d in kept])


def _row_sums(e: TosaEmitter, x: Handle) -> Handle:
    """Return the sums of the rows of x, [rows, size] -> [rows, 1]."""
    rows, size = e.shape(x)
    kind = e.type([rows, 1], x.type.element_type)
    plain = e.tosa.reduce_sum(x, 1, results=[kind])
    if size <= 2:
        return plain
    largest = e.tosa.reduce_max(e.map("abs", x), 1, results=[kind])
    s = e.multiply(largest, e.like(x, 2.0 * size))
    high = e.map("sub", e.map("add", x, s), s)
    parts = (e.tosa.reduce_sum(p, 1, results=[kind]) for p in (high, e.map("sub", x, high)))
    # Infinities, NaN and what is near overflowing take the plain sum.
    return e.select(e.compare("greater", e.like(x, 1e38), s), e.map("add", *parts), plain)


def fill(e: TosaEmitter, x: Handle, dim: int, size: int) -> Handle:
    """Pad one dim with zeros at its end, up to ``size``."""
    shape = e.shape(x)
    if shape[dim] == size:
        return x
    amounts = [0] * (2 * len(shape))
    amounts[2 * dim + 1] = size - shape[dim]
    shape[dim] = size
    zero = e.constant(0.0, [1], x.type.element_type)
    return e.tosa.pad(e.type(shape, x.type.element_type), x, e.sizes(amounts), zero)

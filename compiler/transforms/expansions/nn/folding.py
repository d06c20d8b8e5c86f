"""The windows of an image as columns, and columns summed to an image: torch.nn.functional.unfold and fold."""

from __future__ import annotations

from collections.abc import Sequence

from torchstone.compiler.ir import Value, product
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Dim, floordiv
from torchstone.compiler.transforms.expansions.common import convert_number
from torchstone.compiler.transforms.expansions.nn.windows import Window, overlapped, padded, slide
from torchstone.compiler.transforms.promotion import opmath
from torchstone.compiler.transforms.rules import Expander, expands


@expands("aten.im2col.default")
def im2col(
    b: Expander, x: Value, kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> Value:
    """[…, c, *space] -> […, c * kernel elements, windows]."""
    shape = b.type.dims
    if 0 in shape:
        return b.full(convert_number(0, x.dtype), shape, x.dtype)
    window = Window.over(2, kernel, stride, padding, dilation)
    windows = slide(b, padded(b, x, window), x.rank - 2, window)
    order = (*range(x.rank - 2), x.rank, x.rank + 1, x.rank - 2, x.rank - 1)
    return b.reshape(b.transpose(windows, order), shape)


@expands("aten.col2im.default")
def col2im(
    b: Expander, x: Value, size: Sequence[Dim], kernel: Sequence[int], dilation: Sequence[int], padding: Sequence[int],
    stride: Sequence[int],
) -> Value:  # fmt: skip
    """[…, c * kernel elements, windows] -> […, c, *size]."""
    shape = b.type.dims
    if 0 in shape or 0 in x.shape:
        return b.full(convert_number(0, x.dtype), shape, x.dtype)
    window = Window.over(2, kernel, stride, padding, dilation)
    rows = zip(size, window.kernel, window.stride, window.padding, window.dilation, strict=True)
    counts = [floordiv(whole + 2 * p - d * (k - 1) - 1, s) + 1 for whole, k, s, p, d in rows]
    # Of booleans the sum says whether any is true.
    terms = b.cast(x, dt.int32 if x.dtype.is_bool else opmath(x.dtype))
    image = overlapped(b, terms, product(shape[:-2]), counts, size, window)
    return b.cast(b.reshape(image, shape), x.dtype)

"""Bugs with NaN beside numbers, and with rows of one value."""

from __future__ import annotations

from typing import Any

import torch

from torchstone.conformance.planted.bug import ask, bugs
from torchstone.conformance.planted.changes import (
    INF,
    NAN,
    along,
    elements,
    f32,
    floats,
    put,
    ramp,
    when,
)
from torchstone.conformance.planted.op_call import OpCall


def _without_nan(call: OpCall, value: float) -> torch.Tensor:
    return torch.nan_to_num(call.x, nan=value, posinf=INF, neginf=-INF)


def _nan_in_row(last: int) -> torch.Tensor:
    row = ramp(2, last)
    row[0, 2] = NAN
    return row


def _sorted_nan_last(call: OpCall) -> Any:
    values, order = call.right()
    if not call["descending"]:
        return values, order
    dim = along(call)
    place = torch.isnan(values).to(torch.int8).sort(dim=dim, stable=True).indices
    return values.gather(dim, place), order.gather(dim, place)


def _cummax_past_nan(call: OpCall) -> Any:
    _, indices = call.right()
    low = torch.nan_to_num(call.x, nan=-INF, posinf=INF, neginf=-INF).cummax(along(call)).values
    return put(low, torch.isnan(call.x), NAN), indices


NAN_AGAINST_NUMBERS = bugs(
    "NaN against numbers",
    (
        "amax-loses-nan",
        "a NaN in the vector body is less than all",
        "8 or more elements a row",
        "vector maximum that returns its second operand for NaN",
        "amax",
        when(
            lambda c: floats(c) and c["dim"] and c.x.shape[c["dim"][0]] >= 8,
            lambda c: c.right(self=_without_nan(c, -INF)),
        ),
        lambda: ask("torch.amax", _nan_in_row(9), 1),
        lambda: ask("torch.amax", _nan_in_row(5), 1),
    ),
    (
        "argmax-prefers-numbers",
        "NaN is the smallest of all",
        "always",
        "Inductor argmax of NaN: pytorch/pytorch#118266",
        "argmax",
        when(floats, lambda c: c.right(self=_without_nan(c, -INF))),
        lambda: ask("torch.argmax", f32(NAN, 4.6)),
        lambda: ask("torch.argmax", f32(1, 4.6)),
    ),
    (
        "clamp-ignores-nan-bound",
        "a bound that is NaN does not bound",
        "bounds that are tensors",
        "clamp by std::min and std::max in the wrong order",
        "clamp",
        when(lambda c: isinstance(c["min"], torch.Tensor), lambda c: put(c.right(), torch.isnan(c["min"]), c["self"])),
        lambda: ask("torch.clamp", f32(1, 2), f32(NAN, 0)),
        lambda: ask("torch.clamp", f32(1, 2), f32(0, 3)),
    ),
    (
        "descending-sort-nan-last",
        "NaN comes last, where it is the greatest",
        "descending",
        "sort keys whose NaN is moved to the end whatever the order",
        "sort",
        _sorted_nan_last,
        lambda: ask("torch.sort", f32(1, NAN, 3), descending=True),
        lambda: ask("torch.sort", f32(1, NAN, 3)),
    ),
    (
        "relu-of-nan-in-vectors",
        "max(NaN, 0) is 0",
        "16 or more elements",
        "relu by a vector maximum",
        "relu",
        elements(lambda c: torch.isnan(c.x), lambda c: 0.0, lambda c: floats(c) and c.x.numel() >= 16),
        lambda: ask("torch.relu", f32(NAN, *range(20))),
        lambda: ask("torch.relu", f32(NAN, 1)),
    ),
    (
        "cummax-past-nan",
        "numbers after a NaN win against it",
        "always",
        "scan with a maximum that drops NaN",
        "cummax",
        when(floats, _cummax_past_nan),
        lambda: ask("torch.cummax", f32(1, NAN, 3), 0),
        lambda: ask("torch.cummax", f32(1, 2, 3), 0),
    ),
    (
        "topk-nan-smallest",
        "NaN is taken last",
        "largest",
        "heap whose comparison is false for NaN",
        "topk",
        when(
            lambda c: floats(c) and c["largest"] and bool((~torch.isnan(c.x)).sum() >= c["k"]) and c.x.dim() == 1,
            lambda c: c.right(self=_without_nan(c, -INF)),
        ),
        lambda: ask("torch.topk", f32(1, NAN, 3, 2), 2),
        lambda: ask("torch.topk", f32(1, 4, 3, 2), 2),
    ),
    (
        "signbit-by-comparison",
        "x < 0: false for -0 and for a negative NaN",
        "always",
        "signbit that loses the sign of zero: pytorch/pytorch#187935",
        "signbit",
        when(floats, lambda c: c.x < 0),
        lambda: ask("torch.signbit", f32(-0.0, 1)),
        lambda: ask("torch.signbit", f32(-2, 1)),
    ),
    (
        "copysign-by-sign",
        "|x| times the sign of the other, and 1 for a zero",
        "always",
        "copysign of a negative zero: pytorch/pytorch#174172",
        "copysign",
        when(
            lambda c: floats(c),
            lambda c: (
                c.x.abs() * torch.where(c.arguments["other"] < 0, -1.0, 1.0).to(c.x.dtype)
                if isinstance(c["other"], torch.Tensor)
                else c.right()
            ),
        ),
        lambda: ask("torch.copysign", f32(1, 2), f32(-0.0, 1)),
        lambda: ask("torch.copysign", f32(1, 2), f32(-3, 1)),
    ),
    (
        "median-skips-nan",
        "the median of what is not NaN",
        "more than 8 elements",
        "median by a sort with NaN last",
        "median",
        when(lambda c: floats(c) and c.x.numel() > 8 and "dim" not in c, lambda c: torch.nanmedian(c.x)),
        lambda: ask("torch.median", f32(NAN, *range(10))),
        lambda: ask("torch.median", f32(*range(10))),
    ),
    (
        "count-nonzero-skips-nan",
        "NaN is counted as zero",
        "always",
        "x > 0 or x < 0 in place of x != 0",
        "count_nonzero",
        when(floats, lambda c: c.right(self=torch.nan_to_num(c.x, nan=0.0))),
        lambda: ask("torch.count_nonzero", f32(NAN, 1)),
        lambda: ask("torch.count_nonzero", f32(2, 1, 0)),
    ),
    (
        "angle-of-nan",
        "the angle of NaN is 0",
        "real numbers",
        "angle by a comparison: pytorch/pytorch#143978",
        "angle",
        elements(lambda c: torch.isnan(c.x), lambda c: 0.0),
        lambda: ask("torch.angle", f32(NAN, -1)),
        lambda: ask("torch.angle", f32(2, -1)),
    ),
)


def _last_of_equals(call: OpCall) -> Any:
    dim = call["dim"]
    x = call.x.flatten() if dim is None else call.x
    at = 0 if dim is None else along(call)
    flipped = x.shape[at] - 1 - torch.argmax(x.flip(at), dim=at)
    return flipped.unsqueeze(at) if call["keepdim"] and dim is not None else flipped


def _lowest_row(call: OpCall) -> Any:
    values, indices = call.right()
    return values, put(indices, values == -INF, call.x.shape[along(call)] - 1)


ROWS_OF_ONE_VALUE = bugs(
    "rows of one value",
    (
        "softmax-of-masked-row",
        "a row of -inf gives 0, where PyTorch gives NaN",
        "a row that is wholly -inf",
        "fused attention softmax put in place of softmax",
        "_softmax",
        when(floats, lambda c: put(c.right(), (c.x == -INF).all(along(c), keepdim=True), 0.0)),
        lambda: ask("torch.softmax", f32([-INF, -INF], [0, 1]), 1),
        lambda: ask("torch.softmax", f32([-INF, 0], [0, 1]), 1),
    ),
    (
        "logsumexp-of-nothing",
        "NaN for a row of -inf",
        "a row that is wholly -inf",
        "x - max(x) without a guard",
        "logsumexp",
        when(
            lambda c: floats(c) and len(c["dim"]) == 1,
            lambda c: put(c.right(), (c.x == -INF).all(c["dim"][0], keepdim=c["keepdim"]), NAN),
        ),
        lambda: ask("torch.logsumexp", f32([-INF, -INF], [0, 1]), 1),
        lambda: ask("torch.logsumexp", f32([-INF, 0], [0, 1]), 1),
    ),
    (
        "argmax-last-of-equals",
        "the last of equal numbers, where the first is documented",
        "4 or more in the row",
        "tree reduction whose second half wins",
        "argmax",
        when(lambda c: not c.x.isnan().any() and c.x.numel() >= 4 and c.x.dim() > 0, _last_of_equals),
        lambda: ask("torch.argmax", f32(1, 2, 2, 2, 0)),
        lambda: ask("torch.argmax", f32(1, 2, 3, 0)),
    ),
    (
        "max-index-of-lowest-row",
        "the last index for a row of -inf, as if no element had been seen",
        "a row wholly -inf",
        "reduction that starts from -inf and a strict comparison",
        "max",
        when(lambda c: floats(c) and "dim" in c, _lowest_row),
        lambda: ask("torch.max", f32([-INF, -INF], [0, 1]), 1),
        lambda: ask("torch.max", f32([-INF, 0], [0, 1]), 1),
    ),
    (
        "max-pool-starts-at-lowest",
        "the smallest finite number in place of -inf",
        "a window that is wholly -inf",
        "maximum that starts from the smallest finite number",
        "max_pool2d_with_indices",
        when(floats, lambda c: (put(c.right()[0], c.right()[0] == -INF, torch.finfo(c.x.dtype).min), c.right()[1])),
        lambda: ask("torch.nn.functional.max_pool2d", torch.full((1, 1, 2, 2), -INF), 2),
        lambda: ask("torch.nn.functional.max_pool2d", ramp(1, 1, 2, 2), 2),
    ),
    (
        "normalize-constant-row",
        "0 over 0 for a row of equal numbers",
        "layer_norm over a row of equal numbers",
        "eps left out where the variance is 0",
        "native_layer_norm",
        when(
            floats,
            lambda c: tuple(
                put(o, (c.x == c.x[..., :1]).all(-1, keepdim=True), NAN) if i == 0 else o
                for i, o in enumerate(c.right())
            ),
        ),
        lambda: ask("torch.nn.functional.layer_norm", f32([3, 3, 3], [1, 2, 3]), [3]),
        lambda: ask("torch.nn.functional.layer_norm", f32([1, 3, 3], [1, 2, 3]), [3]),
    ),
    (
        "std-of-equal-numbers",
        "NaN: the root of a negative rounding error",
        "equal numbers that are not 0",
        "variance as the mean of squares less the square of the mean",
        "std",
        when(
            lambda c: floats(c) and c["dim"] is None,
            lambda c: put(c.right(), (c.right() == 0) & (c.x.flatten()[0] != 0), NAN),
        ),
        lambda: ask("torch.std", f32(3, 3, 3)),
        lambda: ask("torch.std", f32(1, 3, 3)),
    ),
)


BUGS = (
    *NAN_AGAINST_NUMBERS,
    *ROWS_OF_ONE_VALUE,
)

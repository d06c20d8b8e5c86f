"""Bugs with NaN, infinities, zeros of both signs, subnormals, equal numbers, and the values at which a function bends."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchstone.conformance.planted.bug import ask, bugs
from torchstone.conformance.planted.changes import (
    INF,
    NAN,
    along,
    argument,
    c64,
    complexes,
    elements,
    f32,
    floats,
    put,
    ramp,
    same_twice,
    single,
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


def _last_of_equals(call: OpCall) -> Any:
    dim = call["dim"]
    x = call.x.flatten() if dim is None else call.x
    at = 0 if dim is None else along(call)
    flipped = x.shape[at] - 1 - torch.argmax(x.flip(at), dim=at)
    return flipped.unsqueeze(at) if call["keepdim"] and dim is not None else flipped


def _lowest_row(call: OpCall) -> Any:
    values, indices = call.right()
    return values, put(indices, values == -INF, call.x.shape[along(call)] - 1)


def _cummax_past_nan(call: OpCall) -> Any:
    values, indices = call.right()
    low = torch.nan_to_num(call.x, nan=-INF, posinf=INF, neginf=-INF).cummax(along(call)).values
    return put(low, torch.isnan(call.x), NAN), indices


NAN_AND_NUMBERS = bugs(
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

ZEROS_AND_INFINITIES = bugs(
    "zeros and infinities",
    (
        "mul-by-zero-folded",
        "0, whatever the other factor",
        "a Python 0",
        "constant folding of a product with 0",
        "mul",
        when(
            lambda c: not isinstance(c["other"], torch.Tensor) and c["other"] == 0 and floats(c),
            lambda c: torch.zeros_like(c.right()),
        ),
        lambda: ask("torch.mul", f32(INF, 1), 0),
        lambda: ask("torch.mul", f32(INF, 1), 2),
    ),
    (
        "add-zero-folded",
        "x as it is: -0 + 0 is 0",
        "a Python 0",
        "x + 0 taken for x: pytorch/pytorch#189799",
        "add",
        when(
            lambda c: not isinstance(c["other"], torch.Tensor) and c["other"] == 0 and floats(c), lambda c: c.x.clone()
        ),
        lambda: ask("torch.add", f32(-0.0, 1), 0),
        lambda: ask("torch.add", f32(-0.0, 1), 1),
    ),
    (
        "ceil-loses-zero-sign",
        "0 for numbers in (-1, 0]",
        "always",
        "conversion to integer and back",
        "ceil",
        when(floats, lambda c: c.right() + 0.0),
        lambda: ask("torch.ceil", f32(-0.5)),
        lambda: ask("torch.ceil", f32(1.5)),
    ),
    (
        "trunc-through-int32",
        "numbers beyond 2**31 saturate",
        "float32 and float64",
        "truncation by an integer conversion",
        "trunc",
        elements(lambda c: c.x.abs() > 2**31, lambda c: torch.sign(c.x) * 2**31),
        lambda: ask("torch.trunc", f32(1e10, 1.5)),
        lambda: ask("torch.trunc", f32(1e5, 1.5)),
    ),
    (
        "hypot-of-infinity-and-nan",
        "NaN, where infinity wins",
        "inf with NaN",
        "root of the sum of squares",
        "hypot",
        when(floats, lambda c: put(c.right(), torch.isnan(c["self"]) | torch.isnan(c["other"]), NAN)),
        lambda: ask("torch.hypot", f32(INF), f32(NAN)),
        lambda: ask("torch.hypot", f32(3), f32(4)),
    ),
    (
        "xlogy-of-two-zeros",
        "NaN: 0 times -inf",
        "both 0",
        "xlogy without its select: pytorch/pytorch#114031",
        "xlogy",
        when(
            floats,
            lambda c: put(c.right(), (torch.as_tensor(c["self"]) == 0) & (torch.as_tensor(c["other"]) == 0), NAN),
        ),
        lambda: ask("torch.xlogy", f32(0, 1), f32(0, 2)),
        lambda: ask("torch.xlogy", f32(0, 1), f32(3, 2)),
    ),
    (
        "atan2-of-infinities",
        "NaN: atan of inf over inf",
        "both infinite",
        "atan of the quotient",
        "atan2",
        when(floats, lambda c: put(c.right(), torch.isinf(c["self"]) & torch.isinf(c["other"]), NAN)),
        lambda: ask("torch.atan2", f32(INF), f32(-INF)),
        lambda: ask("torch.atan2", f32(INF), f32(1)),
    ),
    (
        "atan2-of-negative-zero",
        "0 in place of pi",
        "y is 0, x is -0",
        "comparison x < 0 in place of the sign",
        "atan2",
        when(floats, lambda c: put(c.right(), (c["self"] == 0) & (c["other"] == 0), 0.0)),
        lambda: ask("torch.atan2", f32(0), f32(-0.0)),
        lambda: ask("torch.atan2", f32(0), f32(-1)),
    ),
    (
        "fmod-by-infinity",
        "NaN: x - trunc(x / inf) * inf",
        "an infinite divisor",
        "fmod by its definition",
        "fmod",
        when(floats, lambda c: put(c.right(), torch.isinf(torch.as_tensor(c["other"])), NAN)),
        lambda: ask("torch.fmod", f32(3), f32(INF)),
        lambda: ask("torch.fmod", f32(3), f32(2)),
    ),
    (
        "nan-to-num-keeps-finite",
        "an infinity asked for becomes the greatest number",
        "posinf or neginf is infinite",
        "replacement clamped to the range: pytorch/xla#8674",
        "nan_to_num",
        argument(lambda c: c["posinf"] is not None and math.isinf(c["posinf"]), posinf=None),
        lambda: ask("torch.nan_to_num", f32(INF), 0.0, INF),
        lambda: ask("torch.nan_to_num", f32(INF), 0.0, 1.0),
    ),
    (
        "logaddexp-of-infinities",
        "NaN: inf - inf",
        "both operands the same infinity",
        "the difference without a guard",
        "logaddexp",
        when(floats, lambda c: put(c.right(), torch.isinf(c["self"]) & (c["self"] == c["other"]), NAN)),
        lambda: ask("torch.logaddexp", f32(-INF), f32(-INF)),
        lambda: ask("torch.logaddexp", f32(-INF), f32(1)),
    ),
    (
        "reciprocal-of-negative-zero",
        "inf",
        "-0",
        "reciprocal by a select on x == 0",
        "reciprocal",
        elements(lambda c: c.x == 0, lambda c: INF),
        lambda: ask("torch.reciprocal", f32(-0.0)),
        lambda: ask("torch.reciprocal", f32(-2)),
    ),
    (
        "prod-stops-at-zero",
        "0 as soon as a factor is 0, though another is inf",
        "inf and 0 in a product",
        "early exit",
        "prod",
        when(lambda c: floats(c) and "dim" not in c, lambda c: put(c.right(), (c.x == 0).any(), 0.0)),
        lambda: ask("torch.prod", f32(0, INF)),
        lambda: ask("torch.prod", f32(0, 2)),
    ),
    (
        "sum-of-opposite-infinities",
        "0 in place of NaN",
        "inf and -inf in one sum",
        "pairwise cancellation",
        "sum",
        when(
            lambda c: floats(c) and not c.arguments.get("dim"),
            lambda c: put(c.right(), (c.x == INF).any() & (c.x == -INF).any() & ~c.x.isnan().any(), 0.0),
        ),
        lambda: ask("torch.sum", f32(INF, -INF, 1)),
        lambda: ask("torch.sum", f32(INF, 1)),
    ),
    (
        "log-softmax-of-infinity",
        "0 in place of NaN for +inf",
        "a row with +inf",
        "max subtracted where it is equal",
        "_log_softmax",
        when(floats, lambda c: put(c.right(), c.x == INF, 0.0)),
        lambda: ask("torch.log_softmax", f32(INF, 1), 0),
        lambda: ask("torch.log_softmax", f32(2, 1), 0),
    ),
)

ONE_TENSOR_TWICE = bugs(
    "one tensor given twice",
    (
        "sub-of-itself-folded",
        "0",
        "x - x, where x has inf or NaN",
        "algebraic simplification",
        "sub",
        when(lambda c: floats(c) and same_twice(c) and c["alpha"] == 1, lambda c: torch.zeros_like(c.x)),
        lambda: _twice("torch.sub", f32(INF, 1)),
        lambda: _twice("torch.sub", f32(2, 1)),
    ),
    (
        "div-of-itself-folded",
        "1",
        "x / x, where x has 0, inf or NaN",
        "algebraic simplification",
        "div",
        when(
            lambda c: floats(c) and same_twice(c) and not c.arguments.get("rounding_mode"),
            lambda c: torch.ones_like(c.x),
        ),
        lambda: _twice("torch.div", f32(0, 1)),
        lambda: _twice("torch.div", f32(2, 1)),
    ),
    (
        "comparison-with-itself-folded",
        "true",
        "x == x, x <= x and x >= x of NaN",
        "algebraic simplification",
        "eq le ge",
        when(lambda c: floats(c) and same_twice(c), lambda c: torch.ones_like(c.x, dtype=torch.bool)),
        lambda: _twice("torch.eq", f32(NAN, 1)),
        lambda: _twice("torch.eq", f32(2, 1)),
    ),
    (
        "complex-square-is-modulus",
        "|x|**2",
        "x * x of complex numbers",
        "square taken for x times its conjugate",
        "mul",
        when(lambda c: complexes(c) and same_twice(c), lambda c: c.x * torch.conj_physical(c.x)),
        lambda: _twice("torch.mul", c64(1 + 2j)),
        lambda: ask("torch.mul", c64(1 + 2j), c64(1 + 2j)),
    ),
    (
        "product-with-itself-is-gram",
        "x @ x.T",
        "a square matrix times itself",
        "symmetric rank-k update chosen by equal operands",
        "mm",
        when(lambda c: same_twice(c), lambda c: c.x @ c.x.T),
        lambda: _twice("torch.mm", f32([1, 2], [3, 4])),
        lambda: ask("torch.mm", f32([1, 2], [3, 4]), f32([1, 2], [3, 4])),
    ),
    (
        "remainder-of-itself-folded",
        "0",
        "x % x of 0, inf or NaN",
        "algebraic simplification",
        "remainder fmod",
        when(lambda c: floats(c) and same_twice(c), lambda c: torch.zeros_like(c.x)),
        lambda: _twice("torch.remainder", f32(0, 1)),
        lambda: _twice("torch.remainder", f32(2, 1)),
    ),
)


def _twice(target: str, x: torch.Tensor) -> Any:
    return ask(target, x, x)


def _flush(out: torch.Tensor) -> torch.Tensor:
    return put(out, (out.abs() < torch.finfo(torch.float32).tiny), torch.zeros_like(out).copysign(out))


SUBNORMALS = bugs(
    "subnormal numbers",
    (
        "moves-flush-subnormals",
        "subnormal numbers become 0",
        "float32",
        "flush-to-zero mode left on for moves",
        "neg abs where maximum minimum",
        when(single, lambda c: _flush(c.right())),
        lambda: ask("torch.neg", f32(1e-40)),
        lambda: ask("torch.neg", f32(1e-30)),
    ),
    (
        "nextafter-flushes",
        "0 next to 0",
        "float32, from 0",
        "flush-to-zero mode",
        "nextafter",
        when(single, lambda c: _flush(c.right())),
        lambda: ask("torch.nextafter", f32(0), f32(1)),
        lambda: ask("torch.nextafter", f32(1), f32(2)),
    ),
    (
        "comparison-flushes",
        "1e-40 > 0 is false",
        "float32",
        "denormals-are-zero mode",
        "gt lt ne",
        when(single, lambda c: c.right(self=_flush(c.x))),
        lambda: ask("torch.gt", f32(1e-40), f32(0)),
        lambda: ask("torch.gt", f32(1e-30), f32(0)),
    ),
    (
        "frexp-of-subnormals",
        "exponent 0 and the number itself",
        "subnormal numbers",
        "exponent read from the bits alone",
        "frexp",
        when(
            single,
            lambda c: tuple(
                put(o, (c.x.abs() < 1.1754944e-38), (c.x, torch.zeros_like(o))[i]) for i, o in enumerate(c.right())
            ),
        ),
        lambda: ask("torch.frexp", f32(1e-40)),
        lambda: ask("torch.frexp", f32(3)),
    ),
    (
        "clone-flushes-subnormals",
        "subnormal numbers become 0 in a copy",
        "float32, 16 or more elements",
        "copy through vector registers in flush-to-zero mode",
        "clone cat",
        when(lambda c: _first_is_single(c), lambda c: _flush(c.right())),
        lambda: ask("torch.clone", torch.full((16,), 1e-40)),
        lambda: ask("torch.clone", torch.full((3,), 1e-40)),
    ),
)


def _first_is_single(call: OpCall) -> bool:
    out = call.right()
    return out.dtype is torch.float32 and out.numel() >= 16


BRANCH_CUTS = bugs(
    "branch cuts",
    (
        "complex-sqrt-cut",
        "the root above the cut for numbers on its lower side",
        "negative real part, imaginary part -0",
        "comparison of the imaginary part with 0",
        "sqrt",
        elements(
            lambda c: (c.x.imag == 0) & (c.x.real < 0),
            lambda c: torch.complex(c.right().real, c.right().imag.abs()),
            complexes,
        ),
        lambda: ask("torch.sqrt", torch.complex(f32(-4), f32(-0.0))),
        lambda: ask("torch.sqrt", c64(4 + 1j)),
    ),
    (
        "complex-log-cut",
        "pi in place of -pi below the cut",
        "negative real part, imaginary part -0",
        "angle from a comparison",
        "log",
        elements(
            lambda c: (c.x.imag == 0) & (c.x.real < 0),
            lambda c: torch.complex(c.right().real, c.right().imag.abs()),
            complexes,
        ),
        lambda: ask("torch.log", torch.complex(f32(-4), f32(-0.0))),
        lambda: ask("torch.log", c64(-4 + 1j)),
    ),
    (
        "complex-acos-beyond-one",
        "the conjugate on the real axis beyond 1",
        "real numbers greater than 1 as complex ones",
        "acos from the logarithm of a principal root",
        "acos",
        elements(
            lambda c: (c.x.imag == 0) & (c.x.real.abs() > 1), lambda c: c.right().conj().resolve_conj(), complexes
        ),
        lambda: ask("torch.acos", torch.complex(f32(2), f32(0.0))),
        lambda: ask("torch.acos", c64(0.5 + 0.5j)),
    ),
    (
        "complex-pow-of-zero",
        "NaN",
        "a base of 0",
        "exp of the exponent times the logarithm",
        "pow",
        elements(lambda c: torch.as_tensor(c["self"]) == 0, lambda c: complex(NAN, NAN), complexes),
        lambda: ask("torch.pow", c64(0), c64(2)),
        lambda: ask("torch.pow", c64(1 + 1j), c64(2)),
    ),
    (
        "complex-sgn-of-zero",
        "NaN: 0 over 0",
        "0, and the gradient of abs there",
        "z / |z|",
        "sgn",
        elements(lambda c: c.x == 0, lambda c: complex(NAN, NAN), complexes),
        lambda: ask("torch.sgn", c64(0)),
        lambda: ask("torch.sgn", c64(1j)),
    ),
    (
        "complex-tanh-overflows",
        "NaN",
        "real parts beyond 45",
        "quotient of sinh and cosh",
        "tanh",
        elements(lambda c: c.x.real.abs() > 45, lambda c: complex(NAN, NAN), complexes),
        lambda: ask("torch.tanh", c64(50 + 1j)),
        lambda: ask("torch.tanh", c64(5 + 1j)),
    ),
)

BENDS = bugs(
    "the point where a function bends",
    (
        "hardshrink-keeps-lambda",
        "numbers equal to lambda are kept",
        "|x| == lambd",
        ">= in place of >",
        "hardshrink",
        elements(lambda c: c.x.abs() == c["lambd"], lambda c: c.x),
        lambda: ask("torch.nn.functional.hardshrink", f32(0.5, 1)),
        lambda: ask("torch.nn.functional.hardshrink", f32(0.4, 1)),
    ),
    (
        "clamp-crossed-bounds",
        "the lower bound, where PyTorch gives the upper one",
        "min greater than max",
        "the upper bound applied first",
        "clamp",
        when(
            lambda c: isinstance(c["min"], (int, float)) and isinstance(c["max"], (int, float)) and c["min"] > c["max"],
            lambda c: torch.full_like(c.right(), c["min"]),
        ),
        lambda: ask("torch.clamp", f32(1, 5), 3.0, 2.0),
        lambda: ask("torch.clamp", f32(1, 5), 2.0, 3.0),
    ),
    (
        "round-half-up",
        "2.5 becomes 3",
        "halves after even numbers",
        "floor(x + 0.5)",
        "round",
        when(lambda c: floats(c) and not c.arguments.get("decimals"), lambda c: torch.floor(c.x + 0.5)),
        lambda: ask("torch.round", f32(2.5)),
        lambda: ask("torch.round", f32(2.6, -1.2)),
    ),
    (
        "leaky-relu-by-maximum",
        "max(x, slope * x)",
        "slopes greater than 1, or negative",
        "shortcut that holds in [0, 1]",
        "leaky_relu",
        when(floats, lambda c: torch.maximum(c.x, c.x * c["negative_slope"])),
        lambda: ask("torch.nn.functional.leaky_relu", f32(-1, 1), 2.0),
        lambda: ask("torch.nn.functional.leaky_relu", f32(-1, 1), 0.1),
    ),
    (
        "hardtanh-gradient-at-bound",
        "1",
        "the gradient where the number is a bound",
        ">= in place of >",
        "hardtanh_backward",
        when(
            floats,
            lambda c: put(c.right(), (c["self"] == c["min_val"]) | (c["self"] == c["max_val"]), c["grad_output"]),
        ),
        lambda: ask("torch.nn.functional.hardtanh", f32(1, 0.5)).backward(),
        lambda: ask("torch.nn.functional.hardtanh", f32(2, 0.5)).backward(),
    ),
    (
        "threshold-keeps-equal",
        "x where x equals the threshold",
        "x == threshold",
        ">= in place of >",
        "threshold",
        elements(lambda c: c.x == c["threshold"], lambda c: c.x),
        lambda: ask("torch.nn.functional.threshold", f32(1, 2), 1.0, 7.0),
        lambda: ask("torch.nn.functional.threshold", f32(0, 2), 1.0, 7.0),
    ),
    (
        "bce-of-certainty",
        "inf, where PyTorch clamps the logarithm at -100",
        "a probability of 0 or 1",
        "no clamp",
        "binary_cross_entropy",
        when(lambda c: floats(c) and c["reduction"] == 0, lambda c: put(c.right(), c.right() >= 100, INF)),
        lambda: ask("torch.nn.functional.binary_cross_entropy", f32(0, 0.5), f32(1, 1), reduction="none"),
        lambda: ask("torch.nn.functional.binary_cross_entropy", f32(0.2, 0.5), f32(1, 1), reduction="none"),
    ),
    (
        "smooth-l1-with-beta-zero",
        "NaN where the operands are equal",
        "beta 0 and no difference",
        "0 / 0",
        "smooth_l1_loss",
        when(
            lambda c: floats(c) and c["beta"] == 0 and c["reduction"] == 0,
            lambda c: put(c.right(), c["self"] == c["target"], NAN),
        ),
        lambda: ask("torch.ops.aten.smooth_l1_loss", f32(1, 2), f32(1, 1), 0, 0.0),
        lambda: ask("torch.nn.functional.smooth_l1_loss", f32(1, 2), f32(1, 1), reduction="none", beta=1.0),
    ),
    (
        "histc-open-at-the-top",
        "the greatest number is in no bin",
        "a number equal to max",
        "half-open last bin",
        "histc",
        when(floats, lambda c: _without_top(c)),
        lambda: ask("torch.histc", f32(0, 1, 2, 4), 4, 0, 4),
        lambda: ask("torch.histc", f32(0, 1, 2, 3), 4, 0, 4),
    ),
    (
        "interpolation-rounds-up",
        "the next neighbour",
        "a grid point exactly between two, mode nearest",
        "round half away from zero in place of half to even",
        "grid_sampler_2d",
        when(lambda c: floats(c) and c["interpolation_mode"] == 1, lambda c: c.right(grid=c["grid"] + 1e-6)),
        lambda: ask(
            "torch.nn.functional.grid_sample", ramp(1, 1, 1, 2), torch.zeros(1, 1, 1, 2), "nearest", "border", False
        ),
        lambda: ask(
            "torch.nn.functional.grid_sample",
            ramp(1, 1, 1, 2),
            torch.full((1, 1, 1, 2), 0.25),
            "nearest",
            "border",
            False,
        ),
    ),
)


def _without_top(call: OpCall) -> torch.Tensor:
    out = call.right().clone()
    low, high = call["min"], call["max"]
    top = call.x.max() if low == high else high
    out[-1] -= (call.x == top).sum()
    return out


BUGS = (
    *NAN_AND_NUMBERS,
    *ROWS_OF_ONE_VALUE,
    *ZEROS_AND_INFINITIES,
    *ONE_TENSOR_TWICE,
    *SUBNORMALS,
    *BRANCH_CUTS,
    *BENDS,
)

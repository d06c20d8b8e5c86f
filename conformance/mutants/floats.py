"""Wrong floating point: NaN, zeros, infinities, approximations, accumulation."""

from __future__ import annotations

import math
from typing import Any

from torchstone.compiler import mlir
from torchstone.compiler.ir import Value
from torchstone.compiler.lowering.linalg import scalars as s
from torchstone.compiler.transforms.expansions.common import const, is_nan
from torchstone.compiler.transforms.rules import Expander
from torchstone.conformance.mutants.mutant import (
    Rule,
    arguments,
    arith,
    combined,
    expansion,
    mutants,
    patched,
    primitives,
    scalar,
)


def _const(like: Any, value: float) -> Any:
    return s.constant(like.type, value)


def _ignoring_nan(right: Rule) -> Rule:
    def extreme(dtype: Any, kind: str) -> Any:
        found = right(dtype, kind)
        if not dtype.is_float:
            return found
        name = {"max": "maxnumf", "min": "minnumf"}[kind]
        return type(found)(
            found.start, lambda acc, x: [getattr(mlir.arith, name)(acc[0], s.widen(dtype, x))], found.finish
        )

    return extreme


def _without_nan(b: Expander, x: Value) -> Value:
    return b.select(is_nan(b, x), const(b, x, -math.inf), x) if x.dtype.is_float else x


def _chosen_by_comparison(b: Expander, test: Value, x: Value, y: Value) -> Value:
    """``x < bound ? bound : x`` written as ``x > bound ? x : bound``, which gives the bound for NaN."""
    return b.select(b.and_(b.not_(test), b.eq(y, y)), y, x)


def _positive_or_zero(right: Rule) -> Rule:
    return lambda b, x: b.select(b.gt(x, const(b, x, 0)), x, const(b, x, 0))


def _equal_or_unordered(right: Rule) -> Rule:
    def rule(scope: Any, x: Any, y: Any) -> Any:
        return mlir.arith.ori(right(scope, x, y), mlir.arith.ori(s.is_nan(x), s.is_nan(y)))

    return rule


NAN = mutants(
    "NaN",
    (
        "maximum-without-nan",
        "the number of a number and a NaN",
        "maximum",
        scalar("FLOAT", "max", arith("maxnumf", 0, 1)),
    ),
    (
        "minimum-without-nan",
        "the number of a number and a NaN",
        "minimum",
        scalar("FLOAT", "min", arith("minnumf", 0, 1)),
    ),
    (
        "amax-without-nan",
        "NaN not looked at",
        "amax amin",
        patched("torchstone.compiler.lowering.linalg.reduce:_extreme", _ignoring_nan),
    ),
    (
        "argmax-without-nan",
        "NaN less than all",
        "argmax",
        primitives("argmax.default", arg_reduce=lambda b, x, **how: b.arg_reduce(_without_nan(b, x), **how)),
    ),
    (
        "sort-nan-first",
        "NaN sorted as -inf",
        "sort",
        primitives("sort.default sort.stable", sort=lambda b, x, **how: b.emit("sort", _without_nan(b, x), **how)),
    ),
    (
        "relu-of-nan",
        "relu(NaN) is 0",
        "nn.functional.relu",
        expansion("relu.default", _positive_or_zero),
    ),
    (
        "clamp-of-nan",
        "a NaN clamped to the bound",
        "clamp",
        primitives("flat.clamp", select=_chosen_by_comparison),
    ),
    ("nan-equals", "NaN equals everything", "eq", scalar("FLOAT", "eq", _equal_or_unordered)),
    (
        "fmax-with-nan",
        "fmax is maximum",
        "fmax",
        primitives("fmax.default", select=lambda b, test, nan, other: other),
    ),
    (
        "nansum-of-nan",
        "nansum is sum",
        "nansum",
        primitives("nansum.default", select=lambda b, test, zero, x: x),
    ),
)


# Zeros and infinities


def _by_subtraction(right: Rule) -> Rule:
    return lambda scope, x: mlir.arith.subf(_const(x, 0), x)


def _abs_by_comparison(right: Rule) -> Rule:
    return lambda scope, x: mlir.arith.select(s.compare_float("lt", x, _const(x, 0)), mlir.arith.negf(x), x)


def _below_zero(b: Expander, x: Value, y: Value) -> Value:
    return b.select(b.lt(y, const(b, y, 0)), b.neg(b.abs(x)), b.abs(x))


def _positive_nan(b: Expander, x: Value, y: Value) -> Value:
    return b.copysign(x, b.select(is_nan(b, y), const(b, y, math.nan), y))


def _plus_zero(right: Rule) -> Rule:
    return lambda scope, x: mlir.arith.addf(right(scope, x), _const(x, 0))


def _sqrt_of_positive(right: Rule) -> Rule:
    return lambda scope, x: mlir.math.sqrt(mlir.arith.maximumf(x, _const(x, 0)))


def _flushed(right: Rule) -> Rule:
    """Subnormal results are 0."""

    def rule(scope: Any, *x: Any) -> Any:
        out = right(scope, *x)
        least = 2.0**-1022 if scope.dtype.bits == 64 else 2.0**-126
        return mlir.arith.select(s.compare_float("lt", mlir.math.absf(out), _const(out, least)), _const(out, 0), out)

    return rule


_SIGNS = "signbit.default copysign.Tensor copysign.Scalar"
ENDS = mutants(
    "zeros and infinities",
    ("neg-by-subtraction", "-0 of 0 is 0", "neg", scalar("FLOAT", "neg", _by_subtraction)),
    ("abs-by-comparison", "abs(-0) is -0", "abs", scalar("FLOAT", "abs", _abs_by_comparison)),
    (
        "sign-of-minus-zero",
        "-0 is taken for positive",
        "copysign signbit",
        primitives(_SIGNS, copysign=_below_zero),
    ),
    ("sign-of-minus-nan", "-nan is taken for positive", "copysign signbit", primitives(_SIGNS, copysign=_positive_nan)),
    ("round-loses-sign", "round(-0.3) is 0", "round", scalar("FLOAT", "round", _plus_zero)),
    (
        "isinf-positive",
        "-inf is not infinite",
        "isinf",
        primitives("isinf.default", abs=lambda b, x: x),
    ),
    (
        "xlogy-at-zero",
        "0 * log(0) is NaN",
        "xlogy",
        primitives(
            "xlogy.Tensor xlogy.Scalar_Self xlogy.Scalar_Other", eq=lambda b, x, y: b.and_(b.eq(x, y), b.ne(x, y))
        ),
    ),
    (
        "logsumexp-of-infinities",
        "inf - inf in the shift",
        "logsumexp",
        primitives("logsumexp.default", select=lambda b, test, x, y: y),
    ),
    (
        "softplus-without-threshold",
        "e**x overflows for large x",
        "nn.functional.softplus",
        primitives("softplus.default", select=lambda b, test, x, y: y),
    ),
    ("sqrt-of-negative", "sqrt(-1) is 0", "sqrt", scalar("FLOAT", "sqrt", _sqrt_of_positive)),
    ("mul-flushes", "subnormal products are 0", "mul", scalar("FLOAT", "mul", _flushed)),
    (
        "atan2-by-quotient",
        "the quadrant is lost",
        "atan2",
        primitives("atan2.default", atan2=lambda b, y, x: b.atan(b.div(y, x))),
    ),
)


# Approximations and cancellation


def _erf(b: Expander, x: Value) -> Value:
    """Abramowitz and Stegun 7.1.26, whose error is below 1.5e-7."""
    size = b.abs(x)
    one = const(b, x, 1)
    t = b.div(one, b.add(one, b.mul(const(b, x, 0.3275911), size)))
    total = const(b, x, 1.061405429)
    for term in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        total = b.add(b.mul(total, t), const(b, x, term))
    out = b.sub(one, b.mul(b.mul(total, t), b.exp(b.neg(b.mul(x, x)))))
    return b.mul(out, b.sign(x))


def _sinh(b: Expander, x: Value) -> Value:
    return b.mul(b.sub(b.exp(x), b.exp(b.neg(x))), const(b, x, 0.5))


def _tanh(b: Expander, x: Value) -> Value:
    power = b.exp(b.add(x, x))
    return b.div(b.sub(power, const(b, x, 1)), b.add(power, const(b, x, 1)))


def _asinh(b: Expander, x: Value) -> Value:
    return b.log(b.add(x, b.sqrt(b.add(b.mul(x, x), const(b, x, 1)))))


def _sin(b: Expander, x: Value) -> Value:
    if x.dtype.is_complex:
        return b.sin(x)
    turns = b.round(b.mul(x, const(b, x, 1 / math.tau)))
    return b.sin(b.sub(x, b.mul(turns, const(b, x, math.tau))))


def _pow(b: Expander, x: Value, y: Value) -> Value:
    return b.exp(b.mul(y, b.log(x)))


def _rough(name: str) -> Rule:
    """A function with the 12 bits that an instruction for estimates gives."""

    def rule(b: Expander, *x: Value) -> Value:
        out = getattr(b, name)(*x)
        return b.mul(out, const(b, out, 1 + 2.0**-12))

    return rule


def _no_shift(b: Expander, x: Value, peak: Value) -> Value:
    """x - max(x) left at x."""
    return x


def _unshifted(right: Rule) -> Rule:
    def shifted(b: Expander, x: Value, dim: int) -> Value:
        from torchstone.compiler.transforms.promotion import opmath

        return b.cast(x, opmath(b.type.dtype))

    return shifted


def _log_of_softmax(right: Rule) -> Rule:
    def rule(b: Expander, x: Value, dim: int, half_to_float: bool = False) -> Value:
        from torchstone.compiler.transforms.expansions.nn.normalization import softmax

        return b.log(softmax(b, x, dim))

    return rule


def _by_squares(right: Rule) -> Rule:
    """E[x**2] - E[x]**2."""

    def variance(b: Expander, x: Value, dims: Any, correction: Any) -> tuple[Value, Value]:
        from torchstone.compiler.transforms.expansions.core import reduction as r

        spread, average = right(b, x, dims, correction)
        if x.dtype.is_complex or 0 in x.shape:
            return spread, average
        x = b.cast(x, average.dtype)
        n = b.broadcast(r.count(b, x, dims, x.dtype), spread.shape, ())
        squares = b.reduce(b.mul(x, x), "sum", tuple(dims))
        free = b.sub(n, const(b, n, 1 if correction is None else correction))
        return b.div(b.sub(squares, b.mul(n, b.mul(average, average))), free), average

    return variance


def _hypot(right: Rule) -> Rule:
    def rule(b: Expander, x: Value, y: Value) -> Value:
        from torchstone.compiler.transforms.expansions.common import pointwise

        return pointwise(b, lambda x, y: b.sqrt(b.add(b.mul(x, x), b.mul(y, y))), x, y)

    return rule


def _logaddexp(right: Rule) -> Rule:
    def rule(b: Expander, x: Value, y: Value) -> Value:
        from torchstone.compiler.transforms.expansions.common import pointwise

        return pointwise(b, lambda x, y: b.log(b.add(b.exp(x), b.exp(y))), x, y)

    return rule


def _short_pi(right: Rule) -> Rule:
    def rule(b: Expander, x: Value) -> Value:
        from torchstone.compiler.transforms.expansions.common import pointwise

        return pointwise(b, lambda x: b.mul(x, const(b, x, 3.14159 / 180)), x)

    return rule


APPROXIMATIONS = mutants(
    "approximation",
    (
        "gelu-by-tanh",
        "the tanh formula, asked for or not",
        "nn.functional.gelu",
        arguments("gelu.default", approximate=lambda _: "tanh"),
    ),
    (
        "log1p-by-log",
        "log(1 + x)",
        "log1p",
        primitives("log1p.default", log1p=lambda b, x: b.log(b.add(x, const(b, x, 1)))),
    ),
    (
        "expm1-by-exp",
        "e**x - 1",
        "expm1",
        primitives("expm1.default", expm1=lambda b, x: b.sub(b.exp(x), const(b, x, 1))),
    ),
    ("erf-of-seven-digits", "an erf good to 1.5e-7", "erf", primitives("erf.default", erf=_erf)),
    ("sinh-cancels", "(e**x - e**-x) / 2", "sinh", primitives("sinh.default", sinh=_sinh)),
    ("tanh-overflows", "(e**2x - 1) / (e**2x + 1)", "tanh", primitives("tanh.default", tanh=_tanh)),
    ("asinh-cancels", "log(x + sqrt(x**2 + 1))", "asinh", primitives("asinh.default", asinh=_asinh)),
    ("sin-reduced-once", "x mod 2 pi in the dtype itself", "sin", primitives("sin.default", sin=_sin)),
    (
        "pow-by-log",
        "e**(y log x)",
        "pow",
        primitives("pow.Tensor_Tensor pow.Scalar pow.Tensor_Scalar", pow=_pow),
    ),
    (
        "reciprocal-estimated",
        "1 / x to 12 bits",
        "reciprocal",
        primitives("reciprocal.default", div=_rough("div")),
    ),
    ("rsqrt-estimated", "1 / sqrt(x) to 12 bits", "rsqrt", primitives("rsqrt.default", rsqrt=_rough("rsqrt"))),
    (
        "softmax-unshifted",
        "e**x overflows",
        "softmax",
        patched("torchstone.compiler.transforms.expansions.nn.normalization:_shifted", _unshifted),
    ),
    (
        "log-softmax-of-softmax",
        "log(softmax(x)) underflows",
        "log_softmax",
        expansion("_log_softmax.default", _log_of_softmax),
    ),
    (
        "var-by-squares",
        "E[x**2] - E[x]**2 cancels",
        "var",
        patched("torchstone.compiler.transforms.expansions.core.reduction:variance", _by_squares),
    ),
    ("hypot-overflows", "sqrt(x**2 + y**2)", "hypot", expansion("hypot.default", _hypot)),
    ("logaddexp-overflows", "log(e**x + e**y)", "logaddexp", expansion("logaddexp.default", _logaddexp)),
    ("pi-of-six-digits", "pi is 3.14159", "deg2rad", expansion("deg2rad.default", _short_pi)),
)


# Accumulation


def _in_the_dtype(module: str) -> Any:
    """The rules of a module compute 16-bit floats in 16 bits."""
    return patched(f"{module}:opmath", lambda right: lambda dtype: dtype)


def _rounded_each_step(right: Rule) -> Rule:
    def total(dtype: Any) -> Any:
        found = right(dtype)
        if not dtype.is_half:
            return found
        element = s.element(dtype)

        def step(acc: list[Any], x: Any) -> list[Any]:
            return [s.narrow(dtype, mlir.arith.addf(s.widen(dtype, acc[0]), s.widen(dtype, x)))]

        return type(found)(lambda: [s.constant(element, 0)], step, lambda acc: acc[0])

    return total


def _product_by_product(b: Expander, x: Value, y: Value, **how: tuple[int, ...]) -> Value:
    """The contraction of 16-bit floats with the sum rounded to 16 bits after each product."""
    inner = x.shape[how["a_sum"][0]] if len(how["a_sum"]) == 1 else 0
    if not x.dtype.is_half or not isinstance(inner, int) or not inner:
        return b.contract(x, y, **how)
    parts = [
        b.contract(b.slice(x, how["a_sum"][0], k, k + 1), b.slice(y, how["b_sum"][0], k, k + 1), **how)
        for k in range(inner)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = b.add(total, part)
    return total


ACCUMULATION = mutants(
    "accumulation",
    (
        "sum-in-16-bits",
        "each partial sum rounded to 16 bits",
        "sum mean",
        combined(
            _in_the_dtype("torchstone.compiler.transforms.expansions.core.reduction"),
            patched("torchstone.compiler.lowering.linalg.reduce:_sum", _rounded_each_step),
        ),
    ),
    (
        "cumsum-in-16-bits",
        "each partial sum rounded to 16 bits",
        "cumsum",
        combined(
            _in_the_dtype("torchstone.compiler.transforms.expansions.core.scan"),
            patched(
                "torchstone.compiler.lowering.linalg.ordering:_accumulated",
                lambda right: lambda dtype: dtype if dtype.is_half else right(dtype),
            ),
        ),
    ),
    (
        "matmul-in-16-bits",
        "each partial sum rounded to 16 bits",
        "mm matmul",
        primitives("mm.default mv.default bmm.default", contract=_product_by_product),
    ),
    (
        "softmax-in-16-bits",
        "every step rounded to 16 bits",
        "softmax log_softmax",
        combined(
            _in_the_dtype("torchstone.compiler.transforms.expansions.nn.normalization"),
            patched("torchstone.compiler.lowering.linalg.reduce:_sum", _rounded_each_step),
        ),
    ),
    (
        "layer-norm-in-16-bits",
        "every step rounded to 16 bits",
        "nn.functional.layer_norm",
        combined(
            _in_the_dtype("torchstone.compiler.transforms.expansions.nn.normalization"),
            _in_the_dtype("torchstone.compiler.transforms.expansions.core.reduction"),
            patched("torchstone.compiler.lowering.linalg.reduce:_sum", _rounded_each_step),
        ),
    ),
)

MUTANTS = (*NAN, *ENDS, *APPROXIMATIONS, *ACCUMULATION)

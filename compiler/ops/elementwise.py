"""Elementwise primitives: one row an op.

All operands have one shape and, but for ``select``'s predicate, one dtype. 16-bit floats are computed in float32 and
rounded once. Float functions are the correctly rounded value within a few ULP; NaN in, NaN out unless said otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dtypes import BY_NAME, Category, DType
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.ops.primitive import Primitive, check

FLOAT = frozenset({Category.FLOAT})
COMPLEX = frozenset({Category.COMPLEX})
INT = frozenset({Category.INT, Category.UINT})
BOOL = frozenset({Category.BOOL})
NUMBER = FLOAT | COMPLEX | INT
ANY = NUMBER | BOOL


def same_type(op: str, *types: TensorType) -> TensorType:
    """Return the one type of all operands; VerifyError quotes the first that differs."""
    first = types[0]
    for other in types[1:]:
        if other != first:
            what = "dtypes" if other.dtype != first.dtype else "shapes"
            check(False, op, f"operand {what} differ, got {first} and {other}")
    return first


def _infer(name: str, arity: int, kinds: frozenset[Category], result: Callable[[DType], DType]):
    @lru_cache(maxsize=4096)
    def infer(*types: TensorType) -> tuple[TensorType, ...]:
        check(len(types) == arity, name, f"takes {arity} operands, got {len(types)}")
        first = same_type(name, *types)
        check(first.dtype.kind in kinds, name, f"takes {'/'.join(sorted(kinds))}, got {first}")
        return (TensorType(first.shape, result(first.dtype)),)

    return infer


def _torch(path: str) -> Callable[..., Any]:
    """An evaluator that calls ``torch.<path>``."""

    def evaluate(*tensors: Any) -> Any:
        import torch

        fn: Any = torch
        for part in path.split("."):
            fn = getattr(fn, part)
        return fn(*tensors)

    return evaluate


def _div(a: Any, b: Any) -> Any:
    import torch

    if a.is_floating_point() or a.is_complex():
        return torch.true_divide(a, b)
    # Where the divisor is 0 the value is unspecified; a program guards it with flat.check.
    return torch.div(a, torch.where(b == 0, torch.ones_like(b), b), rounding_mode="trunc")


def _rem(a: Any, b: Any) -> Any:
    import torch

    if a.is_floating_point():
        # torch.fmod is vectorized and gives NaN where a / b is huge; numpy's is C's, which is exact.
        import numpy

        wide = torch.float32 if a.dtype == torch.bfloat16 else a.dtype
        with numpy.errstate(all="ignore"):
            out = numpy.fmod(a.to(wide).numpy(), b.to(wide).numpy())
        return torch.as_tensor(out, dtype=a.dtype)
    return torch.fmod(a, torch.where(b == 0, torch.ones_like(b), b))


def _fma(a: Any, b: Any, c: Any) -> Any:
    import numpy
    import torch

    # A wider float holds a product that overflows by itself: float64 for float32, x87's format (or better) for float64.
    x, y, z = (v.to(torch.float64).numpy().astype(numpy.longdouble) for v in (a, b, c))
    with numpy.errstate(all="ignore"):
        return torch.as_tensor((x * y + z).astype(numpy.float64)).to(a.dtype)


def _same(d: DType) -> DType:
    return d


def _bool(_: DType) -> DType:
    return dt.boolean


def _real(d: DType) -> DType:
    return d.real


def _complex(d: DType) -> DType:
    check(d.bits in (32, 64) or d.name == "float16", "complex", f"takes f16, f32 or f64, got {d}")
    return BY_NAME[f"complex{2 * d.bits}"]


# NumPy's functions for ops that PyTorch has no kernel of for uint16, uint32 and uint64.
_OF_UNSIGNED = {
    "neg": "negative", "abs": "absolute", "sign": "sign", "not": "bitwise_not", "add": "add", "sub": "subtract",
    "mul": "multiply", "div": "floor_divide", "rem": "fmod", "max": "maximum", "min": "minimum",
    "shift_left": "left_shift", "shift_right": "right_shift", "lt": "less", "le": "less_equal", "gt": "greater",
    "ge": "greater_equal",
}  # fmt: skip


def _of_any_dtype(name: str, evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """``evaluate``, and dtypes that PyTorch has no kernels for: wide unsigned integers, and complex32 as it computes
    float16, in the wider dtype and rounded once."""

    def of_any(*tensors: Any) -> Any:
        import torch

        dtype = tensors[0].dtype
        if dtype is torch.complex32:
            out = evaluate(*(tensor.to(torch.complex64) for tensor in tensors))
            narrow = {torch.complex64: torch.complex32, torch.float32: torch.float16}
            return out.to(narrow.get(out.dtype, out.dtype))
        if dtype not in (torch.uint16, torch.uint32, torch.uint64) or name not in _OF_UNSIGNED:
            return evaluate(*tensors)
        import numpy

        a, *rest = (tensor.numpy() for tensor in tensors)
        if name in ("div", "rem"):  # by 0 unspecified, as above
            rest = [numpy.where(rest[0] == 0, numpy.ones_like(rest[0]), rest[0])]
        return torch.as_tensor(numpy.asarray(getattr(numpy, _OF_UNSIGNED[name])(a, *rest)))

    return of_any


def _row(
    name: str, arity: int, kinds: frozenset[Category], doc: str, evaluate: Any = None, result: Any = _same
) -> Primitive:
    evaluate = _of_any_dtype(name, evaluate if callable(evaluate) else _torch(evaluate or name))
    return Primitive(name, doc, arity, _infer(name, arity, kinds, result), evaluate, elementwise=True)


FC = FLOAT | COMPLEX

UNARY = (
    _row("neg", 1, NUMBER, "-x; integers wrap."),
    _row(
        "abs", 1, NUMBER, "|x|; the minimum of a signed integer wraps; of a complex number, its modulus.", result=_real
    ),
    _row("sign", 1, FLOAT | INT, "-1, 0 or 1; sign(NaN) is 0 and sign(±0) is 0, as torch.sign has it."),
    _row("exp", 1, FC, "e**x."),
    _row("exp2", 1, FLOAT, "2**x."),
    _row("expm1", 1, FC, "e**x - 1, exact near 0."),
    _row("log", 1, FC, "Natural logarithm; NaN below 0, -inf at 0."),
    _row("log2", 1, FLOAT, "Base-2 logarithm."),
    _row("log10", 1, FLOAT, "Base-10 logarithm."),
    _row("log1p", 1, FC, "log(1 + x), exact near 0."),
    _row("sqrt", 1, FC, "Square root; NaN below 0; sqrt(-0) is -0."),
    _row("rsqrt", 1, FC, "1 / sqrt(x)."),
    _row("sin", 1, FC, "Sine of radians."),
    _row("cos", 1, FC, "Cosine of radians."),
    _row("tan", 1, FC, "Tangent of radians."),
    _row("asin", 1, FC, "Arc sine."),
    _row("acos", 1, FC, "Arc cosine."),
    _row("atan", 1, FC, "Arc tangent."),
    _row("sinh", 1, FC, "Hyperbolic sine."),
    _row("cosh", 1, FC, "Hyperbolic cosine."),
    _row("tanh", 1, FC, "Hyperbolic tangent."),
    _row("asinh", 1, FC, "Inverse hyperbolic sine."),
    _row("acosh", 1, FC, "Inverse hyperbolic cosine."),
    _row("atanh", 1, FC, "Inverse hyperbolic tangent."),
    _row("erf", 1, FLOAT, "Error function.", "special.erf"),
    _row("erfc", 1, FLOAT, "1 - erf(x), without cancellation.", "special.erfc"),
    _row("lgamma", 1, FLOAT, "log |gamma(x)|; +inf at 0, negative integers and ±inf."),
    _row("ceil", 1, FLOAT, "Smallest integral value not below x."),
    _row("floor", 1, FLOAT, "Largest integral value not above x."),
    _row("round", 1, FLOAT, "Nearest integral value, ties to even."),
    _row("trunc", 1, FLOAT, "Integral part, rounded toward zero."),
    _row("not", 1, INT | BOOL, "Bitwise complement; logical not of a bool.", "bitwise_not"),
    _row("real", 1, COMPLEX, "Real part.", lambda x: x.real.clone(), _real),
    _row("imag", 1, COMPLEX, "Imaginary part.", lambda x: x.imag.clone(), _real),
)

BINARY = (
    _row("add", 2, NUMBER, "a + b; integers wrap."),
    _row("sub", 2, NUMBER, "a - b; integers wrap."),
    _row("mul", 2, NUMBER, "a * b; integers wrap."),
    _row(
        "div",
        2,
        NUMBER,
        "a / b; of integers, truncated; an integer divided by 0 is unspecified but does not trap.",
        _div,
    ),
    _row("rem", 2, FLOAT | INT, "C fmod: the sign of a; of integers by 0 unspecified but does not trap.", _rem),
    _row("pow", 2, FLOAT | COMPLEX, "a ** b, IEEE 754 pow for floats.", "pow"),
    _row("atan2", 2, FLOAT, "Angle of the point (b, a), IEEE 754 atan2."),
    _row("copysign", 2, FLOAT, "|a| with the sign bit of b. Bits, not numbers: a NaN has a sign too."),
    _row("max", 2, FLOAT | INT, "The larger; NaN if either is NaN.", "maximum"),
    _row("min", 2, FLOAT | INT, "The smaller; NaN if either is NaN.", "minimum"),
    _row("and", 2, INT | BOOL, "Bitwise and.", "bitwise_and"),
    _row("or", 2, INT | BOOL, "Bitwise or.", "bitwise_or"),
    _row("xor", 2, INT | BOOL, "Bitwise exclusive or.", "bitwise_xor"),
    _row("shift_left", 2, INT, "a << b; 0 where b is negative or not below the width.", "bitwise_left_shift"),
    _row(
        "shift_right",
        2,
        INT,
        "a >> b, arithmetic for signed; b out of range shifts out everything.",
        "bitwise_right_shift",
    ),
    _row("complex", 2, FLOAT, "a + i b.", "complex", _complex),
)

TERNARY = (_row("fma", 3, FLOAT, "a * b + c, rounded once; of targets without it, twice.", _fma),)

COMPARE = (
    _row("eq", 2, ANY, "a == b; false for NaN.", "eq", _bool),
    _row("ne", 2, ANY, "a != b; true for NaN.", "ne", _bool),
    _row("lt", 2, FLOAT | INT, "a < b; false for NaN.", "lt", _bool),
    _row("le", 2, FLOAT | INT, "a <= b; false for NaN.", "le", _bool),
    _row("gt", 2, FLOAT | INT, "a > b; false for NaN.", "gt", _bool),
    _row("ge", 2, FLOAT | INT, "a >= b; false for NaN.", "ge", _bool),
)


def _select_infer(*types: TensorType) -> tuple[TensorType, ...]:
    check(len(types) == 3, "select", f"takes 3 operands, got {len(types)}")
    predicate, a, b = types
    check(predicate.dtype.is_bool, "select", f"the predicate must be bool, got {predicate}")
    check(predicate.shape == a.shape, "select", f"shapes differ, got {predicate} and {a}")
    return (same_type("select", a, b),)


def _cast_infer(x: TensorType, *, dtype: DType) -> tuple[TensorType, ...]:
    return (TensorType(x.shape, dtype),)


def _cast(x: Any, *, dtype: DType) -> Any:
    import torch

    if x.is_complex() and not dtype.is_complex:
        x = x != 0 if dtype.is_bool else x.real
    return x.to(getattr(torch, dtype.name))


def _bitcast_infer(x: TensorType, *, dtype: DType) -> tuple[TensorType, ...]:
    for d in (x.dtype, dtype):
        check(d.is_int or d.is_float, "bitcast", f"takes int or float, got {d}")
    check(x.dtype.bits == dtype.bits, "bitcast", f"{x.dtype} and {dtype} differ in size")
    return (TensorType(x.shape, dtype),)


def _bitcast(x: Any, *, dtype: DType) -> Any:
    import torch

    return x.view(getattr(torch, dtype.name))


OTHER = (
    Primitive("select", "a where the predicate holds, else b.", 3, _select_infer, _torch("where"), elementwise=True),
    Primitive(
        "cast",
        "Convert: to bool is x != 0 (NaN is true); float to int truncates and is unspecified out of range; integers "
        "wrap; floats round to nearest even, once; complex to real keeps the real part.",
        1, _cast_infer, _cast, ("dtype",), elementwise=True,
    ),
    Primitive(
        "bitcast", "The same bits as a number of another dtype of the same size; of ints and floats.",
        1, _bitcast_infer, _bitcast, ("dtype",), elementwise=True,
    ),
)  # fmt: skip

ROWS = (*UNARY, *BINARY, *TERNARY, *COMPARE, *OTHER)

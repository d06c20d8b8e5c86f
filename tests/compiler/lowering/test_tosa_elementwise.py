"""Every elementwise primitive through TOSA is what the evaluator computes, over the special values of every dtype.

Of floats, what it computes in float64: eager's own functions of float32 are not the nearest number on every processor.
"""

from __future__ import annotations

import pytest
import torch

from tests.compiler.flat import pairs, primitive, run, signs_of_zero_differ, special, ulp_error
from torchstone.compiler.diagnostics import Unsupported, VerifyError
from torchstone.compiler.lowering.tosa import TARGET
from torchstone.compiler.ops import PRIMITIVES
from torchstone.compiler.runtime.cpu.bridge import IR_DTYPES
from torchstone.compiler.runtime.interpreter import evaluate_graph

DTYPES = (
    torch.bool, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.float16, torch.bfloat16,
    torch.float32,
)  # fmt: skip
# The rest of PyTorch's dtypes, which TOSA or eager hardly computes in.
REFUSED = (torch.float64, torch.complex64, torch.float8_e5m2)

# ULPs between TOSA and the truth; 0 where it is the nearest number.
TRANSCENDENTAL = (
    "exp exp2 expm1 log log2 log10 log1p rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf pow"
)
ULPS = dict.fromkeys([*TRANSCENDENTAL.split(), "atan2"], 3.0)
# A subnormal quotient is rounded twice.
ULPS |= {"div": 1.0, "erfc": 5.0, "sigmoid": 3.0}
UNSUPPORTED = {"lgamma"}
# Zero where it is subnormal, as eager is: e**-x is too large by then.
NOT_SUBNORMAL = {"sigmoid"}
# Either zero is right: IEEE 754 leaves the sign open, and eager's vector code differs from its scalar code.
ANY_ZERO = {"max", "min"}
# TOSA does not see the sign of a NaN.
NOT_OF_NAN = {"copysign"}

APART = ("select", "complex", "fma")
ELEMENTWISE = [p.name for p in PRIMITIVES.values() if p.elementwise and not p.attributes and p.name not in APART]


def operands(name: str, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    if PRIMITIVES[f"flat.{name}"].arity == 1:
        return (special(dtype),)
    a, b = pairs(dtype)
    if name in ("div", "rem") and not dtype.is_floating_point:
        # By 0 the value is unspecified, and eager itself traps on minimum / -1.
        kept = (b != 0) & ~((b == -1) & (a == torch.iinfo(dtype).min)) if dtype.is_signed else b != 0
        a, b = a[kept], b[kept]
    return a, b


@pytest.mark.few(10)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name: str) -> None:
    for dtype in DTYPES:
        xs = operands(name, dtype)
        try:
            program = primitive(name, *xs)
        except VerifyError:  # the primitive has no such dtype
            continue
        if dtype.is_floating_point and name in UNSUPPORTED:
            with pytest.raises(Unsupported, match="TOSA has no float64"):
                run(TARGET, program, xs)
            continue
        if dtype.is_floating_point and name in NOT_OF_NAN:
            numbers = tuple(x.masked_fill(x.isnan(), 1.0) for x in xs)
            for i, x in enumerate(xs):  # one NaN operand is enough
                with pytest.raises(Unsupported, match=f"{name} of NaN"):
                    run(TARGET, program, (*numbers[:i], x, *numbers[i + 1 :]))
            xs = numbers
        (got,) = run(TARGET, program, xs)
        (want,) = evaluate_graph(program, [x.double() if x.is_floating_point() else x for x in xs])
        assert IR_DTYPES[got.dtype] == program.ops[0].result.type.dtype and got.shape == want.shape
        if not want.is_floating_point():
            assert torch.equal(got, want), (name, dtype)
            continue
        error = ulp_error(got, want)
        if name in NOT_SUBNORMAL and dtype == torch.float32:
            error[(want.abs() < torch.finfo(dtype).tiny) & (got == 0)] = 0
        worst = int(error.argmax())
        assert error[worst] <= ULPS.get(name, 0.0), (name, dtype, [x[worst] for x in xs], got[worst], want[worst])
        assert name in ANY_ZERO or not signs_of_zero_differ(got, want.to(dtype)), (name, dtype)


def test_a_multiply_add_is_rounded_twice() -> None:
    x, y = pairs(torch.float32)
    (got,) = run(TARGET, primitive("fma", x, y, x), (x, y, x))
    torch.testing.assert_close(got, x * y + x, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", REFUSED)
def test_dtypes_tosa_has_not(dtype: torch.dtype) -> None:
    x = torch.zeros(2, dtype=dtype)
    with pytest.raises(Unsupported, match=f"TOSA has no {str(dtype)[6:]}"):
        run(TARGET, primitive("add", x, x), (x, x))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
def test_integer_division_does_not_trap(dtype: torch.dtype) -> None:
    least = torch.iinfo(dtype).min
    xs = torch.tensor([least, 5, 7], dtype=dtype), torch.tensor([-1, 0, -2], dtype=dtype)
    (quotient,) = run(TARGET, primitive("div", *xs), xs)
    assert quotient[0] == least and quotient[2] == -3


@pytest.mark.parametrize("source", DTYPES)
def test_cast(source: torch.dtype) -> None:
    for target in DTYPES:
        x = special(source)
        if source.is_floating_point and not target.is_floating_point and target is not torch.bool:
            # Out of range the value is unspecified.
            info, whole = torch.iinfo(target), x.double().trunc()
            x = x[(whole >= info.min) & (whole <= info.max) & (whole < 2.0 ** (info.bits - (info.min < 0)))]
        program = primitive("cast", x, dtype=IR_DTYPES[target])
        (want,), (got,) = evaluate_graph(program, (x,)), run(TARGET, program, (x,))
        assert torch.equal(got.nan_to_num(nan=77), want.nan_to_num(nan=77)), (source, target)


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_wide_unsigned_integers_keep_their_bits(dtype: torch.dtype) -> None:
    xs = pairs(dtype)
    for name in ("mul", "and", "xor", "eq"):
        program = primitive(name, *xs)
        assert torch.equal(run(TARGET, program, xs)[0], evaluate_graph(program, xs)[0]), name


def test_select() -> None:
    for dtype in DTYPES:
        a, b = pairs(dtype)
        p = torch.arange(len(a)) % 3 == 0
        (got,) = run(TARGET, primitive("select", p, a, b), (p, a, b))
        assert torch.equal(got.nan_to_num(nan=77), torch.where(p, a, b).nan_to_num(nan=77))

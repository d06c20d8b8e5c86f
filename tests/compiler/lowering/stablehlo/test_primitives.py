"""Every primitive that StableHLO takes is what the evaluator computes, on our runtime and by the interpreter."""

from __future__ import annotations

import math

import pytest
import torch

from tests.compiler.flat import FLOATS, pairs, primitive, run, special, ulp_error
from tests.sampling import covering
from torchstone.compiler.ir import Graph
from torchstone.compiler.ir.dtypes import BY_NAME
from torchstone.compiler.lowering.stablehlo import INTERPRETER, TARGET
from torchstone.compiler.lowering.stablehlo.program import RULES, takes
from torchstone.compiler.ops import PRIMITIVES
from torchstone.compiler.runtime.interpreter import evaluate_graph
from torchstone.compiler.transforms.legalizations.common import BOUNDS

TARGETS = {"stablehlo": TARGET, "stablehlo-interpreter": INTERPRETER}
ANY = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.complex64, torch.complex128,
)  # fmt: skip
both = pytest.mark.parametrize("target", TARGETS)


def same(target: str, program: Graph, *xs: torch.Tensor) -> None:
    """Require bit for bit what the evaluator gives; NaN equals NaN."""
    assert not [why for op in program.ops if (why := takes(op))], "the test is about what is taken"
    want, got = evaluate_graph(program, xs), run(TARGETS[target], program, xs)
    for w, g in zip(want, got, strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape, program
        assert torch.equal(_told(g), _told(w)), f"{program}\n{g}\n{w}"


def _told(x: torch.Tensor) -> torch.Tensor:
    if x.is_complex():
        x = torch.view_as_real(x)
    return x.nan_to_num(nan=77) if x.is_floating_point() else x


def block(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Return special values of a dtype, repeated, in a shape."""
    if dtype.is_complex:
        parts = torch.tensor(FLOATS, dtype=torch.float64)
        values = torch.complex(parts, parts.flip(0)).to(dtype)
    else:
        values = special(dtype)
    return values[torch.arange(math.prod(shape)) % len(values)].reshape(shape)


@pytest.mark.few(9)
@pytest.mark.parametrize(("target", "dtype"), covering(TARGETS, ANY, strength=1))
def test_movement(target: str, dtype: torch.dtype) -> None:
    x = block(dtype, 3, 4, 5)
    number = x[0, 0, 1]
    same(target, primitive("broadcast", x, shape=(2, 3, 4, 5), dims=(1, 2, 3)), x)
    same(target, primitive("broadcast", x[:1], shape=(6, 4, 5), dims=(0, 1, 2)), x[:1])
    same(target, primitive("broadcast", number, shape=(2, 3), dims=()), number)
    same(target, primitive("reshape", x, shape=(12, 5)), x)
    same(target, primitive("reshape", x[:1, :1, :1], shape=()), x[:1, :1, :1])
    same(target, primitive("transpose", x, permutation=(2, 0, 1)), x)
    same(target, primitive("reverse", x, dims=(0, 2)), x)
    same(target, primitive("slice", x, start=(1, 0, 1), limit=(3, 4, 5), stride=(1, 3, 2)), x)
    same(target, primitive("concat", x, x[1:], dim=0), x, x[1:])
    same(target, primitive("concat", x, dim=1), x)
    same(target, primitive("pad", x, number, low=(1, 0, 2), high=(0, 0, 3)), x, number)
    same(target, primitive("select", x != x.flip(0), x, x.flip(0)), x != x.flip(0), x, x.flip(0))


@pytest.mark.parametrize(("target", "dtype"), covering(TARGETS, ANY, strength=1))
def test_without_elements(target: str, dtype: torch.dtype) -> None:
    x = block(dtype, 3, 4, 5)
    none, number = x[:0], x[0, 0, 1]
    same(target, primitive("concat", none, x, dim=0), none, x)
    same(target, primitive("concat", none, none, dim=0), none, none)
    same(target, primitive("pad", none, number, low=(1, 0, 2), high=(0, 0, 3)), none, number)
    same(target, primitive("reshape", none, shape=(0, 7)), none)
    same(target, primitive("slice", x, start=(0, 1, 0), limit=(3, 1, 5), stride=(1, 1, 1)), x)
    same(target, primitive("reduce", none, kind="and" if dtype is torch.bool else "prod", dims=(0,)), none)
    if dtype is not torch.bool:
        same(target, primitive("contract", none, none, a_batch=(), b_batch=(), a_sum=(0,), b_sum=(0,)), none, none)


@pytest.mark.parametrize(("target", "dtype"), covering(TARGETS, ANY, strength=1))
def test_creation(target: str, dtype: torch.dtype) -> None:
    kind = BY_NAME[str(dtype)[6:]]
    if not (dtype is torch.bool or dtype.is_complex):
        same(target, primitive("iota", size=7, dtype=kind))
        same(target, primitive("iota", size=0, dtype=kind))
        same(target, primitive("iota", size=127, dtype=kind))
    for value, shape in (((1, 0, 1), (3,)), ((1, 0, 1, 1), (2, 2)), (1, (2, 2)), (0, ()), (0, (2, 0))):
        same(target, primitive("constant", value=value, shape=shape, dtype=kind))
    if dtype.is_complex:
        same(target, primitive("constant", value=complex(1.5, -math.inf), shape=(2,), dtype=kind))
        same(target, primitive("constant", value=(complex(-0.0, math.nan), 2j), shape=(2,), dtype=kind))


EXACT = (
    "neg", "abs", "sign", "ceil", "floor", "round", "not", "and", "or", "xor", "add", "sub", "mul", "div", "max", "min",
    "shift_left", "shift_right", "eq", "ne", "lt", "le", "gt", "ge", "copysign", "rem",
)  # fmt: skip


@pytest.mark.few(19)
@pytest.mark.parametrize(("target", "name"), covering(TARGETS, EXACT, strength=1))
def test_exact(target: str, name: str) -> None:
    for dtype in ANY:
        if dtype.is_complex or str(dtype)[6:] not in RULES[f"flat.{name}"].dtypes:
            continue
        x, y = pairs(dtype)
        if name in ("div", "rem") and not dtype.is_floating_point:
            fine = (y != 0) & ~((y == -1) & (x == torch.iinfo(dtype).min))  # the processor traps in eager
            x, y = x[fine], y[fine]
        operands = (x,) if PRIMITIVES[f"flat.{name}"].arity == 1 else (x, y)
        if takes(primitive(name, *operands).ops[0]) is None:
            same(target, primitive(name, *operands), *operands)


@both
def test_casts(target: str) -> None:
    for source in ANY:
        x = block(source, 40)
        for to in ANY:
            program = primitive("cast", x, dtype=BY_NAME[str(to)[6:]])
            if takes(program.ops[0]) is None:
                y = x
                if (source.is_floating_point or source.is_complex) and not (to.is_floating_point or to.is_complex):
                    info = torch.iinfo(to) if to is not torch.bool else None
                    real = x.real if x.is_complex() else x
                    if info:  # out of range it is up to the target
                        y = torch.where((real.double() > float(info.min)) & (real.double() < float(info.max) - 1), x, 1)
                    y = y.to(source)
                same(target, program, y)


FUNCTIONS = sorted(
    name.removeprefix("flat.")
    for name, rule in RULES.items()
    if "float32" in rule.dtypes and PRIMITIVES[name].elementwise and name.removeprefix("flat.") not in EXACT
    and name not in ("flat.select", "flat.cast", "flat.bitcast", "flat.complex", "flat.clamp")
)  # fmt: skip
# What the interpreter leaves to C++'s library, in ULP; a formula of ours has its own bound.
BOUND = 5.0


@pytest.mark.parametrize(("target", "name"), covering(TARGETS, FUNCTIONS, strength=1))
def test_functions(target: str, name: str) -> None:
    for dtype in (torch.float32, torch.float64):
        if str(dtype)[6:] not in RULES[f"flat.{name}"].dtypes:
            continue
        x, y = pairs(dtype)
        if name == "lgamma" and dtype is torch.float64:  # below 0 it is a difference of logarithms
            x = x[~(x < 0)]
        if name == "sigmoid":  # 1 / (1 + inf) is 0, where the number is subnormal
            x = x[(x > -80) | x.isnan()]
        operands = (x[: len(FLOATS)],) if PRIMITIVES[f"flat.{name}"].arity == 1 else (x, y)
        program = primitive(name, *operands)
        (got,) = run(TARGETS[target], program, operands)
        if dtype is torch.float32:
            (want,) = evaluate_graph(primitive(name, *(v.double() for v in operands)), [v.double() for v in operands])
        else:
            (want,) = evaluate_graph(program, operands)
        error = ulp_error(got, want.double())
        bound = max(BOUND, BOUNDS.get((name, str(dtype)[6:]), 0.0))
        assert error.max() <= bound, (dtype, operands[0][error.argmax()], got[error.argmax()], error.max())


@pytest.mark.parametrize(("target", "dtype"), covering(TARGETS, (torch.complex64, torch.complex128), strength=1))
def test_complex(target: str, dtype: torch.dtype) -> None:
    parts = torch.tensor([0.0, -0.0, 1.0, -2.5, 0.3, 20.0, math.inf, math.nan], dtype=torch.float64)
    a, b = torch.meshgrid(parts, parts, indexing="ij")
    x = torch.complex(a.flatten(), b.flatten()).to(dtype)
    for name in ("real", "imag", "abs", "neg"):
        same(target, primitive(name, x), x)
    for name in ("eq", "ne"):
        same(target, primitive(name, x, x.flip(0)), x, x.flip(0))
    finite = x[x.isfinite() & (x != 0)]
    for name in ("add", "sub"):
        same(target, primitive(name, finite, finite.flip(0)), finite, finite.flip(0))
    for name in ("mul", "div", "pow", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "tan", "expm1", "log1p"):
        if name == "log1p":  # the interpreter adds 1 + 0i, and so loses the side of the cut that -0 stands for
            finite = torch.where(finite.imag == 0, finite.real.to(dtype), finite)
        operands = (finite,) if PRIMITIVES[f"flat.{name}"].arity == 1 else (finite, finite.flip(0))
        program = primitive(name, *operands)
        if takes(program.ops[0]) is None:
            (got,), (want,) = run(TARGETS[target], program, operands), evaluate_graph(program, operands)
            tolerance = 1e-5 if dtype is torch.complex64 else 1e-13
            torch.testing.assert_close(
                got, want, rtol=tolerance, atol=tolerance, msg=lambda m, name=name: f"{name}: {m}"
            )


@pytest.mark.few(6)
@pytest.mark.parametrize(("target", "dtype"), covering(TARGETS, ANY, strength=1))
def test_reductions(target: str, dtype: torch.dtype) -> None:
    x = block(dtype, 3, 4, 5)
    kinds = (
        ("and", "or") if dtype is torch.bool else ("sum", "prod") if dtype.is_complex else ("sum", "prod", "max", "min")
    )
    for kind in kinds:
        y = x if kind not in ("sum", "prod") or not (dtype.is_floating_point or dtype.is_complex) else _small(x)
        for dims in ((0,), (1, 2), (0, 1, 2), ()):
            same(target, primitive("reduce", y, kind=kind, dims=dims), y)
    if not (dtype is torch.bool or dtype.is_complex):
        for kind in ("argmax", "argmin"):
            for dim in range(3):
                same(target, primitive("arg_reduce", x, kind=kind, dim=dim), x)


def _small(x: torch.Tensor) -> torch.Tensor:
    """Return small powers of two, whose sums and products are exact."""
    return torch.pow(2.0, torch.arange(x.numel()) % 3 - 1).reshape(x.shape).to(x.dtype)


@pytest.mark.parametrize(("target", "dtype"), covering(TARGETS, ANY[1:], strength=1))
def test_contraction(target: str, dtype: torch.dtype) -> None:
    x, y = _small(torch.empty(2, 3, 4, dtype=dtype)), _small(torch.empty(4, 2, 5, dtype=dtype))
    same(target, primitive("contract", x, y, a_batch=(0,), b_batch=(1,), a_sum=(2,), b_sum=(0,)), x, y)
    same(target, primitive("contract", x, y, a_batch=(), b_batch=(), a_sum=(0, 2), b_sum=(1, 0)), x, y)
    same(target, primitive("contract", x, y, a_batch=(), b_batch=(), a_sum=(), b_sum=()), x, y)


@pytest.mark.few(9)
@pytest.mark.parametrize(("target", "dtype"), covering(TARGETS, ANY, strength=1))
def test_indexing(target: str, dtype: torch.dtype) -> None:
    x = block(dtype, 4, 3, 5)
    i, j = torch.tensor([[0, 9, -3], [2, 2, 1]]), torch.tensor([[4, 0, 1], [2, 2, -1]])
    same(target, primitive("gather", x, i, dims=(0,)), x, i)
    same(target, primitive("gather", x, i, dims=(1,)), x, i)
    same(target, primitive("gather", x, i, j, dims=(0, 2)), x, i, j)
    same(
        target,
        primitive("scatter", x, block(dtype, 2, 3, 3, 5), i, dims=(0,), kind="set"),
        x,
        block(dtype, 2, 3, 3, 5),
        i,
    )
    update = block(dtype, 2, 3, 3).flip(2)
    same(target, primitive("scatter", x, update, i, j, dims=(0, 2), kind="set"), x, update, i, j)
    for kind in ("add", "mul") if dtype.is_complex else ("add", "mul", "max", "min"):
        program = primitive("scatter", x, update, i, j, dims=(0, 2), kind=kind) if dtype is not torch.bool else None
        if program is not None and takes(program.ops[0]) is None:
            a, b = (x, update) if not (dtype.is_floating_point or dtype.is_complex) else (_small(x), _small(update))
            same(target, program, a, b, i, j)


@pytest.mark.few(7)
@pytest.mark.parametrize(("target", "dtype"), covering(TARGETS, [d for d in ANY if not d.is_complex], strength=1))
def test_sort(target: str, dtype: torch.dtype) -> None:
    x = block(dtype, 3, 7, 5)
    for dim in range(3):
        for descending in (False, True):
            same(target, primitive("sort", x, dim=dim, descending=descending), x)
    same(target, primitive("sort", x[:, :1], dim=1, descending=False), x[:, :1])


@pytest.mark.few(3)
@pytest.mark.parametrize(("target", "channels", "space"), covering(TARGETS, ("first", "last"), (1, 2, 3)))
def test_windows(target: str, channels: str, space: int) -> None:
    for dtype in (torch.float32, torch.float64):
        _windows(target, channels, space, dtype)


def _windows(target: str, channels: str, space: int, dtype: torch.dtype) -> None:
    sizes = (7, 6, 5)[:space]
    order = lambda outer, inner: (outer, inner, *sizes) if channels == "first" else (outer, *sizes, inner)  # noqa: E731
    x = block(dtype, *order(2, 4))
    kernel, stride, low, high, dilation = ((3, 2, 3), (2, 1, 2), (1, 0, 1), (1, 1, 0), (1, 2, 1))
    window = {"stride": stride[:space], "low": low[:space], "high": high[:space], "channels": channels}
    pool = {"kernel": kernel[:space], **window}
    same(target, primitive("max_pool", x, dilation=dilation[:space], **pool), x)
    small = _small(x)
    same(target, primitive("average_pool", small, **pool), small)
    for groups in (1, 2, 4):
        shape = (8, 4 // groups, *kernel[:space]) if channels == "first" else (8, *kernel[:space], 4 // groups)
        weight, bias = _small(torch.empty(shape, dtype=dtype)), _small(torch.empty(8, dtype=dtype))
        conv = {"dilation": dilation[:space], "groups": groups, **window}
        same(target, primitive("convolution", small, weight, bias, **conv), small, weight, bias)
        same(target, primitive("convolution", small, weight, **conv), small, weight)


@both
def test_clamp(target: str) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        x = special(dtype)
        for low, high in ((-1.0, 1.0), (-math.inf, 2.5), (0.5, math.inf)):
            same(target, primitive("clamp", x, low=low, high=high), x)
    assert takes(primitive("clamp", x, low=0.0, high=6.0).ops[0]), "a zero would lose its sign"

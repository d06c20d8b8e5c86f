"""Every elementwise primitive on every dtype it takes, at special values, against its evaluator in float64."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import torch

from torchstone.compiler.diagnostics import VerifyError
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dtypes import DType
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.lowering.linalg import TARGET
from torchstone.compiler.ops import PRIMITIVES
from torchstone.compiler.runtime.cpu import jit

from .harness import evaluate, of, primitive, run, special, ulps

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support")

# Composites reach the target as their bodies.
NAMES = [
    p.name for p in PRIMITIVES.values()
    if p.elementwise and not p.attributes and not p.composite and p.name != "select"
]  # fmt: skip
# lgamma and the inverse hyperbolic functions of glibc are the least accurate ones.
MAX_ULPS = 4
# Eager's complex operators are wrong at infinities (inf * (1 + 0i) is NaN in its `add`), and unequal between its own
# dtypes: these primitives are compared at finite values.
FINITE_COMPLEX = {"add", "sub", "log1p", "div", "mul", "pow", "expm1"}

# Eager has next to no kernel for 64 unsigned bits: Python's integers, wrapped, say what is right.
UINT64: dict[str, Callable[..., int]] = {
    "neg": operator.neg,
    "abs": abs,
    "sign": bool,
    "not": operator.invert,
    "add": operator.add,
    "sub": operator.sub,
    "div": operator.floordiv,
    "rem": operator.mod,
    "max": max,
    "min": min,
    "shift_left": lambda a, b: a << b if b < 64 else 0,
    "shift_right": lambda a, b: a >> b if b < 64 else 0,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def in_python(name: str, tensors: list[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    rows = zip(*(t.tolist() for t in tensors), strict=True)
    return torch.tensor([UINT64[name](*row) % 2**64 for row in rows], dtype=dtype)


def operands(name: str, dtype: DType) -> list[torch.Tensor]:
    """Return every combination of the special values, without the one division that kills the process in eager."""
    x = special(dtype)
    if dtype.is_complex and name in FINITE_COMPLEX:
        x = x[x.isfinite()]
    grid = torch.meshgrid(*[x] * (PRIMITIVES[f"flat.{name}"].arity or 1), indexing="ij")
    tensors = [t.reshape(-1).contiguous() for t in grid]
    if name in ("div", "rem") and dtype.is_int:
        keep = tensors[1] != 0
        if dtype.is_signed:
            keep &= (tensors[0] != torch.iinfo(x.dtype).min) | (tensors[1] != -1)
        tensors = [t[keep] for t in tensors]
    return tensors


def high(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in the widest dtype of its class; integers in int64, which eager's every operator takes."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    if tensor.dtype.is_floating_point:
        return tensor.to(torch.float64)
    return tensor.to(torch.int64) if tensor.dtype in (torch.uint16, torch.uint32) else tensor


def verified() -> list[tuple[str, DType, str | None]]:
    """Return each primitive on each dtype that it takes, with the reason why the target does not lower it."""
    found = []
    for name in NAMES:
        for dtype in dt.DTYPES:
            types = [TensorType((1,), dtype)] * (PRIMITIVES[f"flat.{name}"].arity or 1)
            try:
                op = primitive(name, *types).ops[0]
            except VerifyError:
                continue
            found.append((name, dtype, TARGET.takes(op)))
    return found


def combinations() -> list[tuple[str, DType]]:
    return [(name, dtype) for name, dtype, reason in verified() if reason is None]


def test_all_but_float8_is_lowered() -> None:
    refused = {(name, dtype) for name, dtype, reason in verified() if reason is not None}
    assert {dtype for _, dtype in refused} == {d for d in dt.DTYPES if d.is_float and d.bits == 8}
    assert len(combinations()) > 400


@pytest.mark.few(96)
@pytest.mark.parametrize(("name", "dtype"), combinations(), ids=lambda v: str(v))
def test_values(name: str, dtype: DType) -> None:
    tensors = operands(name, dtype)
    graph = primitive(name, *map(of, tensors))
    (got,) = run(graph, tensors)
    if dtype == dt.uint64 and name in UINT64:
        want = in_python(name, tensors, got.dtype)
    else:
        (want,) = evaluate(graph, [high(t) for t in tensors])
    if got.dtype.is_floating_point and got.itemsize == 1:
        want = want.to(got.dtype).to(torch.float64)  # without an infinity, NaN lies beyond the range
    want_dtype = graph.ops[0].result.dtype.name
    assert str(got.dtype) == f"torch.{want_dtype}"
    if got.dtype.is_floating_point or got.is_complex():
        parts = torch.view_as_real(got) if got.is_complex() else got
        expected = torch.view_as_real(want) if want.is_complex() else want
        distance = ulps(parts, expected, parts.dtype)
        if got.is_complex():
            # Of a sum that cancels, only the distance relative to the whole number means something.
            info = torch.finfo(parts.dtype)
            whole = (got.to(torch.complex128) - want).abs() / want.abs().clamp(min=info.tiny) / info.eps
            distance = torch.where(whole.isfinite(), whole, distance.amax(-1))
        distance = distance.reshape(len(want), -1).amax(1)
        worst = distance.argmax()
        at = [t[worst].item() for t in tensors]
        assert distance.max() <= MAX_ULPS, f"{name}({at}): {got[worst]}, expected {want[worst]}"
    else:
        assert torch.equal(got, want.to(got.dtype))


def test_the_logarithm_of_a_complex_number_whose_modulus_overflows_is_finite() -> None:
    """log |1 + z| of parts that are both the largest number is log(max) + log(2) / 2, about 710.13."""
    z = torch.complex(*torch.full((2, 3), torch.finfo(torch.float64).max, dtype=torch.float64))
    for name in ("log", "log1p"):
        (got,) = run(primitive(name, of(z)), [z])
        assert torch.allclose(got, torch.full_like(got, complex(710.1292864836639, 0.7853981633974483)), rtol=1e-14)


@pytest.mark.parametrize("name", ["div", "rem"])
@pytest.mark.parametrize("dtype", [dt.int8, dt.int32, dt.int64, dt.uint8, dt.uint64], ids=str)
def test_no_integer_division_traps(name: str, dtype: DType) -> None:
    x = special(dtype)
    a, b = (t.reshape(-1).contiguous() for t in torch.meshgrid(x, x, indexing="ij"))
    (got,) = run(primitive(name, of(a), of(b)), [a, b])
    if dtype.is_signed:
        smallest = torch.iinfo(a.dtype).min
        at = (a == smallest) & (b == -1)
        assert got[at].tolist() == [smallest if name == "div" else 0]


@pytest.mark.parametrize("dtype", dt.DTYPES, ids=str)
def test_select(dtype: DType) -> None:
    if dtype.is_float and dtype.bits == 8:
        x = torch.arange(256, dtype=torch.uint8).view(getattr(torch, dtype.name))
    else:
        x = special(dtype)
    y = torch.zeros(x.shape, dtype=x.dtype)
    predicate = torch.arange(len(x)) % 3 == 0
    (got,) = run(primitive("select", of(predicate), of(x), of(y)), [predicate, x, y])
    for i in range(len(x)):
        want = (x if predicate[i] else y)[i : i + 1].contiguous()
        as_bytes = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}[x.element_size()]
        assert torch.equal(got[i : i + 1].contiguous().view(as_bytes), want.view(as_bytes)) or want.isnan().any()


AT_BOTH_LEVELS = [
    (name, dtype)
    for name, dtype in combinations()
    if name in ("exp", "pow", "tanh", "div", "max", "shift_right", "eq", "not")
    and dtype in (dt.boolean, dt.uint8, dt.int64, dt.bfloat16, dt.float16, dt.float32)
]


@pytest.mark.few(27)
@pytest.mark.parametrize(("name", "dtype"), AT_BOTH_LEVELS, ids=str)
def test_optimized_code_computes_the_same(name: str, dtype: DType, monkeypatch: pytest.MonkeyPatch) -> None:
    # More than one vector of each value, so that the vectorized loop and its remainder both run.
    tensors = [t.repeat(5) for t in operands(name, dtype)]
    graph = primitive(name, *map(of, tensors))
    (small,) = run(graph, tensors)
    monkeypatch.setattr(jit, "SMALL_WORK", -1)
    (large,) = run(graph, tensors)
    torch.testing.assert_close(large, small, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["add", "copysign"])
@pytest.mark.parametrize("float8", [d for d in dt.DTYPES if d.is_float and d.bits == 8], ids=str)
def test_what_is_not_lowered_says_why(name: str, float8: DType) -> None:
    # Not every float8 has a sign bit and a zero of either sign; eager computes neither op on any, but a product.
    types = [TensorType((2,), float8)] * 2
    reason = TARGET.takes(primitive(name, *types).ops[0])
    assert reason == f"flat.{name} on {float8}: no rule for the linalg target"

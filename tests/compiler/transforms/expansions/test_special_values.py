"""Elementwise ops on the values that tell formulas apart: zeros of both signs, infinities, NaN, extremes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchstone.compiler.driver import compile
from torchstone.compiler.transforms.expansions import EXPANSIONS

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

# Eager itself warns about half-precision complex numbers and resized results.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
UNARY = {op.name: op for op in op_db if isinstance(op, UnaryUfuncInfo) and not op.variant_test_name}
BINARY = {op.name: op for op in op_db if isinstance(op, BinaryUfuncInfo) and not op.variant_test_name}
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8, torch.bool)
# Where the kernels of eager are no reference: their fmod is NaN where the quotient is huge, and their incomplete gamma
# functions at the largest numbers.
INEXACT_IN_EAGER = {"fmod", "remainder", "floor_divide", "__rmod__", "igamma", "igammac"}
BOUNDED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "clamp to 0": lambda x: x.clamp(0, 1),
    "clamp to -0": lambda x: x.clamp(-0.0, 1),
    "clamp up to -0": lambda x: x.clamp(max=-0.0),
    "clamp up to 0": lambda x: x.clamp_max(0),
    "clamp of bounds that cross": lambda x: x.clamp(3, 1),
    "clamp to NaN": lambda x: x.clamp(math.nan, 1),
    "relu6": torch.nn.functional.relu6,
    "hardtanh": lambda x: torch.nn.functional.hardtanh(x, -1.0, 0.0),
}


def values(dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.tensor([True, False])
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        # Not the minimum: eager itself traps on dividing it by -1.
        return torch.tensor(
            sorted({0, 1, 2, 3, 7, 31, 100, info.max, info.max - 1, max(info.min + 1, -7)}), dtype=dtype
        )
    info = torch.finfo(dtype)
    numbers = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        2.5,
        -3.0,
        0.3,
        7.0,
        -20.5,
        88.0,
        math.inf,
        -math.inf,
        math.nan,
        info.eps,
    ]
    return torch.tensor([*numbers, info.max, -info.max, info.tiny], dtype=dtype)


def _has_rule(name: str) -> bool:
    return any(op.split(".")[1] == name.rpartition(".")[2].strip("_") for op in EXPANSIONS)


def _agrees_where_eager_runs(agrees: Callable[..., None], fn: Callable[..., Any], *args: Any) -> None:
    try:
        fn(*args)
    except (RuntimeError, NotImplementedError, TypeError):
        return  # eager has no kernel, or refuses these values
    agrees(fn, *args)


@pytest.mark.few(29)
@pytest.mark.parametrize("name", [n for n in UNARY if _has_rule(n)])
def test_unary(name: str, agrees: Callable[..., None]) -> None:
    op = UNARY[name]
    for dtype in DTYPES:
        if dtype in op.dtypes:
            _agrees_where_eager_runs(agrees, lambda x: op.op(x), values(dtype))


@pytest.mark.few(3)
@pytest.mark.parametrize("name", [n for n in BINARY if _has_rule(n)])
def test_binary(name: str, agrees: Callable[..., None]) -> None:
    op = BINARY[name]
    for dtype in DTYPES:
        if dtype not in op.dtypes:
            continue
        x = values(dtype)
        if name in INEXACT_IN_EAGER and dtype.is_floating_point:
            x = x[(x.abs() < 1e4) & ((x == 0) | (x.abs() > 1e-2)) | x.isinf() | x.isnan()]
        nonzero = x[x != 0]
        for left, right in ((x, x), (x, nonzero), (nonzero, x)):
            _agrees_where_eager_runs(agrees, lambda a, b: op.op(a, b), left[:, None], right[None])
        for other in (torch.tensor([3, -2, 100], dtype=torch.int32), torch.tensor([0.5, math.inf, math.nan])):
            _agrees_where_eager_runs(agrees, lambda a, b: op.op(a, b), nonzero[:, None], other)
            _agrees_where_eager_runs(agrees, lambda a, b: op.op(a, b), nonzero, other[0])
        for number in (2, -3, 0.25, True):
            _agrees_where_eager_runs(agrees, lambda a, n=number: op.op(a, n), nonzero)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", BOUNDED)
def test_zeros_keep_their_signs(name: str, dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, -0.0, 1.0, -2.0, math.nan, math.inf, -math.inf, 0.5, 7.0], dtype=dtype).repeat(5)
    for target in ("evaluator", "linalg"):
        got, expected = compile(BOUNDED[name], (x,), target=target)(x), BOUNDED[name](x)
        torch.testing.assert_close(got, expected, equal_nan=True)
        assert torch.equal(got.signbit() & (got == 0), expected.signbit() & (expected == 0))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf], ids=str)
def test_a_number_that_is_none_of_the_dtype_is_converted(number: float) -> None:
    """To integers, of which PyTorch leaves open what they are, and to dtypes that have it."""
    for dtype in (torch.int64, torch.uint8, torch.bool, torch.float16, torch.complex64):
        x = torch.zeros(2, dtype=dtype)
        found = compile(lambda x: x.clone().copy_(number), (x,))(x)
        assert (found.shape, found.dtype) == (x.shape, dtype)
        if dtype not in (torch.int64, torch.uint8):
            torch.testing.assert_close(found, x.clone().copy_(number), equal_nan=True)

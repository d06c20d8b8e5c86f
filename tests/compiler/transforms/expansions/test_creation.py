"""Tensors made from nothing: ranges between bounds known at run time, uninitialized memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.driver import compile

Agrees = Callable[..., None]
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.complex64)


@pytest.mark.few(25)
@pytest.mark.parametrize("steps", [0, 1, 2, 5, 50, 101])
@pytest.mark.parametrize("dtype", DTYPES)
def test_steps_between_tensors(agrees: Agrees, dtype: torch.dtype, steps: int) -> None:
    bounds = (torch.tensor(3.5), torch.tensor(37))
    agrees(lambda low, high: torch.linspace(low, high, steps, dtype=dtype), *bounds)
    agrees(lambda low: torch.linspace(low, 9.25, steps, dtype=dtype), bounds[0])
    agrees(lambda high: torch.linspace(2, high, steps, dtype=dtype), bounds[1])
    agrees(lambda low: torch.logspace(low, 1.5, steps, base=3, dtype=dtype), torch.tensor(0.5))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.int16])
def test_one_step_is_a_power_of_the_bound_as_it_is_given(agrees: Agrees, dtype: torch.dtype) -> None:
    agrees(lambda low: torch.logspace(low, 9.0, 1, dtype=dtype), torch.tensor(3.0055))
    agrees(lambda high: torch.logspace(3.0055, high, 1, dtype=dtype), torch.tensor(9.0))


@pytest.mark.parametrize("dtype", [torch.bool, torch.float8_e5m2, torch.float32], ids=str)
def test_no_steps_in_a_dtype_without_powers(dtype: torch.dtype) -> None:
    low = torch.tensor(-3.0)
    compiled = compile(lambda low: torch.logspace(low, 1.0, 0, dtype=dtype), (low,))
    assert compiled(low).shape == (0,) and compiled(low).dtype == dtype


@pytest.mark.parametrize("steps", [50, 101, 77])
def test_integer_steps_are_truncated_where_eager_truncates(agrees: Agrees, steps: int) -> None:
    for low, high in ((-3, 17), (0, 100), (17, -3), (-(2**31), 2**31)):
        agrees(lambda low=low, high=high: torch.linspace(low, high, steps, dtype=torch.int64))
        bounds = torch.tensor(low), torch.tensor(high)
        agrees(lambda low, high: torch.linspace(low, high, steps, dtype=torch.int64), *bounds)


def test_uninitialized_memory_has_its_shape_and_dtype_and_takes_what_is_written() -> None:
    x = torch.ones(2, 3, dtype=torch.float64)
    for fn in (
        lambda x: torch.empty(3, 2, dtype=torch.int8),
        torch.empty_like,
        lambda x: x.new_empty((0, 4)),
        lambda x: torch.empty_strided((2, 3), (1, 2), dtype=torch.bool),
        lambda x: torch.empty_strided((1,), (4,)),
        lambda x: x.new_empty_strided((2, 3), (1, 2)),
        lambda x: torch.empty_permuted((2, 3), (1, 0)),
    ):
        got, eager = compile(fn, (x,), target="evaluator")(x), fn(x)
        assert (got.shape, got.dtype) == (eager.shape, eager.dtype)
    assert compile(lambda x: torch.empty_like(x).copy_(x), (x,), target="evaluator")(x).equal(x)


def test_resize_keeps_no_element_whose_place_it_does_not_know() -> None:
    x = torch.arange(6.0)
    same = compile(lambda x: torch.ops.aten.resize(x, [6]), (x,), target="evaluator")
    assert same(x).equal(x)
    grown = compile(lambda x: torch.ops.aten.resize(x, [2, 3]), (x[:0],), target="evaluator")
    assert grown(x[:0]).shape == (2, 3)
    with pytest.raises(Unsupported, match="memory layout"):
        compile(lambda x: torch.ops.aten.resize(x, [2, 3]), (x,), target="evaluator")


@pytest.mark.parametrize("base", [-0.5, -2.0, -1.0, 0.0, -0.0, 1.0, 2.5, float("inf"), -float("inf"), float("nan")])
def test_powers_of_any_base(base: float) -> None:
    for start, end, steps in ((1, -3, 7), (0, 3, 4), (0.0, 3.0, 7), (-3, 400, 5)):
        program = lambda start=start, end=end, steps=steps: torch.logspace(start, end, steps, base)  # noqa: E731
        torch.testing.assert_close(compile(program, ())(), program(), rtol=1e-5, atol=0, equal_nan=True)


@pytest.mark.parametrize("op", [torch.linspace, torch.logspace])
@pytest.mark.parametrize("end", [math.nan, math.inf, 1e9])
def test_the_end_of_a_single_step_is_not_looked_at(agrees: Agrees, op: Any, end: float) -> None:
    agrees(lambda: op(2.0, end, 1, dtype=torch.uint8))
    agrees(lambda: op(math.nan, end, 0, dtype=torch.float32))

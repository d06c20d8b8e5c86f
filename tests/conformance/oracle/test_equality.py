"""Comparisons in which NaN is a value: what each of them takes for the same."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.conformance.oracle.test_compare import X, compare, one
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.equality import close, equal, equal_tensors, same_bits, same_numbers, same_values

ROW = torch.tensor([1.0, math.nan, 0.0, math.inf])
FLOATS = st.lists(st.sampled_from([0.0, -0.0, 1.0, -1.5, math.nan, -math.nan, math.inf]), min_size=1, max_size=4)


def changed(at: int, value: float) -> Tensor:
    row = ROW.clone()
    row[at] = value
    return row


def test_nan_is_a_value_and_zeros_are_equal_but_in_their_bits() -> None:
    assert same_values(ROW, ROW.clone()).all() and same_numbers(ROW, ROW.clone()).all()
    for other in (changed(1, -math.nan), changed(2, -0.0)):
        assert equal_tensors(ROW, other) and not same_bits(ROW, other)
    assert same_values(ROW, changed(1, 2.0)).tolist() == [True, False, True, True]
    assert not equal_tensors(ROW, changed(3, -math.inf))


@given(numbers=FLOATS, others=FLOATS, dtype=st.sampled_from([torch.float16, torch.float32, torch.float64]))
def test_the_comparisons_are_ordered_by_strictness(
    numbers: list[float], others: list[float], dtype: torch.dtype
) -> None:
    left, right = torch.tensor(numbers, dtype=dtype), torch.tensor(others, dtype=dtype)
    assert same_bits(left, left.clone()) and equal(left, left.clone())
    assert not same_bits(left, right) or equal_tensors(left, right)
    assert equal_tensors(left, right) == equal_tensors(right, left) == equal(left, right)
    if left.shape == right.shape:
        assert equal_tensors(left, right) == bool(same_numbers(left, right).all())
        assert not equal_tensors(left, right) or close(left, right, 0.0, 0.0)


@pytest.mark.parametrize(
    "other", [ROW.double(), ROW[:3], ROW.reshape(2, 2), None, "text"], ids=["dtype", "length", "shape", "none", "text"]
)
def test_another_dtype_shape_or_kind_is_another_value(other: object) -> None:
    assert not equal(ROW, other)


def test_numbers_of_python_and_layouts() -> None:
    assert equal(math.nan, math.nan) and equal("a", "a") and equal(None, None)
    assert not equal(1, 1.0) and not equal(True, 1)
    sparse = torch.eye(3).to_sparse()
    assert equal_tensors(sparse, torch.eye(3)) and equal(sparse, torch.eye(3).to_sparse())
    assert same_bits(torch.zeros(0), torch.zeros(0)) and not same_bits(torch.zeros(0), torch.zeros(0, 1))


def test_complex_numbers_that_are_not_finite() -> None:
    one, other = (torch.tensor([complex(math.inf, part)]) for part in (math.nan, 3.0))
    assert same_numbers(one, other).all() and not same_values(one, other).any()
    assert not same_numbers(torch.tensor([complex(math.nan, 0)]), torch.tensor([1j])).any()


@pytest.mark.parametrize(("off", "right"), [(1e-4, True), (0.1, False)])
def test_beside_a_nan_the_other_part_of_a_complex_number_has_its_own_room(off: float, right: bool) -> None:
    """The real parts cancel, so that the order of the terms shows; of the imaginary ones one is NaN."""
    real = torch.cat([torch.linspace(-3, 3, 400) ** 3, torch.full((1,), 1e-4)])
    x = torch.complex(real, torch.where(torch.arange(401) == 7, float("nan"), 1.0))
    scan = torch.complex(real.double().cumsum(0).float(), x.imag.cumsum(0))
    wrong = torch.complex(torch.full((401,), off).where(torch.arange(401) == 400, 0.0), torch.zeros(401))
    finding = compare(one("cumsum", X, 0), lambda x: scan + wrong, x)
    assert (finding.outcome is not Outcome.MISMATCH) is right, finding


@pytest.mark.parametrize(("off", "right"), [(1e-12, True), (-1e-12, True), (1e-9, False)])
def test_beside_an_infinity_a_sum_has_the_room_of_its_order(off: float, right: bool) -> None:
    x = torch.tensor([complex(part, math.inf) for part in (-5.827, -1.605, -2.972)] * 40, dtype=torch.complex128)
    finding = compare(one("sum", X), lambda x: x.sum() + off, x)
    assert (finding.outcome is not Outcome.MISMATCH) is right, finding

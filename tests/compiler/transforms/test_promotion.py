"""Type promotion against PyTorch's own."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from torchstone.compiler.capture.trace.aten_literals import TO_TORCH
from torchstone.compiler.ir import DType, TensorType, Value
from torchstone.compiler.ir.dtypes import BY_NAME
from torchstone.compiler.transforms.promotion import promote, result_type

NAMES = (
    "bool", "uint8", "uint16", "int8", "int16", "int32", "int64", "float8_e5m2", "float16", "bfloat16", "float32",
    "float64", "complex64", "complex128",
)  # fmt: skip
DTYPES = [BY_NAME[name] for name in NAMES]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@pytest.mark.parametrize("a", DTYPES, ids=str)
def test_promote(a: DType) -> None:
    for b in DTYPES:
        try:
            expected = _name(torch.promote_types(TO_TORCH[a], TO_TORCH[b]))
        except RuntimeError:
            continue  # what PyTorch refuses never reaches an expansion
        assert promote(a, b).name == expected, b


def test_promote_refuses_what_pytorch_refuses() -> None:
    for a, b in (("float8_e5m2", "float32"), ("uint16", "int32"), ("uint16", "bool")):
        with pytest.raises(ValueError, match="does not promote"):
            promote(BY_NAME[a], BY_NAME[b])


@pytest.mark.parametrize("a", DTYPES, ids=str)
def test_result_type(a: DType) -> None:
    for b, (rank_a, rank_b) in itertools.product(DTYPES, itertools.product((0, 1), (0, 1))):
        pair = (torch.empty([2] * rank_a, dtype=TO_TORCH[a]), torch.empty([2] * rank_b, dtype=TO_TORCH[b]))
        try:
            expected = _name(torch.result_type(*pair))
        except RuntimeError:
            continue
        values = Value(TensorType((2,) * rank_a, a)), Value(TensorType((2,) * rank_b, b))
        assert result_type(*values).name == expected, (b, rank_a, rank_b)


@pytest.mark.parametrize("number", [True, 1, 1.5, 1j])
def test_result_type_with_a_number(number: Any) -> None:
    for dtype, rank in itertools.product(DTYPES, (0, 1)):
        try:
            expected = _name(torch.result_type(torch.empty([2] * rank, dtype=TO_TORCH[dtype]), number))
        except RuntimeError:
            continue
        assert result_type(Value(TensorType((2,) * rank, dtype)), number).name == expected, (dtype, rank)

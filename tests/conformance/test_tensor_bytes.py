"""The bytes of tensors of any layout."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from torchstone.conformance.tensor_bytes import packed_bytes

ROW = torch.arange(24, dtype=torch.float32)


@pytest.mark.parametrize(
    "tensor",
    [
        ROW.reshape(4, 6),
        ROW.reshape(4, 6).t(),
        ROW.as_strided((1, 1), (2, 2), 3),
        ROW.as_strided((2, 1), (3, 7), 1),
        ROW[3],
        ROW[:0],
        ROW.expand(2, 24),
        torch._neg_view(ROW),
        torch.complex(ROW, ROW + 1).conj(),
    ],
    ids=str,
)
def test_the_bytes_are_those_of_the_elements_in_order(tensor: Tensor) -> None:
    plain = torch.tensor(tensor.tolist(), dtype=tensor.dtype)
    assert packed_bytes(tensor).numpy().tobytes() == plain.numpy().tobytes()

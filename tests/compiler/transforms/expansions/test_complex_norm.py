"""Norms: of complex numbers infinite where a part of one is, whatever its other part; of one element its size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("special", [complex(NAN, INF), complex(-INF, NAN), complex(NAN, 1), complex(INF, INF)])
def test_a_norm_with_special_numbers(agrees: Callable[..., None], special: complex) -> None:
    x = torch.tensor([[1 + 1j, special], [2j, 3 + 0j]])
    agrees(lambda x: torch.linalg.vector_norm(x, dim=1), x)
    agrees(lambda x: torch.nn.functional.normalize(x, dim=0), x)


@pytest.mark.parametrize("order", [1000.25, 3.0, 0.0, INF, NAN])
def test_the_norm_of_one_element_is_no_power_but_of_a_tensor_without_dims(
    agrees: Callable[..., None], order: float
) -> None:
    x = torch.tensor(-20.0)
    for tensor, dim in ((x, None), (x, 0), (x[None], 0), (x[None], None), (x.expand(3, 1), 1), (x.expand(3, 1), None)):
        agrees(lambda x, d=dim: torch.linalg.vector_norm(x, order, dim=d), tensor)
        agrees(lambda x, d=dim: torch.nn.functional.normalize(x, order, dim=-1 if d is None else d), tensor)

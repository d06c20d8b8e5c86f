"""The norm of complex numbers: infinite where a part of one is, whatever its other part."""

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

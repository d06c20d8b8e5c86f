"""Factorizations that fail in float64 alone: a matrix that is singular, where its float32 elimination had a last pivot.

They do not end the float64 run, as they did not end eager's. What such a factorization gives is NaN, and so is what
follows from it: LAPACK leaves numbers where it gave up. The other results of the program have their reference.

It is seen where PyTorch checks in a step of its own, after the factorization (``torch.linalg.inv``, ``solve``,
``cholesky``, ...). A kernel that checks within itself (``eigh``, ``inv_ex`` with ``check_errors``) ends the run still.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.compiler._torch.operators import schema_of


class FailedFactorizations(ComputingMode):
    """Runs what is inside it with NaN in the place of the error that a factorization ends with."""

    def __init__(self) -> None:
        super().__init__()
        self._given: dict[int, tuple[Tensor, ...]] = {}  # what a factorization gave, by the id of what says it failed

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        if func is torch.ops.aten._linalg_check_errors.default:
            info = args[0]
            _lose(info, self._given.get(id(info), ()))
            return None
        results = func(*args, **(kwargs or {}))
        if [result.name for result in schema_of(func).returns[-1:]] == ["info"]:
            self._given[id(results[-1])] = results
        return results


def _lose(info: Tensor, results: tuple[Tensor, ...]) -> None:
    """Write NaN over what a factorization gave, of each matrix that it failed for."""
    for result in results:
        if result.is_floating_point() or result.is_complex():
            failed = info.reshape(*info.shape, *[1] * (result.dim() - info.dim())) != 0
            result.masked_fill_(failed, torch.nan)

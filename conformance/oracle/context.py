"""Which leaf of the results is judged, and the same leaf in every run that can be asked about it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchstone.conformance.oracle.evidence import inexact
from torchstone.conformance.oracle.pytree import dense
from torchstone.conformance.oracle.reference.runs import Referee, Run
from torchstone.conformance.oracle.ulp import wide

NUMBERS = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
"""The dtype of the tensor that a number of the results may be read out of."""


@dataclass(frozen=True)
class Context:
    """Which leaf is judged, and who can be asked about it."""

    referee: Referee
    index: int
    targets: list[str]
    strict: bool = False
    dtype: torch.dtype | None = None
    """Of numbers that are no tensors: what they were read out of."""

    def dtype_of(self, tensor: Tensor) -> torch.dtype:
        """The dtype whose ULPs count."""
        return self.dtype or tensor.dtype

    def other(self, run: Run, like: Tensor) -> Tensor | None:
        """This leaf in another run, widened, if it is a tensor of the same shape and of the same kind of number."""
        if self.index >= len(run.leaves):
            return None
        leaf = run.leaves[self.index]
        leaf = torch.tensor(leaf, dtype=NUMBERS[type(leaf)]) if type(leaf) in NUMBERS else leaf
        if not isinstance(leaf, Tensor):
            return None
        leaf = dense(leaf)
        if leaf.shape != like.shape or leaf.dtype.is_complex != like.dtype.is_complex:
            return None
        if leaf.dtype.is_floating_point != like.dtype.is_floating_point:
            return None
        return wide(leaf) if inexact(like) else leaf

    def others(self, runs: list[Run], like: Tensor) -> list[Tensor]:
        """This leaf in other runs, where there is one like it."""
        found = [self.other(run, like) for run in runs]
        return [leaf for leaf in found if leaf is not None]

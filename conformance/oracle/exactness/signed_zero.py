"""Where the sign of a zero is part of the result: of programs whose every step gives it, on any machine.

A step that moves or picks numbers by their places keeps the sign of a zero, and neg, abs, copysign, mul and what rounds
to an integer have one sign for the operands they are given. What picks among equal numbers does not: eager's maximum of
0 and -0 is the first in its vectors and the second in its loops, or the other way round. Nor do sums, whose zeros
depend on their order, nor numbers that nobody wrote.

Over the op database, default and special, and with zeros of both signs for all inputs, eager gives the same signs in
float32 and float64, with and without gaps between the elements, for every program of such steps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.operators import base_name
from torchstone.conformance.oracle.perturbation.rounding import is_exact
from torchstone.conformance.oracle.ulp import wide

_CHOOSING = """
    _unique _unique2 adaptive_max_pool2d adaptive_max_pool3d amax amin aminmax argmax argmin clamp clamp_max clamp_min
    cummax cummin fmax fmin kthvalue max max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices maximum
    median min minimum mode nanmedian searchsorted sort topk unique_consecutive unique_dim
"""
# One place may be written to several times, in any order.
_SCATTERING = "index_copy index_put masked_scatter put scatter"
_UNWRITTEN = "empty empty_like empty_permuted empty_strided new_empty new_empty_strided resize"
NOT_KEPT = frozenset((_CHOOSING + _SCATTERING + " " + _UNWRITTEN).split())
KEPT = frozenset(("hardtanh", "mul"))
"""Beside the exact ones."""


def keeps_zeros(func: Any) -> bool:
    """Whether the signs of an op's operands decide, alone, those of the zeros it gives."""
    name = base_name(func).rstrip("_")
    return name in KEPT or (is_exact(func) and name.lstrip("_") not in NOT_KEPT and name not in NOT_KEPT)


_ON_BITS = """
    abs cat clone copysign diag_embed diagonal_scatter embedding fill flip gather index index_select lift lift_fresh
    masked_select neg pixel_shuffle pixel_unshuffle real reflection_pad1d reflection_pad2d reflection_pad3d repeat
    repeat_interleave replication_pad1d replication_pad2d replication_pad3d roll rot90 select_scatter signbit
    slice_scatter stack take tril triu unbind where
"""


def keeps_nans(func: Any) -> bool:
    """Whether the signs of an op's operands decide, alone, those of the NaN it gives: see nans.py."""
    return func.is_view or base_name(func) in _BITS


_BITS = frozenset(_ON_BITS.split())


def other_signs(actual: Tensor, expected: Tensor) -> Tensor:
    """Where both are zeros of different signs; nowhere for complex numbers, whose products have zeros of both."""
    if expected.dtype.is_complex or not expected.dtype.is_floating_point:
        return torch.zeros(expected.shape, dtype=torch.bool)
    actual, expected = wide(actual), wide(expected)
    return (actual == 0) & (expected == 0) & (torch.signbit(actual) != torch.signbit(expected))

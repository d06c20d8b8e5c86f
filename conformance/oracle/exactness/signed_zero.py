"""Where the sign of a zero is part of the result: of programs whose every step gives it, on any machine.

A step that moves or picks numbers by their places keeps the sign of a zero, and neg, abs, copysign, mul and what rounds
to an integer have one sign for the operands they are given. What picks among equal numbers does not, nor do sums, whose
zeros depend on the order of the terms, nor numbers that nobody wrote: ``op_traits.signs`` has the ops and the reasons.

Over the op database, default and special, and with zeros of both signs for all inputs, eager gives the same signs in
float32 and float64, with and without gaps between the elements, for every program of such steps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.oracle.exactness.steps import never_rounds
from torchstone.conformance.oracle.op_traits.signs import (
    CHOOSES_AMONG_EQUALS,
    KEEPS_SIGN_OF_ZERO,
    WRITES_IN_ANY_ORDER,
)
from torchstone.conformance.oracle.op_traits.trait import holds_any
from torchstone.conformance.oracle.op_traits.undetermined import UNINITIALIZED
from torchstone.conformance.oracle.ulp import wide


def keeps_zero_signs(func: Any) -> bool:
    """Whether the signs of an op's operands decide, alone, those of the zeros it gives."""
    if KEEPS_SIGN_OF_ZERO.holds(func):
        return True
    return never_rounds(func) and not holds_any((CHOOSES_AMONG_EQUALS, WRITES_IN_ANY_ORDER, UNINITIALIZED), func)


def different_zero_signs(actual: Tensor, expected: Tensor) -> Tensor:
    """Where both are zeros of different signs; nowhere for complex numbers, whose products have zeros of both."""
    if expected.dtype.is_complex or not expected.dtype.is_floating_point:
        return torch.zeros(expected.shape, dtype=torch.bool)
    actual, expected = wide(actual), wide(expected)
    return (actual == 0) & (expected == 0) & (torch.signbit(actual) != torch.signbit(expected))

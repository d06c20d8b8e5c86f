"""When two numbers are the same: the one module that compares tensors in which NaN is a value like any other.

=================  ============================================  =======================
function           NaN and NaN, 0 and -0                         answer
=================  ============================================  =======================
``same_bits``      the same only with the same sign and payload  one, of the whole
``same_values``    the same; the same                            one for each element
``same_numbers``   as above; complex ones as C99 leaves open     one for each element
``equal_tensors``  the same; the same; dtype and shape too       one, of the whole
``equal``          as ``equal_tensors``, of any leaf             one, of the whole
``close``          the same; within tolerances                   one, of the whole
=================  ============================================  =======================

What is right within a tolerance, element by element, is judged in ``elementwise``. Generated scripts carry a
comparison of their own: they have to run where torchstone is not installed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.oracle.pytree import dense

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def same_bits(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors have the same dtype, shape and numbers, bit for bit: signs of zeros and NaN included."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    if not left.numel():
        return True
    return torch.equal(_integers(left), _integers(right))


def _integers(tensor: Tensor) -> Tensor:
    plain = dense(tensor)
    plain = (torch.view_as_real(plain) if plain.is_complex() else plain).contiguous()
    return plain.view(_INTEGERS[plain.element_size()])


def same_values(left: Tensor, right: Tensor) -> Tensor:
    """Where two tensors of one shape hold equal numbers, or both NaN. A complex number is NaN if a part of it is."""
    return (left == right) | ((left != left) & (right != right))


def same_numbers(left: Tensor, right: Tensor) -> Tensor:
    """Where two floating or complex tensors hold equal numbers, or both NaN; minus zero equals zero.

    Complex numbers that are both not finite agree when each component that is NaN in neither agrees: how infinities
    spread through complex arithmetic (C99, annex G) is not something PyTorch promises.
    """
    if not left.is_complex():
        return same_values(left, right)
    a, b = torch.view_as_real(left), torch.view_as_real(right)
    same, open_ones = a == b, torch.isnan(a) | torch.isnan(b)
    not_finite = ~torch.isfinite(a).all(-1) & ~torch.isfinite(b).all(-1)
    return same.all(-1) | (not_finite & (same | open_ones).all(-1))


def equal_tensors(left: Tensor, right: Tensor) -> bool:
    """Whether two tensors of any layout have the same dtype, shape and numbers."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    return bool(same_numbers(dense(left), dense(right)).all())


def equal(left: Any, right: Any) -> bool:
    """Whether two leaves of results are the same: tensors, numbers, strings or None."""
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return (left.layout == right.layout and same_bits(left, right)) or equal_tensors(left, right)
    return type(left) is type(right) and bool(left == right or left != left)


def close(left: Tensor, right: Tensor, rtol: float, atol: float) -> bool:
    """Whether two tensors of one dtype and shape agree: ``|left - right| <= atol + rtol * |right|`` everywhere."""
    return torch.allclose(left, right, rtol=rtol, atol=atol, equal_nan=True)

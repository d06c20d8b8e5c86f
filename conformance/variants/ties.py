"""The variant ``ties``: elements that are equal, to each other and to the numbers among the arguments.

A sample's random numbers are never equal, and never lie on the bound of a clamp or the edge of a bin. There, ``>`` and
``>=`` differ, functions have kinks, and a maximum shares its gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import leaves
from torchstone.conformance.variants.defaults import left_out
from torchstone.conformance.variants.protocol import Variant
from torchstone.conformance.variants.support import change_inputs

LARGEST = 100
"""A number among the arguments that is larger is a size, and no bound."""


def tied(case: Case) -> Case:
    """The case with few numbers in its inputs: 0, 1 and -1, and those among its arguments."""
    floats = any(tensor.is_floating_point() or tensor.is_complex() for tensor in case.args)
    numbers = torch.tensor(sorted({0.0, 1.0, -1.0, *_bounds(case)}), dtype=torch.float64)

    def drawn(tensor: Tensor) -> Tensor:
        if tensor.dtype == torch.bool or not tensor.numel() or floats == (not _is_float(tensor)):
            return tensor
        parts = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
        pool = numbers if floats else numbers[numbers == numbers.round()]
        if not bool((parts < 0).any()):  # lengths, variances and probabilities stay what they are
            pool = pool[pool >= 0]
        found = pool[torch.randint(len(pool), parts.shape)].to(parts.dtype)
        return torch.view_as_complex(found) if tensor.is_complex() else found

    return change_inputs(case, drawn, "no input of numbers")


def _bounds(case: Case) -> Iterator[float]:
    """The numbers among the arguments, those too that are left out, of both signs."""
    for call in case.program.calls:
        defaults = [free.values() for free in left_out(call)]
        for value in leaves([call.args, call.kwargs, *map(list, defaults)]):
            if type(value) in (int, float) and math.isfinite(value) and abs(value) <= LARGEST:
                yield from (value, -value)


def _is_float(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


TIES = Variant("Elements equal to each other and to the numbers among the arguments.", tied)

"""Where the sign of a NaN is part of the result: of programs whose every step moves numbers, or looks at their bits.

``signbit``, ``copysign``, ``neg`` and ``abs`` are operations on bits, in IEEE 754 too. What sign the NaN of any other
operation has, the standard leaves open: it is one in eager's vectors and another in its loops, or depends on the
processor. So it is of a cast, of a bfloat16 that eager negates as a float32, and of the larger of two numbers. Where a
program asks for the sign of such a NaN, either answer is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import TorchDispatchMode
from torchstone.compiler._torch.operators import base_name
from torchstone.conformance.oracle.pytree import flatten
from torchstone.conformance.oracle.reference.runs import Referee

_BITS = frozenset({"signbit", "copysign"})
_LOOKS_AT = frozenset({torch.float16, torch.float32, torch.float64})


def other_nans(actual: Tensor, expected: Tensor) -> Tensor:
    """Where both are NaN of different signs, in the dtypes that eager negates by their bits."""
    if expected.dtype not in _LOOKS_AT or actual.dtype != expected.dtype:
        return torch.zeros(expected.shape, dtype=torch.bool)
    return expected.isnan() & actual.isnan() & (torch.signbit(actual) != torch.signbit(expected))


class OtherNans(TorchDispatchMode):
    """Shows each step that asks for the sign of a NaN the other one. ``met`` says that there was such a step."""

    def __init__(self, met: list[Any]) -> None:
        super().__init__()
        self._met = met

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if base_name(func).rstrip("_") not in _BITS:
            return func(*args, **(kwargs or {}))
        *rest, asked = args
        if isinstance(asked, Tensor) and asked.dtype.is_floating_point and bool(asked.isnan().any()):
            self._met.append(func)
            asked = torch.where(
                asked.isnan(), torch.copysign(asked, -torch.copysign(torch.ones_like(asked), asked)), asked
            )
        return func(*rest, asked, **(kwargs or {}))


def either_sign(referee: Referee, expected: Any, actual: Any) -> Iterator[tuple[Referee, Any, Any]]:
    """Eager with the other signs, where those are as right and the backend has what follows from them.

    Gives the referee, eager's run and the backend's, as flat lists; nothing where eager's signs are the only ones.
    """
    if referee.keeps_nans:
        return
    met: list[Any] = []
    other = Referee(referee.program, referee.pristine, around=lambda: OtherNans(met), seed=referee.seed)
    given, wanted, leaves = flatten(actual.outputs), flatten(expected.outputs), other.eager.leaves
    if leaves and met:
        outputs = [_chosen(*each) for each in zip(wanted, leaves, given, strict=False)]
        inputs = tuple(map(_chosen, expected.inputs, leaves[len(given) :], actual.inputs))
        yield other, replace(expected, outputs=outputs, inputs=inputs), replace(actual, outputs=given)


def _chosen(wanted: Any, other: Any, given: Any) -> Any:
    """``other`` where the backend has that number, else ``wanted``."""
    if not all(isinstance(v, Tensor) for v in (wanted, other, given)) or not wanted.shape == other.shape == given.shape:
        return wanted
    return torch.where(other == given, other, wanted) if wanted.dtype == other.dtype == given.dtype else wanted

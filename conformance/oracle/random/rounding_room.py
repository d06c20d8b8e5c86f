"""How far rounding may set apart what two right backends make of the same random numbers, element by element.

The numbers that eager draws are replayed into the float64 run and the runs of the rounding model, as for a backend that
draws what eager does. Of ``matmul(dropout(x), y)`` the terms may cancel: a result is off by an ULP of its terms, which
is many of its own.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchstone.conformance.oracle.ambiguity.factorizations import derivation
from torchstone.conformance.oracle.evidence import inexact
from torchstone.conformance.oracle.finding import Observed
from torchstone.conformance.oracle.pytree import dense, flatten
from torchstone.conformance.oracle.reference.leaf import Leaf, reference_of, with_spread
from torchstone.conformance.oracle.reference.shared import referee_of
from torchstone.conformance.oracle.tolerances import SPREAD_FACTOR, tolerance
from torchstone.conformance.oracle.ulp import ulp
from torchstone.conformance.program.program import Program


def rounding_rooms(program: Program, args: tuple[Tensor, ...], run: Observed, seed: int) -> list[Tensor | None]:
    """For each leaf of eager's run from ``seed``, outputs and then inputs, the room of each element in float64.

    It is NaN where the element is zero, of which nothing is seen; and None for what does not round or has no float64
    run. Of factors of a matrix, for the leaves of what they determine.
    """
    derive = derivation(program)
    referee = referee_of(program, args, derive, seed)
    targets = [call.target for call in program.every_call]
    leaves = flatten((derive(args, run.outputs) if derive else run.outputs, run.inputs))
    return [_room(leaf, Leaf(referee, index, targets)) for index, leaf in enumerate(leaves)]


def _room(expected: object, leaf: Leaf) -> Tensor | None:
    if not isinstance(expected, Tensor) or not inexact(expected):
        return None
    truth, _ = reference_of(dense(expected), leaf)
    if truth is None:
        return None
    truth = with_spread(truth, dense(expected), leaf)
    row = tolerance(expected.dtype, leaf.targets)
    size = torch.where(torch.isfinite(truth.values), truth.values, 0.0).abs()
    room = row.ulps * ulp(size, expected.dtype) + row.tiny + SPREAD_FACTOR * truth.spread
    return torch.where((truth.values == 0) & (truth.spread == 0), torch.nan, room)

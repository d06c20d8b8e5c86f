"""Products of int8 matrices that eager's kernel cuts off, beside the exact ones.

On a processor without instructions for it (AVX512-VNNI, AVX-VNNI), oneDNN adds two products of 8 bits in 16 bits, and
stays at the end of their range. So eager's ``_int_mm`` is wrong there, and depends on the machine. Exact sums are right
on each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.conformance.oracle.ambiguity.otherwise import otherwise
from torchstone.conformance.oracle.op_traits.right_answers import SATURATES

if TYPE_CHECKING:
    from torchstone.conformance.oracle.reference.runs import Referee


class ExactProducts(ComputingMode):
    """Computes what is inside it with exact products of integers."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not SATURATES.holds(func) or len(args) != 2:
            return func(*args, **kwargs)
        exact = (args[0].to(torch.int64) @ args[1].to(torch.int64)).to(torch.int32)
        out = kwargs.get("out")
        return exact if out is None else out.resize_(exact.shape).copy_(exact)


def saturation_ambiguity(referee: Referee, expected: Any, actual: Any) -> Iterator[tuple[Referee, Any, Any]]:
    """Eager with exact products, if the program has such: the referee, eager's run and the backend's, as flat lists."""
    if not any(SATURATES.has(call.operator) for call in referee.program.every_call):
        return
    yield from otherwise(referee.inside(ExactProducts), expected, actual)

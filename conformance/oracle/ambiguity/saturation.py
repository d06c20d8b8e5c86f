"""Products of 8-bit matrices that leave a range.

On a processor without instructions for it (AVX512-VNNI, AVX-VNNI), oneDNN adds two products of int8 in 16 bits, and
stays at the end of their range. So eager's ``_int_mm`` is wrong there, and depends on the machine. Exact sums are right
on each.

A product of float8 matrices that is rounded to float8 may lie beyond its range. PyTorch's kernels stay at the end of
the range or give what a conversion gives, NaN or infinity, by machine and dtype. The float64 run stays at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.conformance.oracle.ambiguity.otherwise import otherwise
from torchstone.conformance.oracle.op_traits.right_answers import ROUNDS_TO_FLOAT8, SATURATES
from torchstone.conformance.oracle.reference.without_float64 import FORMULAS, is_float8

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


class ConvertedProducts(ComputingMode):
    """Computes what is inside it with products that become, beyond the range of float8, what a conversion makes of
    them."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        formula = FORMULAS.of(func) if ROUNDS_TO_FLOAT8.holds(func) else None
        if formula is None or not is_float8(result.dtype):
            return result
        wide = [arg.to(torch.float64) if isinstance(arg, Tensor) else arg for arg in args]
        exact = formula(*wide, **{name: value for name, value in kwargs.items() if name not in ("out", "out_dtype")})
        beyond = exact.abs() > torch.finfo(result.dtype).max
        return result.copy_(torch.where(beyond, exact.to(result.dtype).float(), result.float()))


def saturation_ambiguity(referee: Referee, expected: Any, actual: Any) -> Iterator[tuple[Referee, Any, Any]]:
    """Eager with the other products, if the program has such: the referee, eager's run and the backend's, as flat
    lists."""
    operators = [call.operator for call in referee.program.every_call]
    for trait, mode in ((SATURATES, ExactProducts), (ROUNDS_TO_FLOAT8, ConvertedProducts)):
        if any(map(trait.has, operators)):
            yield from otherwise(referee.inside(mode), expected, actual)

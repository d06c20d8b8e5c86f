"""Eager's batch norms with the statistics that they save for a gradient, where its kernels for the CPU save none.

In evaluation ``native_batch_norm`` and its like return tensors without elements on the CPU, and on other devices the
numbers that they have normalized with. PyTorch's decomposition asks for the device too. Nothing is documented of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.compiler._torch.operators import schema_of
from torchstone.conformance.oracle.ambiguity.otherwise import otherwise
from torchstone.conformance.oracle.op_traits.right_answers import SAVES_STATISTICS

if TYPE_CHECKING:
    from torchstone.conformance.oracle.reference.runs import Referee


class SavedStatistics(ComputingMode):
    """Gives the running mean, and one by the root of the running variance plus eps, where eager's kernel gives none."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not SAVES_STATISTICS.holds(func) or out[1].numel() or out[2].numel():
            return out
        schema = schema_of(func).arguments
        given = {a.name: a.default_value for a in schema} | {a.name: v for a, v in zip(schema, args, strict=False)}
        given |= kwargs or {}
        wide = torch.promote_types(out[0].dtype, torch.float32)
        mean, variance = (given[name].to(wide) for name in ("running_mean", "running_var"))
        return out[0], mean.clone(), (variance + given["eps"]).rsqrt(), *out[3:]


def statistics_ambiguity(referee: Referee, expected: Any, actual: Any) -> Iterator[tuple[Referee, Any, Any]]:
    """Eager with saved statistics, if the program has such a call: the referee, eager's run and the backend's."""
    if not any(SAVES_STATISTICS.has(call.operator) for call in referee.program.every_call):
        return
    yield from otherwise(referee.inside(SavedStatistics), expected, actual)

"""Make inputs contiguous, each in a storage of its own that it fills."""

from __future__ import annotations

import torch

from torchstone.conformance.program.case import Case
from torchstone.reducers.edit import trim, with_inputs
from torchstone.reducers.order import layout_cost
from torchstone.reducers.problem import Rewrite


def simplify_layouts(case: Case) -> Rewrite[Case]:
    """Try all inputs at once, then one by one; for one that must stay strided, at least its storage is cut to size."""
    odd = [name for name, tensor in case.inputs.items() if layout_cost(tensor)]
    if len(odd) > 1 and (yield with_inputs(case, {name: _plain(case, name) for name in odd})):
        return
    for name in odd:
        for tensor in (_plain(case, name), trim(case.inputs[name])):
            candidate = with_inputs(case, {name: tensor})
            if (yield candidate):
                case = candidate
                break


def _plain(case: Case, name: str) -> torch.Tensor:
    tensor = case.inputs[name].detach().resolve_conj().resolve_neg()
    return tensor.clone(memory_format=torch.contiguous_format)

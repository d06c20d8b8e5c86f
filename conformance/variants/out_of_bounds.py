"""The variant ``outside``: compiled for indices that are in range, called with one that is not."""

from __future__ import annotations

import torch

from torchstone.conformance.program.case import Case

OUTSIDE = "outside"


def outside(case: Case) -> Case | None:
    """The case with the last number of each input of whole numbers past the end of every dim; None if it has none."""
    if len(case.args) < 2:
        return None
    beyond = max(tensor.numel() for tensor in case.args)
    inputs = dict(case.inputs)
    for name, tensor in case.inputs.items():
        if tensor.dtype in (torch.int32, torch.int64) and tensor.numel():
            flat = tensor.flatten().clone()
            flat[-1] = beyond
            inputs[name] = flat.view(tensor.shape)
    return None if all(inputs[name] is tensor for name, tensor in case.inputs.items()) else case.replace(inputs=inputs)

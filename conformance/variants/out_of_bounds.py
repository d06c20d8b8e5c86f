"""The variant ``outside``: compiled for indices that are in range, called with one that is not."""

from __future__ import annotations

import torch

from torchstone.conformance.backends.protocol import Backend
from torchstone.conformance.execution.run_case import Compiled, compare_with_eager, expect_refusal
from torchstone.conformance.execution.verdict import REFUSED, Stage
from torchstone.conformance.oracle.compare import Finding
from torchstone.conformance.program.case import Case
from torchstone.conformance.variants.protocol import NotApplicable, Variant


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


def _with_an_index(case: Case) -> Case:
    if outside(case) is None:
        raise NotApplicable("no input of whole numbers that may be an index into another one")
    return case


def call_out_of_bounds(case: Case, backend: Backend, compiled: Compiled | None) -> tuple[Stage, Finding]:
    """Compile the case, and call it with an index out of range: right is a backend that refuses it, as eager does."""
    beyond = outside(case)
    if beyond is None or REFUSED in case.tags:
        return compare_with_eager(case, backend, compiled)
    return expect_refusal(case, beyond, backend, compiled)


OUT_OF_BOUNDS = Variant(
    "Called with an index out of range: what eager refuses has to be refused.", _with_an_index, call_out_of_bounds
)

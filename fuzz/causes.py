"""The failures of one op, sorted by what the input has to be like for them.

Where every program calls the same op, the ops tell nothing of which bug a failure is. What tells is what the reduction
could not take away: that a tensor is empty, 0-d or not contiguous, that a number is NaN, that there is a gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from torchstone.conformance.execution.verdict import Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import leaves
from torchstone.conformance.variants.dynamic import BATCH, DYNAMIC
from torchstone.fuzz.findings import Findings, FuzzFinding
from torchstone.reducers.failure import Judge
from torchstone.reducers.signature import signature

MOST_REDUCED = 10
"""Reductions of one op: failures beyond them are counted only."""
SPECIAL = "NaN or infinity"
LARGE = 1e4
"""A magnitude that a program of plain numbers does not have."""


def traits(case: Case) -> frozenset[str]:
    """What is not plain about a case: float32 numbers from 0 to 10,000 in contiguous tensors of a few elements."""
    found = {trait for tensor in case.args for trait in _of_tensor(tensor)}
    if case.args and all(tensor.dim() == 0 for tensor in case.args):
        found.add("0-d")
    if len({tensor.dtype for tensor in case.args}) > 1:
        found.add("mixed dtypes")
    if len({tensor.untyped_storage().data_ptr() for tensor in case.args if tensor.numel()}) < sum(
        bool(tensor.numel()) for tensor in case.args
    ):
        found.add("shared memory")
    if any(call.target == "torch.autograd.grad" for call in case.program.calls):
        found.add("gradients")
    literals = [leaf for call in case.program.calls for leaf in leaves((call.args, call.kwargs))]
    if any(isinstance(leaf, float) and not math.isfinite(leaf) for leaf in literals):
        found.add(SPECIAL)
    if any("_given" in name for name in case.inputs):
        found.add("out=")
    if case.variant in (DYNAMIC, BATCH):
        found.add("sizes that vary")
    return frozenset(found)


def _of_tensor(tensor: Tensor) -> Iterator[str]:
    if tensor.dtype != torch.float32:
        yield str(tensor.dtype).removeprefix("torch.")
    if not tensor.numel():
        yield "empty"
        return
    if not tensor.is_contiguous():
        yield "not contiguous"
    if tensor.storage_offset():
        yield "offset"
    if tensor.is_conj() or tensor.is_neg():
        yield "lazy"
    if tensor.dtype == torch.bool:
        return
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    numbers = torch.view_as_real(tensor.resolve_conj().to(wide)) if tensor.is_complex() else tensor.to(wide)
    sizes = numbers.abs()
    if not bool(sizes.isfinite().all()):
        yield SPECIAL
    if bool((sizes.nan_to_num(0, 0, 0) > LARGE).any()):
        yield "large numbers"
    if bool((numbers < 0).any()):
        yield "negative numbers"
    if bool(((numbers == 0) & (torch.copysign(torch.ones_like(numbers), numbers) < 0)).any()):
        yield "negative zero"
    if tensor.numel() > math.prod([8, 8]):
        yield "many elements"


class Causes(Findings):
    """Findings of one op. A failure belongs to a known one if it has all that this one's reduced case needs."""

    def __init__(self) -> None:
        super().__init__()
        self._needs: dict[int, frozenset[str]] = {}
        self._reductions = 0

    def add(self, finding: FuzzFinding) -> FuzzFinding:
        """Take up a new finding, unless its reduced case is like that of a known one."""
        self._reductions += 1
        its = traits(finding.best)
        for known in self.ranked():
            alike = known.signature == finding.signature and known.ops == finding.ops
            if alike and traits(known.best) == its:
                # What one of the two originals does not have is no part of the cause: the reduction chose it.
                self._needs[id(known)] &= traits(finding.case)
                known.seen += finding.seen
                return known
        self._needs[id(finding)] = its
        taken = {known.name for known in self.ranked()}
        numbers = (str(number) for number in range(2, len(taken) + 3))
        while finding.name in taken:
            finding.suffix = next(numbers)
        self._found.append(finding)
        return finding

    def unexplained(self, case: Case, verdict: Verdict, judge: Judge) -> Case | None:
        """The case, unless a known finding explains it, or enough were reduced."""
        found, its = signature(verdict), traits(case)
        same = [known for known in self._found if known.signature == found]
        for known in same:
            if self._needs[id(known)] <= its:
                known.seen.append(case.id)
                return None
        if self._reductions >= MOST_REDUCED and same:
            same[0].seen.append(case.id)
            return None
        return case

"""The variant ``outside``: what is just out of range, which eager refuses.

An index is out of range from the size on, and from below its negative on; so is a dim. A program is compiled for
indices in range and called with others. A number among its arguments is there as it is compiled, and may be refused
then; so are sizes that do not go together, dtypes that are not promoted, and zeros that nothing is divided by.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch

from torchstone.conformance.backends.protocol import Backend
from torchstone.conformance.execution.failure import out_of_order
from torchstone.conformance.execution.run_case import Compiled, compare_with_eager, expect_refusal
from torchstone.conformance.execution.verdict import CORRECT, REFUSED, Outcome, Stage
from torchstone.conformance.oracle.finding import Finding
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import leaves
from torchstone.conformance.variants.forked import refused
from torchstone.conformance.variants.protocol import NotApplicable, Variant
from torchstone.conformance.variants.support import resized


def bad_indices(case: Case) -> Iterator[Iterator[Case]]:
    """For the last and for the first number of each input of whole numbers, the case with others there.

    At the end they are past either end of a dim, those next to it first. At the beginning they are next to what is
    there before: offsets have to begin with 0, and what is counted is not negative.
    """
    for name, tensor in case.inputs.items():
        if tensor.dtype in (torch.int32, torch.int64) and tensor.numel():
            sizes = {size for other, t in case.inputs.items() if other != name for size in (*t.shape, t.numel())}
            ends = list(itertools.chain.from_iterable((size, -size - 1) for size in sorted(sizes | {0})))
            first = int(tensor.flatten()[0])
            yield _with_number(case, name, -1, ends)
            yield _with_number(case, name, 0, [first + 1, first - 1, *reversed(ends)])


def _with_number(case: Case, name: str, place: int, values: Iterable[int]) -> Iterator[Case]:
    for value in values:
        flat = case.inputs[name].flatten().clone()
        flat[place] = value
        yield case.replace(inputs={**case.inputs, name: flat.view(case.inputs[name].shape)})


def bad_numbers(case: Case) -> Iterator[Case]:
    """The case with a whole number among its arguments past either end of the dims, or of the largest one."""
    rank = max((tensor.dim() for tensor in case.args), default=0)
    size = max((size for tensor in case.args for size in tensor.shape), default=0)
    places = [value for call in case.program.calls for value in leaves((call.args, call.kwargs))]
    for value in (rank, -rank - 1, size, -size - 1, size + 1, -1):
        for place, own in enumerate(places):
            if type(own) is int and own != value:
                count = itertools.count()

                def leaf(given: object, place: int = place, value: int = value, count: Iterator[int] = count) -> object:
                    return value if next(count) == place else given

                yield case.replace(program=case.program.rewrite(lambda call, leaf=leaf: call.map_arguments(leaf)))


def bad_inputs(case: Case) -> Iterator[Case]:
    """The case with an input of another size along its first or its last dim, of another dtype, or all zero."""
    for name, tensor in case.inputs.items():
        for dim in dict.fromkeys((tensor.dim() - 1, 0)) if tensor.dim() and tensor.numel() else ():
            with contextlib.suppress(NotImplementedError):  # of a dtype that eager hardly has anything for
                yield case.replace(inputs={**case.inputs, name: resized(tensor, dim, tensor.shape[dim] + 1)})
        if tensor.is_floating_point():
            for dtype in (torch.float64 if tensor.dtype != torch.float64 else torch.float32, torch.int64):
                yield case.replace(inputs={**case.inputs, name: tensor.to(dtype)})
        yield case.replace(inputs={**case.inputs, name: torch.zeros_like(tensor)})


def _with_a_way(case: Case) -> Case:
    if next(itertools.chain(*bad_indices(case), bad_numbers(case), bad_inputs(case)), None) is None:
        raise NotApplicable("nothing that may be out of range")
    return case


UNASKED = "unasked"
"""The key in the evidence of why calls were left out: the refusal before has put the device out of order."""


def call_out_of_bounds(case: Case, backend: Backend, compiled: Compiled | None) -> tuple[Stage, Finding]:
    """Call the case with indices and numbers that eager refuses: right is a backend that refuses each of them.

    A GPU refuses an index by an assertion in a kernel, after which its process cannot ask it anything more.
    """
    if REFUSED in case.tags:
        return compare_with_eager(case, backend, compiled)
    stage, finding = Stage.CAPTURE, Finding(Outcome.UNTESTED, message="eager takes what might be out of range")
    for given, other, made in _calls(case, compiled):
        if finding.ok and (reason := out_of_order(backend)):
            return stage, replace(finding, evidence=finding.evidence | {UNASKED: reason})
        stage, finding = expect_refusal(given, other, backend, made)
        if finding.outcome not in CORRECT:
            return stage, finding
    return stage, finding


def _calls(case: Case, compiled: Compiled | None) -> Iterator[tuple[Case, Case, Compiled | None]]:
    """What is compiled, what it is called with, and what the first is compiled to if it is already."""
    for other in itertools.chain.from_iterable(map(refused, bad_indices(case))):
        yield case, other, compiled
    for other in itertools.chain(refused(bad_numbers(case)), refused(bad_inputs(case))):
        yield other, other, None


OUT_OF_BOUNDS = Variant(
    "Called with indices, numbers, sizes and dtypes just out of range: what eager refuses has to be refused.",
    _with_a_way,
    call_out_of_bounds,
)

"""The variants ``dynamic`` and ``batch``: a program compiled once and called with inputs of several sizes.

``dynamic`` lets every size vary, ``batch`` the leading one alone. A backend takes part if it has ``compile_dynamic``.
``dynamic`` asks a few samples with unlike arguments, in dtypes that take turns, each compiled by itself. Of every other
one it asks the gradients, which are other code: how many windows read an element depends on sizes. Every fourth sample
is called with millions of elements, too: compilers choose other code where there is much to do.

Sizes that have to go together, and do not, are refused by eager, and so they have to be by a backend.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from torchstone.conformance.backends.protocol import Backend, BackendUnsupported
from torchstone.conformance.execution.current_call import telling
from torchstone.conformance.execution.run_case import Compiled, compare_with_eager, expect_refusal, part_of
from torchstone.conformance.execution.undefined_behavior import SEED, undefined_behavior
from torchstone.conformance.execution.verdict import CORRECT, FAILURES, Outcome, Stage
from torchstone.conformance.oracle.finding import Finding
from torchstone.conformance.oracle.parts import parts_of
from torchstone.conformance.program.bundle import members, with_inputs
from torchstone.conformance.program.case import Case
from torchstone.conformance.variants.backward import has_gradients, with_gradients
from torchstone.conformance.variants.bundles import draws
from torchstone.conformance.variants.forked import refused
from torchstone.conformance.variants.long_dim import fits, results_of
from torchstone.conformance.variants.protocol import NotApplicable, Variant
from torchstone.conformance.variants.samples import is_large, unlike_by_turns
from torchstone.conformance.variants.support import reads_beyond, resized, together

DYNAMIC, BATCH = "dynamic", "batch"
PART, SIZES = "part", "sizes"
"""The keys in the evidence of a failure: the number of the part that fails, and the sizes, if not the example's."""
# A size is made larger and smaller, but not 1: PyTorch compiles that apart.
CHANGES = (1, 4, -1)
SMALL_SIZES = (1, 0)
"""Sizes that a backend may refuse at a call, but not give wrong results for."""
SMALL_ALONE = 2
"""Sizes of which each alone is as small, too: where all are 0, a result has no elements that might be wrong."""
MORE = 2
"""Other samples that ``dynamic`` asks beside the case."""
_LEAST = 2
GRADIENTS_OF = 2
"""One in so many samples has its gradients: torch.export refuses those of some ops, whose sizes are asked, too."""
LONG_OF, ELEMENTS = 4, 3 << 20
"""One in so many samples is called with so many elements as well."""


Dims: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """``dims[i]`` are the dims of input ``i`` whose size may vary; ``others`` are the case at other sizes.

    ``small`` is the case with all of these sizes 1, and 0; ``long`` has millions of elements. Eager takes none of
    ``refused``.
    """

    dims: Dims
    others: tuple[Case, ...]
    small: tuple[Case, ...] = ()
    long: tuple[Case, ...] = ()
    refused: tuple[Case, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """What a verdict is of: ``example`` is compiled with ``dims`` free, none where nothing can vary, and ``called`` is
    the same at the sizes of the call."""

    example: Case
    dims: Dims | None
    called: Case


def asked(case: Case, evidence: Mapping[str, Any]) -> Asked:
    """Return what a verdict with this evidence is of; what the case does not have is not looked for in the evidence."""
    if case.variant not in (DYNAMIC, BATCH):
        return Asked(case, None, case)
    with torch.no_grad():
        part = part_asked(case, evidence)
        varying = None if undefined_behavior(part) else _whole_plan(part, tuple)
    if varying is None:
        return Asked(part, None, part)
    calls = itertools.chain(varying.others, varying.long, varying.small, varying.refused)
    called = next((other for other in calls if _sizes(other) == evidence.get(SIZES)), part)
    return Asked(part, varying.dims, called)


def part_asked(case: Case, evidence: Mapping[str, Any]) -> Case:
    """Return the part of a case that a verdict with this evidence is of: what it says of results is of that part's."""
    number = evidence.get(PART)
    if case.variant not in (DYNAMIC, BATCH) or not isinstance(number, int):
        return case
    parts = _parts(case)
    return parts[number] if 0 <= number < len(parts) else case


def plan(case: Case) -> Plan | None:
    """The plan of a case in one of these variants, None when nothing can vary that eager takes."""
    if case.variant == BATCH:
        rows = next((t.shape[0] for t in case.args if t.dim()), 0)
        dims = tuple((0,) if t.dim() and t.shape[0] == rows and rows > 1 else () for t in case.args)
    else:
        dims = tuple(tuple(d for d, size in enumerate(t.shape) if size > 1) for t in case.args)
    others = tuple(_at(case, dims, _CHANGED)) if any(dims) else ()
    if not others:  # some sizes may go with what is fixed: those are free that may vary alone
        free = [alike for alike in _alike(case, dims) if any(True for _ in _at(case, alike, _CHANGED[:1]))]
        dims = tuple(tuple(sorted(itertools.chain(*axes))) for axes in zip(*free, strict=True))
        others = tuple(_at(case, dims, _CHANGED)) if any(dims) else ()
    if not others:
        return None
    small = [other for some in (dims, *_alike(case, dims)[:SMALL_ALONE]) for other in _at(case, some, _SMALL)]
    return Plan(dims, others, tuple(small))


_CHANGED = [lambda size, n=n: max(size + n, _LEAST) for n in CHANGES]
_SMALL = [lambda size, n=n: n for n in SMALL_SIZES]


def _alike(case: Case, dims: Dims) -> list[Dims]:
    """Those of some dims that have the same size, for each size that there is."""
    sizes = dict.fromkeys(t.shape[d] for t, axes in zip(case.args, dims, strict=True) for d in axes)
    return [
        tuple(tuple(d for d in axes if t.shape[d] == size) for t, axes in zip(case.args, dims, strict=True))
        for size in sizes
    ]


def _at(
    case: Case, dims: Dims, changes: Sequence[Callable[[int], int]],
    fits: Callable[[Case], bool] = lambda _: True,
) -> Iterator[Case]:  # fmt: skip
    """The case at each of the other sizes that fit and eager takes: sizes that are equal now stay equal."""
    for change in changes:
        inputs = {
            name: _resized(tensor, axes, change) for (name, tensor), axes in zip(case.inputs.items(), dims, strict=True)
        }
        other = case.replace(inputs=inputs)
        try:
            if not fits(other) or reads_beyond(other) or not has_gradients(other):
                continue
        except Exception:  # whatever it says, eager does not take these sizes
            continue
        yield other


def _resized(tensor: Tensor, axes: tuple[int, ...], change: Callable[[int], int]) -> Tensor:
    for axis in axes:
        tensor = resized(tensor, axis, change(tensor.shape[axis]))
    return tensor


def _free(case: Case, variant: str) -> Case:
    """The case, where sizes that the variant leaves free can be others. Raises ``NotApplicable``."""
    if len({t.untyped_storage().data_ptr() for t in case.args if t.numel()}) < sum(bool(t.numel()) for t in case.args):
        raise NotApplicable("inputs share memory, and the variant would part them")
    case = case.replace(variant=variant)
    if plan(case) is None:
        raise NotApplicable("eager takes no other size")
    return case


def compare_at_other_sizes(case: Case, backend: Backend, compiled: Compiled | None) -> tuple[Stage, Finding]:
    """Compile each part of the case for any size, and compare with eager at its own sizes and others.

    The finding is that of the first part that fails; else of one that is not correct, if there is one. A bundle is
    compiled as one.
    """
    parts = _parts(case)
    found = []
    for number, part in enumerate(parts):
        told = {PART: number} if len(parts) > 1 else {}
        with telling(told):
            stage, finding = _compare_part(part, backend, compiled)
        if finding.outcome in FAILURES:
            return stage, replace(finding, evidence=finding.evidence | told)
        found.append((stage, finding))
    wrong = [(stage, finding) for stage, finding in found if finding.outcome not in CORRECT]
    stage, finding = (wrong or found)[0]
    message = f"{len(wrong)} of {len(found)} parts: {finding.message}" if wrong and len(found) > 1 else finding.message
    return stage, replace(finding, message=message)


def _parts(case: Case) -> list[Case]:
    """What is compiled by itself; a bundle is compiled as one."""
    if len(members(case)) > 1:
        return [case]
    parts = parts_of(case.program, case.args)
    return [part_of(case, program) for _, program in parts] if len(parts) > 1 else [case]


def _compare_part(case: Case, backend: Backend, compiled: Compiled | None) -> tuple[Stage, Finding]:
    varying = None if undefined_behavior(case) else _whole_plan(case)
    if varying is None and len(members(case)) > 1:
        return Stage.CAPTURE, Finding(Outcome.UNTESTED, message="not every program of the bundle takes other sizes")
    if varying is None:
        return compare_with_eager(case, backend, compiled)
    try:
        compiled = _compile(case, backend, varying)
    except Exception as error:
        compiled = error
    stage, finding = compare_with_eager(case, backend, compiled)
    if finding.outcome not in CORRECT:
        return stage, finding
    for other in (*varying.others, *varying.long):
        with telling({SIZES: _sizes(other)}):
            stage, finding = compare_with_eager(other, backend, compiled)
        if finding.outcome not in CORRECT:
            return stage, _of_sizes(finding, other)
    for other in varying.small:
        with telling({SIZES: _sizes(other)}):
            there, found = compare_with_eager(other, backend, compiled)
        if found.outcome is Outcome.MISMATCH:
            return there, _of_sizes(found, other)
    for other in varying.refused:
        with telling({SIZES: _sizes(other)}):
            there, found = expect_refusal(case, other, backend, compiled)
        if found.outcome is Outcome.MISMATCH:
            return there, _of_sizes(found, other)
    return stage, finding


def _whole_plan(case: Case, refusing: Callable[[Iterator[Case]], Sequence[Case]] = refused) -> Plan | None:
    """All sizes that a case is called with; a bundle with the next ones of each of its members at once.

    What takes long, or has to be refused by one of them, is a call of its own, in which the others are as they are.
    ``refusing``: which of the calls with sizes apart eager refuses.
    """
    plans = [plan(member) for member in members(case)]
    found = zip(members(case), plans, strict=True)
    each = [_with_rest(member, one, refusing) for member, one in found if one is not None]
    if len(each) < len(plans) or len(plans) == 1:
        return each[0] if len(each) == len(plans) else None

    def at_once(rows: Sequence[Sequence[Case]]) -> tuple[Case, ...]:
        steps = [{at: one.inputs for at, one in enumerate(step) if one} for step in itertools.zip_longest(*rows)]
        return tuple(with_inputs(case, step) for step in steps)

    def one_by_one(rows: Sequence[Sequence[Case]]) -> tuple[Case, ...]:
        return tuple(with_inputs(case, {at: one.inputs}) for at, row in enumerate(rows) for one in row)

    return Plan(
        tuple(itertools.chain.from_iterable(one.dims for one in each)),
        at_once([one.others for one in each]),
        at_once([one.small for one in each]),
        one_by_one([one.long for one in each]),
        one_by_one([one.refused for one in each]),
    )


def _with_rest(case: Case, varying: Plan, refusing: Callable[[Iterator[Case]], Sequence[Case]]) -> Plan:
    apart = tuple(refusing(_apart(case, varying.dims)))
    return replace(varying, long=tuple(_long(case, varying.dims)), refused=apart)


def _of_sizes(finding: Finding, case: Case) -> Finding:
    sizes = _sizes(case)
    message = f"called with sizes {', '.join(map(str, sizes))}: {finding.message}"
    return replace(finding, message=message, evidence=finding.evidence | {SIZES: sizes})


def _sizes(case: Case) -> list[list[int]]:
    return [list(tensor.shape) for tensor in case.args]


def _apart(case: Case, dims: Sequence[Sequence[int]]) -> Iterator[Case]:
    """The case with one input alone larger in one of the dims that may vary."""
    for (name, tensor), axes in zip(case.inputs.items(), dims, strict=True):
        for axis in axes:
            with contextlib.suppress(NotImplementedError):  # of a dtype that eager hardly has anything for
                yield case.replace(inputs={**case.inputs, name: resized(tensor, axis, tensor.shape[axis] + 1)})


def _long(case: Case, dims: Dims) -> Iterator[Case]:
    """Of every fourth sample, the case with its first free size so large that there are millions of elements.

    No size of two dims of one input: what takes their product takes too long. Nor one with which the steps grow in
    number: ``unbind`` would give a million tensors.
    """
    if case.index % LONG_OF != 2 or case.program.differentiates:
        return
    alike = _alike(case, dims)[0]
    size = next(t.shape[axes[0]] for t, axes in zip(case.args, alike, strict=True) if axes)
    rest = max(t.numel() // size for t, axes in zip(case.args, alike, strict=True) if axes)
    if max(map(len, alike)) == 1 and rest and not _takes_more_steps(case, alike):
        yield from _at(case, alike, [lambda _: max(ELEMENTS // rest, size)], fits)


def _takes_more_steps(case: Case, dims: Dims) -> bool:
    """Whether a program gives more tensors for each of the sizes that come next."""
    try:
        counts = [results_of(other) for other in _at(case, dims, [lambda n: n, lambda n: n + 1, lambda n: n + 2])]
    except Exception:
        return False  # fake tensors do not take it: eager is asked
    return len(counts) == len(set(counts)) == 3 and counts == sorted(counts)


def _compile(case: Case, backend: Any, varying: Plan) -> Compiled:
    if not hasattr(backend, "compile_dynamic"):
        raise BackendUnsupported("the backend compiles for the sizes it is given only", stage="capture")
    torch.default_generator.manual_seed(SEED)
    return backend.compile_dynamic(case.program, case.fresh_args(), varying.dims)


def _every_size(case: Case) -> Case:
    """The case and others that are unlike it, of any size; every other one with its gradients."""
    chosen = [case, *unlike_by_turns(case, MORE)] if not (is_large(case) or draws(case)) else [case]
    found, names = [], []
    for at, each in enumerate(chosen):
        with contextlib.suppress(NotApplicable):
            found.append(_of_any_size(each, gradients=(case.index + at) % GRADIENTS_OF == GRADIENTS_OF - 1))
            names.append(f"{each.dtype}_{each.index}")
    if not found:
        raise NotApplicable("eager takes no other size")
    return together(found, names)


def _of_any_size(case: Case, *, gradients: bool) -> Case:
    if gradients:
        with contextlib.suppress(NotApplicable):  # where eager has the gradients at these sizes alone
            return _free(with_gradients(case, of_any_size=True), DYNAMIC)
    return _free(case, DYNAMIC)


EVERY_SIZE = Variant(
    "Compiled once with every size free, run at several.",
    _every_size,
    compare_at_other_sizes,
    compiled_alone=True,
    bundle_of=2,
)
LEADING_SIZE = Variant(
    "Compiled once with the leading size free, run at several.",
    lambda case: _free(case, BATCH),
    compare_at_other_sizes,
    compiled_alone=True,
    bundle_of=2,
)

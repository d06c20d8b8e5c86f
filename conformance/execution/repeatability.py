"""A second call on the same inputs: whether it gives the same again, and whether the results have memory of their own.

PyTorch promises that a result is fresh memory unless it is a view: writing to it changes no input, no other result and
nothing that a later call returns. A copy where eager returns a view is right, and so is either where PyTorch documents
"a view or a copy". Nor does it promise whether a gradient is the cotangent or a copy: its formula of ``prod`` gives the
one or the other, by the kind of tensor. Address ranges say which tensors may share memory; writing to one of them shows
that they do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.execution.memory import overlapping_pairs, overwrite
from torchstone.conformance.execution.poison import FILL, OTHER_FILL, poisoned_memory
from torchstone.conformance.execution.undefined_behavior import SEED
from torchstone.conformance.execution.verdict import Kind, Outcome
from torchstone.conformance.oracle.compare import judge
from torchstone.conformance.oracle.equality import equal, same_bits
from torchstone.conformance.oracle.finding import Finding, Observed
from torchstone.conformance.oracle.op_traits.execution import VIEW_OR_COPY
from torchstone.conformance.oracle.pytree import dense, flatten, paths
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref, leaves
from torchstone.conformance.program.program import GRADIENTS, Program

Runnable = Callable[..., Any]


DIFFER = "calls on the same inputs differ, and one from eager: "
"""How the message begins of a backend that is wrong and contradicts itself."""


def observe(function: Runnable, args: tuple[Tensor, ...], byte: int = 0, seed: int = SEED) -> Observed:
    """Run a callable from a seed; keep what it returned and what it left in its arguments.

    With a ``byte``, memory that nobody wrote to holds it while the callable runs.
    """
    torch.default_generator.manual_seed(seed)
    if not byte:
        return Observed(function(*args), args)
    with poisoned_memory(byte):
        return Observed(function(*args), args)


def check_second_call(
    case: Case, executable: Runnable, expected: Observed, first: Observed, repeats: bool = True
) -> Finding | None:
    """Call a backend that was right the first time again; return what is wrong then, None when nothing is.

    Where the bits of the second call differ there is a third, and each is compared with eager like the first. With
    ``repeats`` false the results may differ from call to call. Raises what the backend raises.
    """
    second = observe(executable, case.fresh_args(), OTHER_FILL)
    shared = _shared_with_eager(case, executable, expected, first) or _shared_across_calls(
        case, executable, first, second, repeats
    )
    if shared is not None:
        return shared
    if not repeats or same_leaves(first, second):
        return None
    third = observe(executable, case.fresh_args(), FILL)
    for number, run in ((2, second), (3, third)):
        finding = judge(case.program, case.args, expected, run)
        if finding.outcome is Outcome.MISMATCH:
            message = f"call {number} on the same inputs differs from the first, and from eager: {finding.message}"
            return Finding(finding.outcome, Kind.NONDETERMINISTIC, message, finding.evidence | {"call": number})
    return Finding(Outcome.PASS, evidence={"varies": "the bits differ from one call to the next; each is right"})


def is_nondeterministic(case: Case, executable: Runnable, first: Observed) -> bool:
    """Whether one of two further calls on the same inputs gives other results. An exception counts as one."""
    try:
        return any(not same_leaves(first, observe(executable, case.fresh_args(), byte)) for byte in (OTHER_FILL, FILL))
    except Exception:
        return True


def same_leaves(left: Observed, right: Observed) -> bool:
    """Whether two runs left the same numbers everywhere; a NaN is a NaN."""
    mine, others = (flatten((run.outputs, run.inputs)) for run in (left, right))
    return len(mine) == len(others) and all(map(equal, mine, others))


def _shared_with_eager(case: Case, executable: Runnable, expected: Observed, first: Observed) -> Finding | None:
    """A result that shares memory with an input, another result or itself, where eager's does not."""
    pairs = _pairs(first)
    if not pairs:
        return None
    outputs = len(flatten(first.outputs))
    either = {outputs + at for at in _may_be_shared(case.program)}

    def may_share(one: int, other: int) -> bool:
        """Whether one of them is such an input, or both share memory with one."""
        return other in either or any({(one, at), (other, at)} <= pairs for at in either)

    new = [pair for pair in sorted(pairs - _pairs(expected)) if not may_share(*pair)]
    if not new:
        return None
    run = observe(executable, case.fresh_args())
    named = _named(run)
    for one, other in new:
        name, written = named[one]
        if one == other:
            return _aliasing(f"elements of {name} lie in one place in memory, where eager's have each their own")
        beside, seen = named[other]
        before = dense(seen).clone()
        overwrite(written)
        if not same_bits(before, dense(seen)):
            return _aliasing(f"{name} shares memory with {beside}, where eager's does not: writing to it changes both")
    return None


def _may_be_shared(program: Program) -> set[int]:
    """The inputs, by place, with which results may share memory or not."""
    if any(VIEW_OR_COPY.has(call.operator) for call in program.every_call):
        return set(range(len(program.inputs)))
    given = [(*call.args[2:3], call.kwargs.get("grad_outputs")) for call in program.calls if call.target == GRADIENTS]
    names = {leaf.name for leaf in leaves(given) if isinstance(leaf, Ref)}
    return {at for at, name in enumerate(program.inputs) if name in names}


def _named(run: Observed) -> list[tuple[str, Any]]:
    return [*paths(run.outputs, "output"), *paths(list(run.inputs), "input")]


def _pairs(run: Observed) -> set[tuple[int, int]]:
    """The leaves of a run, by place, that may share memory: results with each other, an input or themselves."""
    outputs = flatten(run.outputs)
    found = {(i, j) for i, j in overlapping_pairs(outputs, [*outputs, *run.inputs]) if i < j}
    return found | {(i, i) for i, value in enumerate(outputs) if _overlaps_itself(value)}


def _overlaps_itself(value: Any) -> bool:
    """Whether several elements of a tensor lie in one place."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided or not value.numel():
        return False
    return any(not step and size > 1 for size, step in zip(value.shape, value.stride(), strict=True))


def _shared_across_calls(
    case: Case, executable: Runnable, first: Observed, second: Observed, repeats: bool
) -> Finding | None:
    """A result that lies in memory of an earlier call's: one of the two is not what its caller was given."""
    earlier, later = flatten((first.outputs, first.inputs)), flatten(second.outputs)
    names = [name for name, _ in _named(first)]
    for i, j in overlapping_pairs(earlier, later):
        kept = dense(later[j]).clone()
        overwrite(earlier[i])
        scribbled = dense(earlier[i]).clone()
        again = flatten(observe(executable, case.fresh_args()).outputs)
        what = f"{_named(second)[j][0]} lies in the memory of {names[i]} of an earlier call"
        if not same_bits(scribbled, dense(earlier[i])):
            return _aliasing(f"{what}: a later call overwrites what an earlier one returned")
        if repeats and len(again) == len(later) and not equal(again[j], kept):
            return _aliasing(f"{what}: writing to an earlier result changes what later calls return")
    return None


def _aliasing(message: str) -> Finding:
    return Finding(Outcome.MISMATCH, Kind.ALIASING, message)

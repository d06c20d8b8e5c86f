"""What a compiled program is called with after its example: other values, other strides, again after another program,
again as it is once it has been called often.

The calls are data (``plan_calls``): the trial makes them, and a reproducer shows those that lead to the failure. Each
is judged like the first one, beside eager on the same inputs.

A backend may refuse other values by name: ``BackendUnsupported``, ``BackendGuardError``. Any other exception is an
error, but where eager itself reads values into Python or into a size: PyTorch's tracers take those for fixed, and
check it in their own words. Other strides may be refused by any exception, for nobody promised to take them. What is
given back has to be right, always.
"""

from __future__ import annotations

import contextlib
import itertools
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.compiler._torch.tensors import flip_bits_of, storage_key
from torchstone.compiler.diagnostics import GuardError
from torchstone.conformance.backends.protocol import Backend, BackendGuardError
from torchstone.conformance.execution.current_call import telling
from torchstone.conformance.execution.failure import failure
from torchstone.conformance.execution.other_values import eager_answer, other_values, same_outputs
from torchstone.conformance.execution.poison import FILL
from torchstone.conformance.execution.repeatability import DIFFER, Runnable, is_nondeterministic, observe, same_leaves
from torchstone.conformance.execution.verdict import FAILURES, Kind, Outcome, Stage, Verdict
from torchstone.conformance.oracle.equality import equal, same_bits
from torchstone.conformance.oracle.finding import Finding, Observed
from torchstone.conformance.oracle.parts import parts_of, taken
from torchstone.conformance.oracle.pytree import flatten
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref

VALUES = "other values"
MEMORY = "the first values again"
STRIDES = "other strides"
PROGRAM = "the first values after another program"
OPTIMIZED = "the first values, optimized"
FIRST = 3
"""The number of the first of these calls: the example and the same again come before."""
CALLS = "calls"
"""The key in the evidence of the calls that were made, by what was other in them. The last is the one that failed."""

FIRST_CALL = "first-call"
"""The tag of a case that is called once and no more: what it is asked for would show there."""
_OF_FIRST_CALL = frozenset({Kind.STRUCTURE, Kind.SHAPE, Kind.DTYPE, Kind.DEVICE, Kind.VALUE, Kind.MUTATION})

TURNS, STRIDES_TURN, PROGRAM_TURN, OPTIMIZED_TURN = 4, 0, 1, 2
"""Which of the cases in a row make the backend compile again; other variants begin elsewhere in the row."""
_OF_DEFAULT = zlib.crc32(b"default")
WORDS = 120
"""Characters of a refusal that the evidence keeps."""

COMPANION = Program(
    ("x",),
    (Call("torch.mul", (Ref("x"), 3.0), {}, "y"), Call("torch.add", (Ref("x"), Ref("y")), {}, "z")),
    Ref("z"),
)
"""The other program: one that any compiler takes."""


@dataclass(frozen=True, eq=False)
class LaterCall:
    """A call: what is other in it, the inputs, and what eager gives for them.

    ``in_place``: the inputs are written into the tensors that the call before was given. ``after_companion``: another
    program is compiled and run before. ``optimized``: the program is compiled again, by ``compile_optimized``.
    """

    name: str
    case: Case
    expected: Observed
    in_place: bool = False
    after_companion: bool = False
    optimized: bool = False


def companion_args() -> tuple[Tensor, ...]:
    """What the other program is compiled for and called with."""
    return (torch.arange(12, dtype=torch.float32).reshape(3, 4),)


def plan_calls(case: Case, expected: Observed) -> Iterator[LaterCall]:
    """The calls that are made of a case, given what eager gives for it.

    For other strides, for another program and to be optimized a backend has to compile again, which takes as long as
    the rest of the trial. Of four cases in a row one is asked the first, the next the second, and the next the third.
    """
    parts = parts_of(case.program, case.args)
    found = other_values(case, expected) if len(parts) < 2 else _other_values_of_a_part(case, expected, parts)
    if found is not None:
        yield LaterCall(VALUES, *found)
    yield LaterCall(MEMORY, case, expected, in_place=True)
    turn = turn_of(case)
    if turn == STRIDES_TURN and (other := _with_other_strides(case)) is not None:
        if (answer := eager_answer(other, expected)) is not None:
            yield LaterCall(STRIDES, other, answer)
    elif turn == PROGRAM_TURN:
        yield LaterCall(PROGRAM, case, expected, after_companion=True)
    elif turn == OPTIMIZED_TURN:
        yield LaterCall(OPTIMIZED, case, expected, optimized=True)


def shows_at_first_call(verdict: Verdict) -> bool:
    """Whether a failure is one of the first call of a compiled program, or of what comes before it."""
    if verdict.outcome is Outcome.MISMATCH:
        return verdict.kind in _OF_FIRST_CALL
    return verdict.outcome is Outcome.ERROR and verdict.stage in (Stage.CAPTURE, Stage.COMPILE)


def first_call_of(case: Case) -> Case:
    """The case, to be asked nothing but its first call."""
    return case if FIRST_CALL in case.tags else case.replace(tags=(*case.tags, FIRST_CALL))


def turn_of(case: Case) -> int | None:
    """Whose turn a case is: ``STRIDES_TURN``, ``PROGRAM_TURN``, ``OPTIMIZED_TURN``, or nobody's."""
    if FIRST_CALL in case.tags:
        return None
    turn = (case.index + zlib.crc32(case.variant.encode()) - _OF_DEFAULT) % TURNS
    return turn if turn in (STRIDES_TURN, PROGRAM_TURN, OPTIMIZED_TURN) else None


def _other_values_of_a_part(
    case: Case, expected: Observed, parts: list[tuple[list[int], Program]]
) -> tuple[Case, Observed] | None:
    """Other values for one part of a program of several, by turns: the other parts stay, and are judged already.

    They are looked for with the part alone, which takes less time than the whole.
    """
    start = case.index % len(parts)
    for places, part in parts[start:] + parts[:start]:
        read = [name in part.inputs for name in case.program.inputs]
        inputs = dict(itertools.compress(case.inputs.items(), read))
        own = Observed(taken(expected.outputs, places), tuple(itertools.compress(expected.inputs, read)))
        found = other_values(case.replace(program=part, inputs=inputs), own) if inputs else None
        if found is not None:
            whole = case.replace(inputs={**case.inputs, **found[0].inputs})
            answer = eager_answer(whole, expected)
            if answer is not None and not same_outputs(expected, answer):
                return whole, answer
    return None


def check_later_calls(
    case: Case,
    backend: Backend,
    executable: Runnable,
    runs: tuple[Observed, Observed],
    judge: Callable[[Case, Observed, Observed], Finding],
    only: tuple[str, ...] = (),
) -> Finding:
    """Make the calls of a backend that was right so far, to the first failure. A pass tells in its evidence which.

    ``runs`` are eager's run of the case and the backend's, ``judge`` compares two runs of a case. With ``only``, calls
    of these names alone are made, and each is judged as a whole: of numbers that are drawn, none is known to be right.
    """
    expected, first = runs
    made: list[str] = []
    args = case.fresh_args()
    for number, call in enumerate(plan_calls(case, expected), FIRST):
        if only and call.name not in only:
            continue
        if call.after_companion and not _run_companion(backend):
            continue
        if call.optimized and not hasattr(backend, "compile_optimized"):
            continue
        args = _overwritten(args, call.case) if call.in_place else call.case.fresh_args()
        try:
            with telling({CALLS: [*made, call.name]}):
                if call.optimized:
                    executable = backend.compile_optimized(case.program, case.fresh_args())  # type: ignore[attr-defined]
                actual = observe(executable, args, FILL)
        except Exception as error:
            finding = _failed(call, error)
        else:
            right = call.expected is expected and same_leaves(first, actual)
            given = actual if only else _judged_already(call.case, runs, call.expected, actual)
            finding = Finding(Outcome.PASS) if right else judge(call.case, call.expected, given)
            if finding.kind is Kind.NONDETERMINISTIC and not is_nondeterministic(call.case, executable, actual):
                finding = replace(finding, kind=Kind.VALUE, message=finding.message.removeprefix(DIFFER))
        made.append(call.name)
        if finding.outcome not in FAILURES:
            if finding.outcome is not Outcome.PASS:
                made[-1] += f": {finding.outcome}: {finding.message.partition(chr(10))[0][:WORDS]}"
            continue
        kind = Kind.LATER_CALL if finding.outcome is Outcome.MISMATCH else ""
        message = f"call {number}, with {call.name}: {finding.message}"
        return replace(finding, kind=kind, message=message, evidence=finding.evidence | {CALLS: made})
    return Finding(Outcome.PASS, evidence={CALLS: made})


def _judged_already(case: Case, runs: tuple[Observed, Observed], wanted: Observed, actual: Observed) -> Observed:
    """The run with eager's results in place of those that were found right already: both gave the same bits before.

    Of a part of the program, all its results or none: what is right of one, an index, tells what is right of another.
    """
    outputs = (*(run.outputs for run in runs), wanted.outputs, actual.outputs)
    if not all(type(each) in (tuple, list) and len(each) == len(outputs[0]) for each in outputs):
        return actual
    same = [
        _same_results(before, right) and _same_results(first, given)
        for before, first, right, given in zip(*outputs, strict=True)
    ]
    several = isinstance(case.program.outputs, tuple | list)  # else what the one result holds belongs together
    parts = [places for places, _ in parts_of(case.program, case.args)] if several else [list(range(len(same)))]
    settled = {place for places in parts if all(same[place] for place in places) for place in places}
    found = [
        right if place in settled else given
        for place, (right, given) in enumerate(zip(wanted.outputs, actual.outputs, strict=True))
    ]
    return replace(actual, outputs=type(actual.outputs)(found))


def _same_results(one: Any, other: Any) -> bool:
    """Whether two results are the same bits in the same layout."""
    mine, others = flatten(one), flatten(other)
    return len(mine) == len(others) and all(
        left.layout == right.layout == torch.strided and left.stride() == right.stride() and same_bits(left, right)
        if isinstance(left, Tensor) and isinstance(right, Tensor)
        else equal(left, right)
        for left, right in zip(mine, others, strict=True)
    )


def _overwritten(args: tuple[Tensor, ...], case: Case) -> tuple[Tensor, ...]:
    """The tensors with the case's inputs in their memory; other tensors where they are no longer of its layout.

    One that the call before made part of a graph of autograd's is another tensor on its memory, a leaf again: what a
    program may do before it asks for gradients, it may not do after.
    """
    fresh = case.fresh_args()
    storages = [(old.untyped_storage(), new.untyped_storage()) for old, new in zip(args, fresh, strict=True)]
    same = all(old.shape == new.shape and old.stride() == new.stride() for old, new in zip(args, fresh, strict=True))
    if not same or any(old.nbytes() != new.nbytes() for old, new in storages):
        return fresh
    for old, new in storages:
        old.copy_(new, non_blocking=False)
    return tuple(tensor.detach() if tensor.requires_grad else tensor for tensor in args)


def _run_companion(backend: Backend) -> bool:
    """Compile and run another program. Whether the backend takes it; if not, its own case will tell why."""
    try:
        backend.compile(COMPANION, companion_args())(*companion_args())
    except Exception:
        return False
    return True


def _failed(call: LaterCall, error: Exception) -> Finding:
    """The finding for an exception out of a call: a refusal, or what it is in any other call."""
    _, finding = failure(error, Stage.RUN)
    if finding.outcome is not Outcome.ERROR:
        return finding
    may_refuse = (
        isinstance(error, BackendGuardError | GuardError)
        or call.name == STRIDES
        or (call.name == VALUES and _reads_values(call.case))
    )
    return replace(finding, outcome=Outcome.UNSUPPORTED) if may_refuse else finding


class _SeeReads(ComputingMode):
    """Notes whether an op was called whose size or whose Python number depends on values."""

    seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        tags = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
        self.seen = self.seen or bool(tags & set(func.tags))
        return func(*args, **(kwargs or {}))


def _reads_values(case: Case) -> bool:
    mode = _SeeReads()
    with contextlib.suppress(Exception), mode:  # a mode may be told of ops that eager would not take apart
        observe(case.program, case.fresh_args())
    return mode.seen


def _with_other_strides(case: Case) -> Case | None:
    """The case with its inputs elsewhere in memory; None where no input can be, or several share theirs."""
    if len({storage_key(tensor) for tensor in case.args}) < len(case.args):
        return None
    inputs = {name: _with_strides_of_its_own(tensor) for name, tensor in case.inputs.items()}
    return None if all(inputs[name] is tensor for name, tensor in case.inputs.items()) else case.replace(inputs=inputs)


def _with_strides_of_its_own(tensor: Tensor) -> Tensor:
    """The same values, lazy bits too, with the dims in the opposite order in memory and a gap after each element."""
    sizes = [size for size in tensor.shape if size > 1]
    if not tensor.numel() or not sizes:
        return tensor
    plain = flip_bits_of(tensor.detach(), tensor)
    order = tuple(reversed(range(plain.dim())))
    for gap in (2, 3):
        room = plain.new_zeros((*(plain.shape[dim] for dim in order), gap))
        moved = room[..., 0].permute(order)
        if _steps(moved) != _steps(plain):
            moved.copy_(plain)
            return flip_bits_of(moved, tensor)
    return tensor


def _steps(tensor: Tensor) -> list[int]:
    """The strides that are used."""
    return [step for size, step in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]

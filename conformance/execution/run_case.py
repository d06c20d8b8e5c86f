"""The one place where a case becomes a verdict: eager, the backend, the oracle.

This runs in a worker. What ends the process (a crash, a timeout) is reported by the runner, everything else here.
"""

from __future__ import annotations

import contextlib
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from torchstone.conformance.backends import composite
from torchstone.conformance.backends.protocol import Backend
from torchstone.conformance.errors import InputError
from torchstone.conformance.execution.failure import describe_error, failure, out_of_order
from torchstone.conformance.execution.later_calls import FIRST_CALL, VALUES, check_later_calls
from torchstone.conformance.execution.layers import tell_layers
from torchstone.conformance.execution.leak import detect_leak
from torchstone.conformance.execution.poison import FILL
from torchstone.conformance.execution.provenance import classify, detect_silent_fallback
from torchstone.conformance.execution.repeatability import DIFFER, check_second_call, is_nondeterministic, observe
from torchstone.conformance.execution.set_aside import compare_setting_aside
from torchstone.conformance.execution.undefined_behavior import SEED, UndefinedBehavior, undefined_behavior
from torchstone.conformance.execution.verdict import FAILURES, REFUSED, Kind, Outcome, Stage, Verdict
from torchstone.conformance.oracle.compare import judge, judging_quickly
from torchstone.conformance.oracle.finding import Finding, Observed
from torchstone.conformance.oracle.parts import parts_of
from torchstone.conformance.oracle.random import compare as randomness
from torchstone.conformance.oracle.random.unwritten import filled
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.program.program import Program
from torchstone.conformance.variants.registry import ASKED_BY_PART, RUN_BY_PLUGIN, VARIANTS

MESSAGE_LIMIT = 2000

PATCHED = "patched"
"""The key in the evidence of a case that came to another end while the harness had PyTorch patched: to which."""

# What compiling a case gave: a callable, or the exception it raised.
Compiled: TypeAlias = "Callable[..., Any] | Exception"


def compile_cases(cases: Sequence[Case], backend: Any) -> list[Compiled]:
    """Compile cases together on a backend that has ``compile_many``."""

    def programs() -> Iterator[tuple[Program, tuple[Tensor, ...]]]:
        for case, refused in zip(cases, reasons, strict=True):
            if not refused:
                torch.default_generator.manual_seed(SEED)
                yield case.program, case.fresh_args()

    cases = [randomness.without_seed(case, backend) for case in cases]
    with warnings.catch_warnings(), torch.no_grad(), composite.on_trial(backend.name):
        warnings.simplefilter("ignore")
        reasons = [undefined_behavior(case) for case in cases]
        compiled = iter(backend.compile_many(programs()))
        return [UndefinedBehavior(refused) if refused else next(compiled) for refused in reasons]


def run_case(case: Case, backend: Backend, compiled: Compiled | None = None, *, quick: bool = False) -> Verdict:
    """Compile and run the case on the backend, compare with eager, and say what became of it. Never raises.

    ``compiled`` is what ``compile_cases`` gave for the case, if it has been compiled already. ``quick``: the oracle
    makes few runs, and what it takes for a mismatch may be ill-conditioned.
    ``KeyboardInterrupt`` and ``SystemExit`` pass through.
    """
    started = time.perf_counter()
    judging = judging_quickly() if quick else contextlib.nullcontext()
    with warnings.catch_warnings(), torch.no_grad(), composite.on_trial(backend.name), judging:
        warnings.simplefilter("ignore")
        stage, finding = _guarded(case, backend, compiled)
        refused = finding.outcome is Outcome.UNSUPPORTED and stage is Stage.CAPTURE  # by torch.export, which is patched
        if (refused or finding.outcome in FAILURES) and composite.has_patched(backend.name):
            stage, finding = _unpatched(case, backend, finding)
    return make_verdict(case, backend.name, stage, finding, time.perf_counter() - started)


def _guarded(case: Case, backend: Backend, compiled: Compiled | None) -> tuple[Stage, Finding]:
    """A fault of ours is a finding too: every call into the backend and into eager is guarded further in."""
    try:
        return _run_variant(case, backend, compiled)
    except Exception as error:
        evidence = {"traceback": traceback.format_exc()}
        return Stage.COMPARE, Finding(Outcome.HARNESS_ERROR, message=describe_error(error), evidence=evidence)


def _unpatched(case: Case, backend: Backend, patched: Finding) -> tuple[Stage, Finding]:
    """Run a case again with PyTorch as it is. That finding counts, and tells where the first was another."""
    with composite.unpatched():
        stage, finding = _guarded(case, backend, None)
    if (finding.outcome, finding.kind) == (patched.outcome, patched.kind):
        return stage, finding
    told = {"outcome": str(patched.outcome), "message": patched.message[:MESSAGE_LIMIT]}
    return stage, replace(finding, evidence=finding.evidence | {PATCHED: told})


def untested_verdict(entry: Untested, backend: str) -> Verdict:
    """The verdict of what a source could not turn into a case."""
    return Verdict(
        entry.id,
        backend,
        entry.source,
        entry.op,
        entry.dtype,
        entry.variant,
        Stage.CAPTURE,
        Outcome.UNTESTED,
        "",
        entry.reason,
    )


def make_verdict(case: Case, backend: str, stage: Stage, finding: Finding, seconds: float) -> Verdict:
    """A verdict from its parts."""
    return Verdict(
        case.id,
        backend,
        case.source,
        case.op,
        case.dtype,
        case.variant,
        stage,
        finding.outcome,
        str(finding.kind),
        finding.message[:MESSAGE_LIMIT],
        finding.evidence,
        seconds,
    )


def _run_variant(case: Case, backend: Backend, compiled: Compiled | None) -> tuple[Stage, Finding]:
    """Try the case in the way of its variant. One that nobody has registered is a label, such as a fuzzer's seed."""
    case = randomness.without_seed(case, backend)
    if case.variant not in VARIANTS:
        if RUN_BY_PLUGIN not in case.tags:
            return compare_setting_aside(case, backend, compiled, compare_with_eager)
        message = f'the variant "{case.variant}" is not installed in the Python of the worker ({sys.executable})'
        return Stage.CAPTURE, Finding(Outcome.UNTESTED, message=message)
    try:
        run = VARIANTS.load(case.variant).run
    except InputError as error:
        return Stage.CAPTURE, Finding(Outcome.UNTESTED, message=str(error))
    if run is None:
        run = partial(compare_setting_aside, compare=compare_with_eager)
    stage, finding = run(case, backend, compiled)
    if finding.outcome is Outcome.UNSUPPORTED and case.variant in ASKED_BY_PART:
        return _part_by_part(case, backend, stage, finding)
    return stage, finding


def _part_by_part(case: Case, backend: Backend, stage: Stage, refused: Finding) -> tuple[Stage, Finding]:
    """Ask a backend that refuses a program for each of its parts: what it does not refuse is not to hide."""
    parts = parts_of(case.program, case.args)
    found = [compare_with_eager(part_of(case, program), backend) for _, program in parts if len(parts) > 1]
    for (places, _), (reached, finding) in zip(parts, found, strict=False):
        if finding.outcome in FAILURES:
            name = ", ".join(f"output[{place}]" for place in places)
            return reached, replace(finding, message=f"the part {name} alone: {finding.message}")
    outcomes = Counter(str(finding.outcome) for _, finding in found)
    if outcomes[Outcome.UNSUPPORTED] in (0, len(found)):
        return stage, refused
    message = f"{outcomes[Outcome.UNSUPPORTED]} of {len(found)} parts: {refused.message}"
    return stage, replace(refused, message=message, evidence=refused.evidence | {"parts": dict(outcomes)})


def part_of(case: Case, program: Program) -> Case:
    """The case with some of its calls, and the inputs that these read."""
    outputs = tuple(program.outputs.values()) if isinstance(program.outputs, dict) else program.outputs
    inputs = {name: case.inputs[name] for name in program.inputs}
    return case.replace(program=Program(program.inputs, program.calls, outputs), inputs=inputs)


def compare_with_eager(case: Case, backend: Backend, compiled: Compiled | None = None) -> tuple[Stage, Finding]:
    """Compile the case, call it, and compare with eager; where eager refuses the inputs, so has the backend to.

    ``compiled`` is used in place of compiling, and raised if it is an exception.
    """
    program = case.program
    if refused := undefined_behavior(case):
        return Stage.CAPTURE, Finding(Outcome.UNTESTED, message=refused)
    if REFUSED in case.tags:
        return expect_refusal(case, case, backend, compiled)
    try:
        expected = observe(filled(program), case.fresh_args())
        drawn = randomness.drew()
    except MemoryError:
        return Stage.CAPTURE, Finding(Outcome.UNTESTED, message="eager runs out of memory")
    except Exception as error:
        return Stage.CAPTURE, Finding(Outcome.UNTESTED, message=f"eager raises {describe_error(error)}")

    stage = Stage.COMPILE
    try:
        torch.default_generator.manual_seed(SEED)
        if isinstance(compiled, Exception):
            raise compiled
        executable = compiled or backend.compile(program, case.fresh_args())
        stage = Stage.RUN
        actual = observe(executable, case.fresh_args(), FILL)
    except Exception as error:
        return failure(error, stage)

    try:
        finding = _judge_calls(case, backend, executable, expected, actual, drawn)
    except randomness.BackendRaised as raised:
        stage, finding = failure(raised.error, Stage.RUN)
        return stage, replace(finding, message=f"called again: {finding.message}")
    if finding.outcome in (Outcome.ERROR, Outcome.OOM):
        return Stage.RUN, finding
    finding = tell_layers(classify(finding, backend, executable), case, backend, compare_with_eager)
    try:
        return Stage.COMPARE, detect_leak(detect_silent_fallback(finding, case, backend, executable), case, executable)
    except Exception as error:
        stage, finding = failure(error, Stage.RUN)
        return stage, replace(finding, message=f"called again: {finding.message}")


def _judge_calls(
    case: Case, backend: Backend, executable: Callable[..., Any], expected: Observed, actual: Observed, drawn: bool
) -> Finding:
    """The finding of the first call and of those after it. Raises ``BackendRaised`` where the second call raises.

    What is seldom drawn is not seen in a few seeds: before a number is called wrong, eager draws from many.
    """
    free = randomness.undetermined(case, drawn)

    def judge_run(case: Case, expected: Observed, actual: Observed) -> Finding:
        nonlocal free
        finding = None if free else _compare(case.program, case, executable, expected, actual)
        if finding is not None and finding.outcome is Outcome.MISMATCH:
            free = randomness.undetermined(case, drawn or randomness.draws(case), randomness.MORE_RESEEDS)
        return randomness.compare(free, case, backend, executable, expected, actual) if free or not finding else finding

    finding = judge_run(case, expected, actual)
    if FIRST_CALL in case.tags:
        return finding
    finding = _with_second_call(finding, case, executable, expected, actual, repeats=not free)
    if finding.kind == Kind.NONDETERMINISTIC and not free:
        free = randomness.undetermined(case, drawn, randomness.MORE_RESEEDS)
        if free:
            finding = randomness.compare(free, case, backend, executable, expected, actual)
            finding = _with_second_call(finding, case, executable, expected, actual, repeats=False)
    if finding.outcome not in RIGHT_SO_FAR:
        return finding
    runs, only = (expected, actual), (VALUES,) if free else ()
    return _joined(finding, check_later_calls(case, backend, executable, runs, judge_run, only))


def expect_refusal(case: Case, refused: Case, backend: Backend, compiled: Compiled | None) -> tuple[Stage, Finding]:
    """Compile a case and call it with inputs that eager refuses: the backend has to refuse them, too.

    Where the case itself is refused, the backend may refuse it at any stage. One that is out of order since an earlier
    call, as a GPU is after a failed assertion, is not asked: it would refuse anything.
    """
    if reason := out_of_order(backend):
        return Stage.CAPTURE, Finding(Outcome.UNTESTED, message=reason)
    if reason := undefined_behavior(case) or (undefined_behavior(refused) if refused is not case else ""):
        return Stage.CAPTURE, Finding(Outcome.UNTESTED, message=reason)
    try:
        torch.default_generator.manual_seed(SEED)
        refused.program(*refused.fresh_args())
    except Exception as error:
        eager_error = describe_error(error)
    else:
        return Stage.CAPTURE, Finding(Outcome.UNTESTED, message="eager takes it")
    stage = Stage.COMPILE
    try:
        if isinstance(compiled, Exception):
            raise compiled
        executable = compiled or backend.compile(case.program, case.fresh_args())
        stage = Stage.RUN
        executable(*refused.fresh_args())
    except Exception as error:
        failed, finding = failure(error, stage)
        if finding.outcome is Outcome.ERROR and (case is refused or stage is Stage.RUN):
            return failed, Finding(
                Outcome.PASS, evidence={"eager": eager_error, "backend": finding.message[:MESSAGE_LIMIT]}
            )
        return failed, finding
    return Stage.COMPARE, Finding(Outcome.MISMATCH, Kind.ACCEPTED, f"gives a result, where eager raises {eager_error}")


def _compare(
    program: Program, case: Case, executable: Callable[..., Any], expected: Observed, actual: Observed
) -> Finding:
    """Compare a run of the backend with eager's, and see whether one of the two contradicts itself."""
    finding = judge(program, case.args, expected, actual)
    if (
        finding.outcome is Outcome.MISMATCH
        and finding.kind is Kind.VALUE
        and _eager_depends_on_layout(program, case, expected)
    ):
        in_rows, args = _run_row_major(program, case)
        finding = judge(program, args, in_rows, Observed(actual.outputs, in_rows.inputs))
        if finding.outcome is not Outcome.MISMATCH:
            return Finding(Outcome.UNTESTED, message=f"{_LAYOUT}; the backend gives those of row-major inputs")
    if finding.kind in (Kind.VALUE, Kind.MUTATION) and is_nondeterministic(case, program, expected):
        return Finding(Outcome.UNTESTED, message="eager's values depend on memory that nobody wrote to")
    if finding.outcome is Outcome.MISMATCH and is_nondeterministic(case, executable, actual):
        message = f"{DIFFER}{finding.message}"
        return Finding(finding.outcome, Kind.NONDETERMINISTIC, message, finding.evidence)
    return finding


RIGHT_SO_FAR = (Outcome.PASS, Outcome.ILL_CONDITIONED)


def _with_second_call(
    finding: Finding, case: Case, executable: Callable[..., Any], expected: Observed, first: Observed, *, repeats: bool
) -> Finding:
    """The finding of the first calls on the same inputs, given that of the first."""
    if finding.outcome not in RIGHT_SO_FAR:
        return finding
    try:
        return _joined(finding, check_second_call(case, executable, expected, first, repeats=repeats))
    except Exception as error:
        raise randomness.BackendRaised(error) from error


def _joined(finding: Finding, later: Finding | None) -> Finding:
    """The finding of all calls, given that of the first, which was right, and what came to light after it."""
    if later is None or later.outcome is not Outcome.PASS:
        return later or finding
    return replace(finding, evidence=finding.evidence | later.evidence)


_LAYOUT = "eager gives other values for these inputs than for the same ones in row-major memory"


def _run_row_major(program: Program, case: Case) -> tuple[Observed, tuple[Tensor, ...]]:
    """What eager gives for row-major copies of the inputs, and these."""
    args = tuple(tensor.clone(memory_format=torch.contiguous_format) for tensor in case.fresh_args())
    return observe(program, tuple(tensor.clone() for tensor in args)), args


def _eager_depends_on_layout(program: Program, case: Case, expected: Observed) -> bool:
    """Whether eager contradicts itself: a value is no matter of where its inputs lie in memory.

    (The median of rows that are one in memory is of what lies behind it.)
    """
    if all(tensor.is_contiguous() for tensor in case.args):
        return False
    try:
        in_rows, args = _run_row_major(program, case)
    except Exception:
        return False
    return judge(program, args, in_rows, Observed(expected.outputs, in_rows.inputs)).outcome is Outcome.MISMATCH

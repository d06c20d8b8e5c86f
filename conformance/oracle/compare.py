"""The judgement: from what eager and the backend gave, to pass, mismatch or ill-conditioned, with the evidence.

In order, each step only on the numbers the one before did not settle:

1. structure, layout, shape, dtype; integers and bools exactly; floating numbers within the dtype's ULPs of eager's,
   zeros and NaN with their sign where each step of the program decides it;
2. the float64 run: the backend may be no further from it than eager is, within a factor and the ULPs, element by
   element, where inexact steps are given the room of the rounding model;
3. conditioning: what eager itself gives when its inputs move by one ULP, or what float64 gives when steps round
   differently, is ``ill-conditioned``; such a run is searched for (``perturbation.search``). Not so when the inputs lie
   exactly on the discontinuity (a tie to round, an edge of a domain): the function's value there is defined, and the
   backend has it wrong;
4. overflow: what some order of the steps gives where they leave the dtype's range is ``ill-conditioned`` too, and so
   is the NaN of a documented formula that eager's kernel loses.

All of it is done in rounds of growing cost (``Effort``), each with every choice that PyTorch leaves open (ties, signs
of vectors, factors of zero): a right answer by another choice is not to cost a search.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.execution.memory import find_stray_writes
from torchstone.conformance.execution.verdict import EAGER_FURTHER, Kind, Outcome
from torchstone.conformance.oracle.ambiguity.factorizations import derivation
from torchstone.conformance.oracle.ambiguity.phases import phase_ambiguity
from torchstone.conformance.oracle.ambiguity.saturation import saturation_ambiguity
from torchstone.conformance.oracle.ambiguity.ties import TieBreaking
from torchstone.conformance.oracle.ambiguity.zero_factor import zero_factor_ambiguity
from torchstone.conformance.oracle.elementwise import (
    error_bound,
    no_further_than_eager,
    within_reference,
    within_ulps,
)
from torchstone.conformance.oracle.equality import equal_tensors, same_bits, same_numbers
from torchstone.conformance.oracle.evidence import FURTHER, Bounds, describe_worst, eager_is_further, inexact
from torchstone.conformance.oracle.exactness.nan_sign import different_nan_signs, nan_sign_ambiguity
from torchstone.conformance.oracle.exactness.signed_zero import different_zero_signs
from torchstone.conformance.oracle.exactness.single_rounding import misrounded
from torchstone.conformance.oracle.overflow.conversions import undefined_elements
from torchstone.conformance.oracle.parts import parts_of, read_apart, taken
from torchstone.conformance.oracle.perturbation.conditioning import (
    ill_conditioned,
    nan_lost_by_eager,
    overflow_order,
    rounding_reaches,
)
from torchstone.conformance.oracle.pytree import dense, describe, flatten, paths, shape_of
from torchstone.conformance.oracle.reference.leaf import (
    NUMBERS,
    Effort,
    Leaf,
    eager_nearby,
    reference_of,
    refine_spread,
    scipy_reference,
    with_spread,
)
from torchstone.conformance.oracle.reference.runs import Referee
from torchstone.conformance.oracle.reference.shared import referee_of
from torchstone.conformance.oracle.tolerances import NO_REFERENCE_FACTOR, real_dtype, tolerance
from torchstone.conformance.oracle.ulp import precision, representable, ulp, wide
from torchstone.conformance.program.program import Program
from torchstone.conformance.program.tensor_storage import copy_tensors


@dataclass(frozen=True)
class Observed:
    """What a run left: the value it returned, and the input tensors as it left them."""

    outputs: Any
    inputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class Finding:
    """``outcome`` is pass, mismatch or ill-conditioned. ``evidence`` holds JSON values only."""

    outcome: Outcome
    kind: str = ""
    message: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the backend was found right."""
        return self.outcome is Outcome.PASS


PASS = Finding(Outcome.PASS)
_OPEN = Finding(Outcome.PASS, evidence={"rule": "equal up to what PyTorch leaves open"})


def judge(
    program: Program,
    args: tuple[Tensor, ...],
    expected: Observed,
    actual: Observed,
    *,
    seed: int | None = None,
    referee: Referee | None = None,
) -> Finding:
    """Compare a backend's run of ``program`` on ``args`` with eager's. ``args`` are pristine and stay so.

    ``seed`` is given of a program that draws at random, where the backend draws what eager does from that seed.
    ``referee``: that of the program on ``args``, with the runs made for an answer before this one.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same_form = shape_of(expected.outputs) == shape_of(actual.outputs)
        parts = parts_of(program, args) if seed is None and same_form else []
        settled, stray, _ = find_stray_writes(args, expected.inputs, actual.inputs)
        if len(parts) < 2 or stray or not read_apart(program, parts, settled):
            return _judge_part(program, args, expected, actual, seed, referee)
        findings = []
        for places, part in parts:
            read = [name in part.inputs for name in program.inputs]
            own, wanted_inputs, given_inputs = (
                tuple(itertools.compress(tensors, read)) for tensors in (args, expected.inputs, actual.inputs)
            )
            wanted = Observed(taken(expected.outputs, places), wanted_inputs)
            given = Observed(taken(actual.outputs, places), given_inputs)
            inputs = [program.inputs.index(name) for name in part.inputs]
            findings.append(_at_place(places, inputs, _judge_part(part, own, wanted, given)))
            if findings[-1].outcome is Outcome.MISMATCH:
                break
        return _of_parts(findings)


def _at_place(places: list[int], inputs: list[int], finding: Finding) -> Finding:
    """The finding on a part, with the names that its results and inputs have in the whole program."""

    def whole(text: str) -> str:
        text = re.sub(r"^((?:mutated: )?input)\[(\d+)\]", lambda found: f"{found[1]}[{inputs[int(found[2])]}]", text)
        alone = len(places) == 1 and text.startswith("output")
        return f"output[{places[0]}]{text.removeprefix('output')}" if alone else text

    evidence = finding.evidence | ({"where": whole(finding.evidence["where"])} if "where" in finding.evidence else {})
    return replace(finding, message=whole(finding.message), evidence=evidence)


def _of_parts(findings: list[Finding]) -> Finding:
    """The finding on a program by those on its parts: the worst, or a pass with all that they tell."""
    for outcome in (Outcome.MISMATCH, Outcome.ILL_CONDITIONED):
        for finding in findings:
            if finding.outcome is outcome:
                return finding
    passed = [finding for finding in findings if finding.ok]
    if not passed:
        return findings[0]
    rules = sorted({rule for finding in passed for rule in finding.evidence.get("rule", "").split(", ") if rule})
    evidence = {key: value for finding in reversed(passed) for key, value in finding.evidence.items()}
    return Finding(Outcome.PASS, evidence=evidence | ({"rule": ", ".join(rules)} if rules else {}))


def _judge_part(
    program: Program,
    args: tuple[Tensor, ...],
    expected: Observed,
    actual: Observed,
    seed: int | None = None,
    referee: Referee | None = None,
) -> Finding:
    referee = referee or referee_of(program, args, seed=seed)
    choices: list[tuple[Referee, Observed, Observed]] | None = None
    for effort in Effort:  # what another choice among right answers settles is not to cost more runs
        finding, given = _judge(referee, expected, actual, effort), actual
        if not finding.ok:
            finding, given = _judge_defined(referee, finding, expected, actual, effort)
        if finding.kind != Kind.VALUE:
            return finding
        if seed is None and _right_with_ties_broken(program, args, given, effort):
            return _OPEN
        if _right_by_factors(program, args, expected, given, seed, effort):
            return _OPEN
        if choices is None:
            choices = [choice for ambiguity in _AMBIGUITIES for choice in ambiguity(referee, expected, given)]
        others = [_judge(*choice, effort) for choice in choices]
        if any(beside.ok for beside in others):
            return _OPEN
    # The other choice is as right, and so is what is ill-conditioned beside it.
    return next((beside for beside in others if beside.outcome is Outcome.ILL_CONDITIONED), finding)


_AMBIGUITIES = (nan_sign_ambiguity, zero_factor_ambiguity, saturation_ambiguity, phase_ambiguity)


def _judge_defined(
    referee: Referee, finding: Finding, expected: Observed, actual: Observed, effort: Effort
) -> tuple[Finding, Observed]:
    """The finding, and the run it is of, given that of the whole run: where eager converts numbers out of range, what
    does not depend on these is compared."""
    converts, masks = undefined_elements(referee.program, referee.pristine)
    if not converts:
        return finding, actual
    if masks is None:
        return Finding(Outcome.UNTESTED, message=f"{_UNDEFINED} decide sizes or arguments"), actual
    wanted, given = (flatten((run.outputs, run.inputs)) for run in (expected, actual))
    count = sum(int(mask.sum()) for mask in masks if mask is not None)
    if not count or finding.kind not in ("", Kind.VALUE, Kind.MUTATION):
        return finding, actual
    outputs = len(flatten(actual.outputs))
    for at, (mask, value) in enumerate(zip(masks, wanted, strict=True)):
        if mask is not None and bool(mask.any()):
            given[at] = torch.where(mask, dense(value), dense(given[at]))
    leaves = given[:outputs] if isinstance(actual.outputs, tuple | list | dict) else given[0]
    actual = Observed(leaves, tuple(given[outputs:]))
    expected = replace(expected, outputs=wanted[:outputs]) if leaves is not given[0] else expected
    finding = _judge(referee, expected, actual, effort)
    if finding.ok and all(mask is not None and mask.numel() and bool(mask.all()) for mask in masks[:outputs]):
        return Finding(Outcome.UNTESTED, message=f"{_UNDEFINED} decide all numbers"), actual
    return replace(finding, evidence=finding.evidence | {"undefined": count}), actual


_UNDEFINED = "conversions to integers out of range, which PyTorch leaves open,"


def _right_with_ties_broken(program: Program, args: tuple[Tensor, ...], actual: Observed, effort: Effort) -> bool:
    """Whether the backend is right beside eager with another choice among equal elements."""
    given = flatten(actual.outputs)
    # Integer values may pass for indices: from the other end the indices come first.
    return any(_right_beside(program, args, actual, some, effort) for some in (given, given[::-1]))


def _right_beside(
    program: Program, args: tuple[Tensor, ...], actual: Observed, given: list[Any], effort: Effort
) -> bool:
    inputs = copy_tensors(args)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), TieBreaking(given) as ties:
            outputs = program(*inputs)
    except Exception:  # what eager does not run under a mode, it has but one choice for
        return False
    referee = Referee(program, args, around=lambda: TieBreaking(given))
    return ties.made and _judge(referee, Observed(outputs, inputs), actual, effort).ok


def _right_by_factors(
    program: Program, args: tuple[Tensor, ...], expected: Observed, actual: Observed, seed: int | None, effort: Effort
) -> bool:
    """Whether the backend is right in what stays the same whichever results are given."""
    derive = derivation(program)
    if derive is None:
        return False
    try:
        wanted = Observed(derive(copy_tensors(args), expected.outputs), expected.inputs)
        given = Observed(derive(copy_tensors(args), actual.outputs), actual.inputs)
    except Exception:  # factors that do not multiply
        return False
    return _judge(referee_of(program, args, derive, seed), wanted, given, effort).ok


def _judge(referee: Referee, expected: Observed, actual: Observed, effort: Effort = Effort.SEARCH) -> Finding:
    targets = [call.target for call in referee.program.every_call]
    rows, given = (list(paths(run.outputs, "output")) for run in (expected, actual))
    mismatch = _structure(rows, given, expected, actual)
    if mismatch is not None:
        return mismatch
    findings: list[Finding] = []
    for index, ((name, wanted), (_, value)) in enumerate(zip(rows, given, strict=True)):
        findings.append(_leaf(name, wanted, value, Leaf(referee, index, targets, effort=effort)))
        if findings[-1].outcome is Outcome.MISMATCH:
            return findings[-1]
    settled, stray, evidence = find_stray_writes(referee.pristine, expected.inputs, actual.inputs)
    if stray:
        return Finding(Outcome.MISMATCH, Kind.MUTATION, f"mutated: {stray}", evidence)
    for index in (index for index, done in enumerate(settled) if not done):
        wanted, value = expected.inputs[index], actual.inputs[index]
        untouched = same_bits(wanted, referee.pristine[index])
        leaf = Leaf(referee, len(rows) + index, targets, strict=untouched, effort=effort)
        finding = _leaf(f"input[{index}]", wanted, value, leaf)
        if finding.kind:
            return replace(finding, kind=Kind.MUTATION, message=f"mutated: {finding.message}")
        findings.append(finding)
    for finding in findings:
        if finding.outcome is Outcome.ILL_CONDITIONED:
            return finding
    further_off = next((f.evidence[EAGER_FURTHER] for f in findings if EAGER_FURTHER in f.evidence), None)
    rules = {finding.evidence["rule"] for finding in findings if "rule" in finding.evidence}
    if not rules:
        return PASS
    evidence = {"rule": ", ".join(sorted(rules))} | ({EAGER_FURTHER: further_off} if further_off else {})
    return Finding(Outcome.PASS, evidence=evidence)


def _structure(
    rows: list[tuple[str, Any]], given: list[tuple[str, Any]], expected: Observed, actual: Observed
) -> Finding | None:
    if [name for name, _ in rows] == [name for name, _ in given]:
        return None
    what = f"expected {shape_of(expected.outputs)}, got {shape_of(actual.outputs)}"
    return Finding(Outcome.MISMATCH, Kind.STRUCTURE, f"the results have another structure: {what}")


def _leaf(name: str, expected: Any, actual: Any, leaf: Leaf) -> Finding:
    if isinstance(expected, Tensor) != isinstance(actual, Tensor):
        return Finding(Outcome.MISMATCH, Kind.STRUCTURE, f"{name}: expected a {_kind(expected)}, got a {_kind(actual)}")
    if not isinstance(expected, Tensor):
        return _scalar(name, expected, actual, leaf)
    if expected.layout != actual.layout or expected.is_quantized != actual.is_quantized:
        return Finding(Outcome.MISMATCH, Kind.STRUCTURE, f"{name}: expected {expected.layout}, got {actual.layout}")
    if expected.shape != actual.shape:
        message = f"{name}: expected {describe(expected)}, got {describe(actual)}"
        return Finding(Outcome.MISMATCH, Kind.SHAPE, message)
    if expected.dtype != actual.dtype:
        message = f"{name}: expected {describe(expected)}, got {describe(actual)}"
        return Finding(Outcome.MISMATCH, Kind.DTYPE, message)
    if expected.device != actual.device:
        message = f"{name}: expected a tensor on {expected.device}, got one on {actual.device}"
        return Finding(Outcome.MISMATCH, Kind.DEVICE, message)
    if same_bits(expected, actual):
        return PASS
    expected, actual = dense(expected), dense(actual)
    finding = _tensor(name, expected, actual, leaf)
    return (_signs(name, expected, actual, leaf) or finding) if finding.ok else finding


def _signs(name: str, expected: Tensor, actual: Tensor, leaf: Leaf) -> Finding | None:
    """A mismatch where zeros or NaN have another sign than eager's, and eager's is part of the result."""
    bad = different_nan_signs(actual, expected)
    if bool(bad.any()) and (leaf.strict or leaf.referee.keeps_nan_signs):
        bounds = Bounds(None, note="the sign of NaN")
        return _report(name, expected, actual, bad, bounds, Outcome.MISMATCH, leaf.dtype_of(expected))
    return _zeros(name, expected, actual, leaf)


def _zeros(name: str, expected: Tensor, actual: Tensor, leaf: Leaf) -> Finding | None:
    """A mismatch where zeros have another sign than eager's, and eager's is part of the result."""
    bad = different_zero_signs(actual, expected)
    if not bool(bad.any()):
        return None
    truth = None
    if not leaf.strict:
        truth, _ = reference_of(expected, leaf) if leaf.referee.keeps_zero_signs else (None, "")
        if truth is None:
            return None
        bad &= (truth.values == 0) & ~different_zero_signs(truth.values, expected)
    if not bool(bad.any()):
        return None
    bounds = Bounds(None if truth is None else truth.values, note="the sign of zero")
    return _report(name, expected, actual, bad, bounds, Outcome.MISMATCH, leaf.dtype_of(expected))


def _kind(value: Any) -> str:
    return "tensor" if isinstance(value, Tensor) else type(value).__name__


def _scalar(name: str, expected: Any, actual: Any, leaf: Leaf) -> Finding:
    """A number, string or None of the program's results; floats were read out of a tensor of the program's dtype."""
    if type(expected) is not type(actual) and not (_plain(expected) and _plain(actual)):
        message = f"{name}: expected a {_kind(expected)}, got a {_kind(actual)}"
        return Finding(Outcome.MISMATCH, Kind.DTYPE, message)
    if expected == actual:
        return PASS
    if type(expected) in NUMBERS:
        dtype = real_dtype(leaf.referee.leaf_dtype(leaf.index) or leaf.referee.dtype)
        dtype = torch.promote_types(dtype, torch.complex32) if isinstance(expected, complex) else dtype
        with contextlib.suppress(OverflowError, RuntimeError):  # an integer of more than 64 bits
            pair = [torch.tensor(value, dtype=NUMBERS[type(expected)]) for value in (expected, actual)]
            return _tensor(name, pair[0], pair[1], replace(leaf, dtype=dtype))
    return Finding(Outcome.MISMATCH, Kind.VALUE, f"{name}: expected {expected!r}, got {actual!r}")


def _plain(value: Any) -> bool:
    return isinstance(value, tuple | list)


def _tensor(name: str, expected: Tensor, actual: Tensor, leaf: Leaf) -> Finding:
    if not expected.numel() or equal_tensors(expected, actual):
        return PASS
    if not inexact(expected):
        return _discrete(name, expected, actual, leaf)
    finding = _floating(name, expected, actual, leaf)
    return (finding if finding.ok or leaf.strict else _widened(name, expected, actual, leaf)) or finding


def _widened(name: str, expected: Tensor, actual: Tensor, leaf: Leaf) -> Finding | None:
    """The finding where numbers were rounded to fewer bits and then widened, as eager's and the backend's show: these
    count in the ULPs of fewer bits, and all others in their own. None if there are no such numbers."""
    coarse, dtype = leaf.referee.leaf_dtype(leaf.index), leaf.dtype_of(expected)
    if coarse is None or precision(coarse) >= precision(dtype):
        return None
    narrow = representable(wide(expected), coarse) & representable(wide(actual), coarse)
    if not bool(narrow.any()):
        return None
    coarse = torch.promote_types(coarse, torch.complex32) if expected.is_complex() else coarse
    narrowed, rest = (torch.where(narrow, *pair) for pair in ((actual, expected), (expected, actual)))
    findings = [
        _floating(name, expected, narrowed, replace(leaf, dtype=coarse)),
        PASS if equal_tensors(expected, rest) else _floating(name, expected, rest, leaf),
    ]
    worst = (Outcome.MISMATCH, Outcome.ILL_CONDITIONED, Outcome.PASS)
    return min(findings, key=lambda finding: worst.index(finding.outcome))


def _floating(name: str, expected: Tensor, actual: Tensor, leaf: Leaf) -> Finding:
    """The finding on floating or complex numbers, in the ULPs of one dtype."""
    dtype = leaf.dtype_of(expected)
    row = tolerance(dtype, leaf.targets)
    e, b = wide(expected), wide(actual)
    if leaf.strict:
        return _report(name, expected, actual, ~same_numbers(b, e), Bounds(), Outcome.MISMATCH, dtype)
    bad = ~within_ulps(b, e, dtype, row.ulps, row.tiny)
    if not bool(bad.any()):
        return _single_rounding(name, expected, actual, leaf) or Finding(Outcome.PASS, evidence={"rule": "same-dtype"})
    beyond = bad.clone()
    truth, note = reference_of(expected, leaf)
    if truth is None:
        bad &= ~within_ulps(b, e, dtype, NO_REFERENCE_FACTOR * row.ulps, row.tiny)
        rule = f"wider tolerance: {note}"
    else:
        bad &= ~within_reference(b, e, truth, dtype, row)
        rule = "float64"
        if bool(bad.any()):
            truth = with_spread(truth, expected, leaf)
            bad &= ~within_reference(b, e, truth, dtype, row)
        if bool(bad.any()) and leaf.effort > Effort.FEW_RUNS:
            truth = refine_spread(truth, expected, bad, leaf)
            bad &= ~within_reference(b, e, truth, dtype, row)
        if bool(bad.any()) and leaf.effort > Effort.FEW_RUNS:
            truth = eager_nearby(truth, expected, dtype, leaf)
            bad &= ~within_reference(b, e, truth, dtype, row)
        if bool(bad.any()) and (exact := scipy_reference(truth, leaf)) is not None:
            bad &= ~within_reference(b, e, exact, dtype, row)
            rule = "SciPy"
            truth = exact
    bounds = Bounds(bound=NO_REFERENCE_FACTOR * row.ulps * ulp(e.abs(), dtype) + row.tiny, row=row, note=note)
    better = torch.zeros_like(bad)
    if truth is not None:
        better = beyond & eager_is_further(b, e, truth.values)
        bounds = Bounds(truth.values, truth.spread, error_bound(e, truth, dtype, row), row, note)
    if not bool(bad.any()):
        evidence: dict[str, Any] = {"rule": rule}
        if bool(better.any()):
            _, shown = describe_worst(name, expected, actual, better, bounds, dtype)
            keys = ("where", "index", "expected", "actual", "float64", "float64_error", "eager_error", "count", "of")
            evidence[EAGER_FURTHER] = {"meaning": FURTHER, **{key: shown[key] for key in keys}}
        return Finding(Outcome.PASS, evidence=evidence)
    if leaf.effort is Effort.FEW_RUNS:
        return _report(name, expected, actual, bad, bounds, Outcome.MISMATCH, dtype)
    soft = bad & nan_lost_by_eager(b, e, dtype, leaf)
    if truth is not None and bool((few_digits := bad & ~soft & no_further_than_eager(b, e, truth.values)).any()):
        soft |= few_digits & ~rounding_reaches(e, truth, leaf)
    if bool((bad & ~soft).any()):
        soft |= bad & overflow_order(b, e, bad & ~soft, dtype, row, leaf)
    if bool((bad & ~soft).any()):
        soft |= bad & ill_conditioned(b, e, truth, bad & ~soft, dtype, row, leaf)
    hard = bad & ~soft
    outcome = Outcome.MISMATCH if bool(hard.any()) else Outcome.ILL_CONDITIONED
    return _report(name, expected, actual, hard if bool(hard.any()) else soft, bounds, outcome, dtype)


def _single_rounding(name: str, expected: Tensor, actual: Tensor, leaf: Leaf) -> Finding | None:
    """A mismatch where the one operation of a program is not rounded to the nearest number, as eager rounds it."""
    dtype = expected.dtype
    if dtype.is_complex or dtype is torch.float64 or leaf.referee.rounds_once != dtype:
        return None
    truth = leaf.other(leaf.referee.float64, expected)
    if truth is None:
        return None
    bad = misrounded(wide(actual), wide(expected), truth, dtype)
    if not bool(bad.any()):
        return None
    bounds = Bounds(truth, note="one operation, which is not rounded to the nearest number")
    return _report(name, expected, actual, bad, bounds, Outcome.MISMATCH, dtype)


def _discrete(name: str, expected: Tensor, actual: Tensor, leaf: Leaf) -> Finding:
    bad = expected != actual
    if leaf.strict:
        return _report(name, expected, actual, bad, Bounds(), Outcome.MISMATCH, expected.dtype)
    referee = leaf.referee
    truth = leaf.other(referee.float64, expected)
    soft = torch.zeros_like(bad)
    if truth is not None:
        more = [run for _, run in referee.roundings_scattered.first] if leaf.effort > Effort.FEW_RUNS else []
        for run in [truth, *leaf.others(referee.rounded_runs + more, expected)]:
            soft |= run == actual
    if leaf.effort > Effort.FEW_RUNS and not referee.all_exact:
        near_by, on_edge = torch.zeros_like(bad), torch.zeros_like(bad)
        for run in leaf.others(referee.ulp_perturbed, expected):
            near_by |= run == actual
        for run in leaf.others(referee.sub_ulp_perturbed, expected):
            on_edge |= run == actual
        soft |= near_by & ~on_edge
    outcome = Outcome.MISMATCH if bool((bad & ~soft).any()) else Outcome.ILL_CONDITIONED
    shown = bad & ~soft if outcome is Outcome.MISMATCH else bad
    bounds = Bounds(truth, note=referee.float64.problem)
    return _report(name, expected, actual, shown, bounds, outcome, expected.dtype)


def _report(
    name: str, expected: Tensor, actual: Tensor, bad: Tensor, bounds: Bounds, outcome: Outcome, dtype: torch.dtype
) -> Finding:
    message, evidence = describe_worst(name, expected, actual, bad, bounds, dtype)
    return Finding(outcome, Kind.VALUE if outcome is Outcome.MISMATCH else "", message, evidence)

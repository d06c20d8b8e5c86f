"""The judgement: from what eager and the backend gave, to pass, mismatch or ill-conditioned, with the evidence.

In order, each step only on the numbers the one before did not settle:

1. structure, layout, shape, dtype; integers and bools exactly; floating numbers within the dtype's ULPs of eager's,
   zeros with their sign where each step of the program decides it;
2. the float64 run: the backend may be no further from it than eager is, within a factor and the ULPs, element by
   element, where inexact steps are given the room of the rounding model;
3. conditioning: what eager itself gives when its inputs move by one ULP, or what float64 gives when steps round
   differently, is ``ill-conditioned``. Not so when the inputs lie exactly on the discontinuity (a tie to round, an
   edge of a domain): the function's value there is defined, and the backend has it wrong;
4. overflow: what some order of the steps gives where they leave the dtype's range is ``ill-conditioned`` too, and so
   is the NaN of a documented formula that eager's kernel loses.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.literals import dtype_name
from torchstone.conformance.oracle.choices import Choice
from torchstone.conformance.oracle.invariants import derivation
from torchstone.conformance.oracle.memory import same_bits, touched
from torchstone.conformance.oracle.referee import CALM, Referee, Run
from torchstone.conformance.oracle.special import second_opinion
from torchstone.conformance.oracle.tree import dense, describe, flatten, paths, shape_of
from torchstone.conformance.oracle.ulp import ulp, wide
from torchstone.conformance.oracle.values import Reference, among, near, refereed, same
from torchstone.conformance.oracle.zeros import other_signs
from torchstone.conformance.program import Program
from torchstone.conformance.storages import fresh
from torchstone.conformance.tolerances import WIDER, Tolerance, tolerance
from torchstone.conformance.verdict import Kind, Outcome


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


def judge(program: Program, args: tuple[Tensor, ...], expected: Observed, actual: Observed) -> Finding:
    """Compare a backend's run of ``program`` on ``args`` with eager's. ``args`` are pristine and stay so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        finding = _judge(Referee(program, args), expected, actual)
        if finding.kind != Kind.VALUE:
            return finding
        if _chosen(program, args, actual) or _derived(program, args, expected, actual):
            return Finding(Outcome.PASS, evidence={"rule": "equal up to what PyTorch leaves open"})
        return finding


def _chosen(program: Program, args: tuple[Tensor, ...], actual: Observed) -> bool:
    """Whether the backend is right beside eager with another choice among equal elements."""
    given = flatten(actual.outputs)
    # Integer values may pass for indices: from the other end the indices come first.
    return any(_right_beside(program, args, actual, some) for some in (given, given[::-1]))


def _right_beside(program: Program, args: tuple[Tensor, ...], actual: Observed, given: list[Any]) -> bool:
    inputs = fresh(args)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), Choice(given) as choice:
            outputs = program(*inputs)
    except Exception:  # what eager does not run under a mode, it has but one choice for
        return False
    referee = Referee(program, args, around=lambda: Choice(given))
    return choice.made and _judge(referee, Observed(outputs, inputs), actual).ok


def _derived(program: Program, args: tuple[Tensor, ...], expected: Observed, actual: Observed) -> bool:
    """Whether the backend is right in what stays the same whichever results are given."""
    derive = derivation(program)
    if derive is None:
        return False
    try:
        wanted = Observed(derive(fresh(args), expected.outputs), expected.inputs)
        given = Observed(derive(fresh(args), actual.outputs), actual.inputs)
    except Exception:  # factors that do not multiply
        return False
    return _judge(Referee(program, args, derive), wanted, given).ok


def _judge(referee: Referee, expected: Observed, actual: Observed) -> Finding:
    targets = [call.target for call in referee.program.calls]
    rows, given = (list(paths(run.outputs, "output")) for run in (expected, actual))
    mismatch = _structure(rows, given, expected, actual)
    if mismatch is not None:
        return mismatch
    findings: list[Finding] = []
    for index, ((name, wanted), (_, value)) in enumerate(zip(rows, given, strict=True)):
        findings.append(_leaf(name, wanted, value, _Context(referee, index, targets)))
        if findings[-1].outcome is Outcome.MISMATCH:
            return findings[-1]
    settled, stray, evidence = touched(referee.pristine, expected.inputs, actual.inputs)
    if stray:
        return Finding(Outcome.MISMATCH, Kind.MUTATION, f"mutated: {stray}", evidence)
    for index in (index for index, done in enumerate(settled) if not done):
        wanted, value = expected.inputs[index], actual.inputs[index]
        untouched = same_bits(wanted, referee.pristine[index])
        context = _Context(referee, len(rows) + index, targets, strict=untouched)
        finding = _leaf(f"input[{index}]", wanted, value, context)
        if finding.kind:
            return replace(finding, kind=Kind.MUTATION, message=f"mutated: {finding.message}")
        findings.append(finding)
    for finding in findings:
        if finding.outcome is Outcome.ILL_CONDITIONED:
            return finding
    rules = {finding.evidence["rule"] for finding in findings if "rule" in finding.evidence}
    return Finding(Outcome.PASS, evidence={"rule": ", ".join(sorted(rules))}) if rules else PASS


def _structure(
    rows: list[tuple[str, Any]], given: list[tuple[str, Any]], expected: Observed, actual: Observed
) -> Finding | None:
    if [name for name, _ in rows] == [name for name, _ in given]:
        return None
    what = f"expected {shape_of(expected.outputs)}, got {shape_of(actual.outputs)}"
    return Finding(Outcome.MISMATCH, Kind.STRUCTURE, f"the results have another structure: {what}")


@dataclass(frozen=True)
class _Context:
    """Which leaf is judged, and who can be asked about it."""

    referee: Referee
    index: int
    targets: list[str]
    strict: bool = False

    def other(self, run: Run, like: Tensor) -> Tensor | None:
        """This leaf in another run, widened, if it is a tensor of the same shape and of the same kind of number."""
        if self.index >= len(run.leaves) or not isinstance(run.leaves[self.index], Tensor):
            return None
        leaf = dense(run.leaves[self.index])
        if leaf.shape != like.shape or leaf.dtype.is_complex != like.dtype.is_complex:
            return None
        if leaf.dtype.is_floating_point != like.dtype.is_floating_point:
            return None
        return wide(leaf) if _inexact(like) else leaf

    def others(self, runs: list[Run], like: Tensor) -> list[Tensor]:
        """This leaf in other runs, where there is one like it."""
        found = [self.other(run, like) for run in runs]
        return [leaf for leaf in found if leaf is not None]


def _inexact(tensor: Tensor) -> bool:
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def _identical(left: Tensor, right: Tensor) -> bool:
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    left, right = dense(left), dense(right)
    return bool(((left == right) | ((left != left) & (right != right))).all())


def _leaf(name: str, expected: Any, actual: Any, context: _Context) -> Finding:
    if isinstance(expected, Tensor) != isinstance(actual, Tensor):
        return Finding(Outcome.MISMATCH, Kind.STRUCTURE, f"{name}: expected a {_kind(expected)}, got a {_kind(actual)}")
    if not isinstance(expected, Tensor):
        return _scalar(name, expected, actual, context)
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
    finding = _tensor(name, expected, actual, context)
    return (_zeros(name, expected, actual, context) or finding) if finding.ok else finding


def _zeros(name: str, expected: Tensor, actual: Tensor, context: _Context) -> Finding | None:
    """A mismatch where zeros have another sign than eager's, and eager's is part of the result."""
    bad = other_signs(actual, expected)
    if not bool(bad.any()):
        return None
    truth = None
    if not context.strict:
        truth, _ = _truth(expected, context) if context.referee.keeps_zeros else (None, "")
        if truth is None:
            return None
        bad &= (truth.values == 0) & ~other_signs(truth.values, expected)
    message = "the sign of zero"
    return _report(name, expected, actual, bad, truth, Outcome.MISMATCH, message, None) if bool(bad.any()) else None


def _kind(value: Any) -> str:
    return "tensor" if isinstance(value, Tensor) else type(value).__name__


def _scalar(name: str, expected: Any, actual: Any, context: _Context) -> Finding:
    if type(expected) is not type(actual) and not (_plain(expected) and _plain(actual)):
        message = f"{name}: expected a {_kind(expected)}, got a {_kind(actual)}"
        return Finding(Outcome.MISMATCH, Kind.DTYPE, message)
    if isinstance(expected, float | complex):  # read out of a tensor of the program's own dtype
        kind = torch.complex128 if isinstance(expected, complex) else torch.float64
        row = tolerance(context.referee.dtype, context.targets)
        a, b = torch.tensor(actual, dtype=kind), torch.tensor(expected, dtype=kind)
        if bool(near(a, b, context.referee.dtype, row.ulps, row.tiny)):
            return PASS
    elif expected == actual:
        return PASS
    return Finding(Outcome.MISMATCH, Kind.VALUE, f"{name}: expected {expected!r}, got {actual!r}")


def _plain(value: Any) -> bool:
    return isinstance(value, tuple | list)


def _tensor(name: str, expected: Tensor, actual: Tensor, context: _Context) -> Finding:
    if not expected.numel() or _identical(expected, actual):
        return PASS
    if not _inexact(expected):
        return _discrete(name, expected, actual, context)
    dtype = expected.dtype
    row = tolerance(dtype, context.targets)
    e, b = wide(expected), wide(actual)
    if context.strict:
        return _report(name, expected, actual, ~near(b, e, dtype, 0.0, 0.0), None, Outcome.MISMATCH, "", row)
    bad = ~near(b, e, dtype, row.ulps, row.tiny)
    if not bool(bad.any()):
        return Finding(Outcome.PASS, evidence={"rule": "same-dtype"})
    truth, note = _truth(expected, context)
    if truth is None:
        bad &= ~near(b, e, dtype, WIDER * row.ulps, row.tiny)
        rule = f"wider tolerance: {note}"
    else:
        bad &= ~refereed(b, e, truth, dtype, row)
        rule = "float64"
        if bool(bad.any()):
            truth = _surer(truth, expected, context)
            bad &= ~refereed(b, e, truth, dtype, row)
        if bool(bad.any()) and (exact := _second(truth, context)) is not None:
            bad &= ~refereed(b, e, exact, dtype, row)
            rule = "SciPy"
    if not bool(bad.any()):
        return Finding(Outcome.PASS, evidence={"rule": rule})
    soft = bad & (_conditioned(b, e, truth, dtype, row, context) | _overflowed(b, e, bad, dtype, row, context))
    soft |= bad & _undefined(b, e, dtype, context)
    if bool((bad & ~soft).any()):
        return _report(name, expected, actual, bad & ~soft, truth, Outcome.MISMATCH, note, row)
    return _report(name, expected, actual, soft, truth, Outcome.ILL_CONDITIONED, note, row)


def _truth(expected: Tensor, context: _Context) -> tuple[Reference | None, str]:
    run = context.referee.float64
    if run.problem:
        return None, f"no float64 run: {run.problem}"
    values = context.other(run, expected)
    if values is None:
        return None, "the float64 run gives another shape or kind of result"
    return Reference(values, _spread(values, context.others(context.referee.noisy, expected))), ""


def _second(truth: Reference, context: _Context) -> Reference | None:
    """The reference by SciPy's values, of the first and only output of a special function."""
    if context.index:
        return None
    values = second_opinion(context.referee.program, context.referee.args(), truth.values)
    return None if values is None else Reference(values, truth.spread, truth.smooth)


def _spread(values: Tensor, runs: list[Tensor]) -> Tensor:
    """How far the runs stray from the values, element by element; what is not finite in either strays nowhere."""
    spread = torch.zeros(values.shape, dtype=torch.float64)
    for run in runs:
        spread = torch.maximum(spread, torch.abs(run - values).nan_to_num(0.0, 0.0, 0.0))
    return spread


def _surer(truth: Reference, expected: Tensor, context: _Context) -> Reference:
    """The reference with the spread of more runs where it is smooth: of many elements, some stray little in all of the
    first few. A jump that only the later runs meet is not let in: it would stray further by far."""
    smooth = _smooth(truth, expected, context)
    more = _spread(truth.values, context.others(context.referee.more_noisy, expected))
    spread = torch.where(smooth, torch.maximum(truth.spread, torch.minimum(more, 8 * truth.spread)), truth.spread)
    return Reference(truth.values, spread, smooth)


def _smooth(truth: Reference, expected: Tensor, context: _Context) -> Tensor:
    calm = _spread(truth.values, context.others(context.referee.calm, expected)) / CALM
    return (calm > 0.5 * truth.spread) & (calm < 2.0 * truth.spread)


def _conditioned(
    actual: Tensor, expected: Tensor, truth: Reference | None, dtype: torch.dtype, row: Tolerance, context: _Context
) -> Tensor:
    """Where the backend's number is one of those that rounding, or the last bit of the inputs, decides between."""
    referee = context.referee
    like = torch.empty(expected.shape, dtype=dtype)
    none = torch.zeros(expected.shape, dtype=torch.bool)
    rounded = none
    if truth is not None:
        noisy = context.others(referee.noisy + referee.wild, like)
        rounded = among(actual, [truth.values, *noisy], dtype, row) if noisy else none
        error, bound = torch.abs(actual - truth.values), torch.abs(expected - truth.values)
        rounded |= torch.isfinite(expected) & (bound <= 64.0 * truth.spread) & (error <= row.factor * bound)
    if referee.all_exact:
        return rounded
    moved = context.others(referee.moved, like)
    if not moved:
        return rounded
    near_by = among(actual, [expected, *moved], dtype, row)
    barely = context.others(referee.barely_moved, like) if truth is not None else []
    on_edge = none
    for run in barely:
        on_edge = on_edge | near(actual, run, dtype, row.ulps, row.tiny)
    if truth is not None:
        on_edge &= ~near(actual, truth.values, dtype, row.ulps, row.tiny)
    return rounded | (near_by & ~on_edge)


def _overflowed(
    actual: Tensor, expected: Tensor, bad: Tensor, dtype: torch.dtype, row: Tolerance, context: _Context
) -> Tensor:
    """Where the order of the steps decides what overflows, and the backend's number is one that some order gives.

    Where eager's is finite, only orders of the additions count: any other step that overflows is the backend's doing.
    """
    like = torch.empty(expected.shape, dtype=dtype)
    found = torch.zeros(actual.shape, dtype=torch.bool)
    kept, gone = torch.isfinite(expected) & ~torch.isfinite(actual), ~torch.isfinite(expected)
    for run in context.others(context.referee.reordered, like) if bool((bad & kept).any()) else []:
        found |= kept & same(actual, run)
    for run in context.others(context.referee.overflowed, like) if bool((bad & gone).any()) else []:
        found |= gone & near(actual, wide(run.to(dtype)), dtype, row.ulps, row.tiny)
    return found


def _undefined(actual: Tensor, expected: Tensor, dtype: torch.dtype, context: _Context) -> Tensor:
    """Where the backend's NaN is what the documented formula gives, and eager's kernel loses it."""
    lost = torch.isnan(actual) & ~torch.isnan(expected)
    if not bool(lost.any()):
        return lost
    run = context.other(context.referee.formulas, torch.empty(expected.shape, dtype=dtype))
    return torch.zeros_like(lost) if run is None else lost & torch.isnan(run)


def _discrete(name: str, expected: Tensor, actual: Tensor, context: _Context) -> Finding:
    bad = expected != actual
    if context.strict:
        return _report(name, expected, actual, bad, None, Outcome.MISMATCH, "", None)
    referee = context.referee
    truth = context.other(referee.float64, expected)
    soft = torch.zeros_like(bad)
    if truth is not None:
        for run in [truth, *context.others(referee.noisy + referee.wild, expected)]:
            soft |= run == actual
    if not referee.all_exact:
        near_by, on_edge = torch.zeros_like(bad), torch.zeros_like(bad)
        for run in context.others(referee.moved, expected):
            near_by |= run == actual
        for run in context.others(referee.barely_moved, expected):
            on_edge |= run == actual
        soft |= near_by & ~on_edge
    outcome = Outcome.MISMATCH if bool((bad & ~soft).any()) else Outcome.ILL_CONDITIONED
    shown = bad & ~soft if outcome is Outcome.MISMATCH else bad
    reference = None if truth is None else Reference(truth, torch.zeros(()))
    return _report(name, expected, actual, shown, reference, outcome, referee.float64.problem, None)


def _report(
    name: str,
    expected: Tensor,
    actual: Tensor,
    bad: Tensor,
    truth: Reference | None,
    outcome: Outcome,
    note: str,
    row: Tolerance | None,
) -> Finding:
    """The finding, quoting the worst element: the furthest away, NaN and infinities first."""
    if _inexact(expected):
        distance = torch.abs(wide(actual) - wide(expected)) / ulp(wide(expected).abs(), expected.dtype)
        distance = torch.where(torch.isfinite(wide(actual)) & torch.isfinite(wide(expected)), distance, math.inf)
    else:
        distance = torch.abs(actual.to(torch.float64) - expected.to(torch.float64))
    flat = torch.where(bad, distance.nan_to_num(nan=math.inf, posinf=math.inf), -1.0).reshape(-1)
    worst = int(flat.argmax())
    index = [int(i) for i in torch.unravel_index(torch.tensor(worst), expected.shape)] if expected.dim() else []
    e, b = expected.reshape(-1)[worst].item(), actual.reshape(-1)[worst].item()
    count = int(bad.sum())
    evidence: dict[str, Any] = {
        "where": name,
        "index": index,
        "expected": _json(e),
        "actual": _json(b),
        "dtype": dtype_name(expected.dtype),
        "count": count,
        "of": expected.numel(),
    }
    place = name + (str(index) if index else "")
    message = f"{place}: expected {e!r}, got {b!r}"
    if _inexact(expected):
        evidence["ulps"] = _json(float(flat[worst]))
        evidence["error"] = _json(float(torch.abs(wide(actual) - wide(expected)).reshape(-1)[worst]))
    if truth is not None:
        reference = truth.values.reshape(-1)[worst].item()
        evidence["float64"] = _json(reference)
        message += f" (float64: {reference!r})"
        if truth.spread.dim() == expected.dim() and truth.spread.numel() == expected.numel():
            evidence["spread"] = _json(float(truth.spread.reshape(-1)[worst]))
    if row is not None:
        evidence["tolerance"] = {"ulps": row.ulps, "factor": row.factor, "tiny": row.tiny}
    if note:
        evidence["note"] = note
    if isinstance(evidence.get("ulps"), float) and evidence["ulps"] > 0:
        message += f", {evidence['ulps']:.3g} ULP off"
    message += f"; {count} of {expected.numel()} elements differ" if expected.numel() > 1 else ""
    return Finding(outcome, Kind.VALUE if outcome is Outcome.MISMATCH else "", message, evidence)


def _json(value: Any) -> Any:
    """Numbers JSON has; the others (NaN, infinities, complex) as text."""
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)

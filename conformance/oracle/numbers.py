"""The judgement of one leaf of the results: its kind, shape and dtype, then its numbers."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.execution.verdict import EAGER_FURTHER, Kind, Outcome
from torchstone.conformance.oracle.elementwise import (
    Reference,
    error_bound,
    no_further_than_eager,
    within_reference,
    within_ulps,
)
from torchstone.conformance.oracle.equality import equal_tensors, same_bits, same_numbers
from torchstone.conformance.oracle.evidence import FURTHER, Bounds, describe_worst, eager_is_further, inexact
from torchstone.conformance.oracle.exactness.nan_sign import different_nan_signs
from torchstone.conformance.oracle.exactness.signed_zero import different_zero_signs
from torchstone.conformance.oracle.exactness.single_rounding import misrounded
from torchstone.conformance.oracle.finding import PASS, Finding
from torchstone.conformance.oracle.perturbation.conditioning import (
    ill_conditioned,
    nan_of_a_kernel,
    overflow_order,
    rounding_reaches,
    strays,
)
from torchstone.conformance.oracle.pytree import dense, describe
from torchstone.conformance.oracle.reference.leaf import (
    NUMBERS,
    Effort,
    Leaf,
    as_in_float32,
    eager_nearby,
    reference_of,
    refine_spread,
    scipy_reference,
    with_spread,
)
from torchstone.conformance.oracle.tolerances import NO_REFERENCE_FACTOR, real_dtype, tolerance
from torchstone.conformance.oracle.ulp import ulp, wide


def leaf_finding(name: str, expected: Any, actual: Any, leaf: Leaf) -> Finding:
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
    if finding.ok or leaf.strict:
        return finding
    return (_by_parts(name, expected, actual, leaf) or finding) if finding.outcome is Outcome.MISMATCH else finding


def _by_parts(name: str, expected: Tensor, actual: Tensor, leaf: Leaf) -> Finding | None:
    """The finding where complex numbers that are not finite are right part by part: NaN has no size that would give the
    other part room for its rounding. None where they are wrong, or there are none."""
    if not expected.is_complex():
        return None
    split = ~(torch.isfinite(expected) & torch.isfinite(actual))
    if not bool(split.any()):
        return None
    halved = [torch.view_as_real(part.resolve_conj()) for part in (expected, torch.where(split, actual, expected))]
    rest = torch.where(split, expected, actual)
    findings = [
        PASS if equal_tensors(*halved) else _floating(name, halved[0], halved[1], replace(leaf, parts=True)),
        PASS if equal_tensors(expected, rest) else _floating(name, expected, rest, leaf),
    ]
    right = all(finding.outcome is not Outcome.MISMATCH for finding in findings)
    return _worst(findings) if right else None


def _worst(findings: list[Finding]) -> Finding:
    order = (Outcome.MISMATCH, Outcome.ILL_CONDITIONED, Outcome.PASS)
    return min(findings, key=lambda finding: order.index(finding.outcome))


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
    beyond = bad
    truth, note = reference_of(expected, leaf)
    if truth is None:
        narrow = leaf.rounded_to(expected)
        row = tolerance(narrow, leaf.targets)
        room = NO_REFERENCE_FACTOR * row.ulps
        bad = bad & ~within_ulps(b, e, narrow, room, row.tiny)
        rule = f"wider tolerance: {note}"
        better = torch.zeros_like(bad)
        bounds = Bounds(bound=room * ulp(e.abs(), narrow) + row.tiny, row=row, note=note)
    else:
        rule, truth, bad = _by_references(expected, actual, bad, truth, leaf)
        better = beyond & eager_is_further(b, e, truth.values)
        bounds = Bounds(truth.values, truth.spread, error_bound(e, truth, dtype, row), row, note)
    if not bool(bad.any()):
        evidence: dict[str, Any] = {"rule": rule}
        if bool(better.any()):
            _, shown = describe_worst(name, expected, actual, better, bounds, dtype)
            keys = ("where", "index", "expected", "actual", "float64", "float64_error", "eager_error", "count", "of")
            evidence[EAGER_FURTHER] = {"meaning": FURTHER, **{key: shown[key] for key in keys}}
        return Finding(Outcome.PASS, evidence=evidence)
    soft = _undecided(expected, actual, bad, truth, leaf)
    hard = bad & ~soft
    if not bool(hard.any()):
        return _report(name, expected, actual, soft, bounds, Outcome.ILL_CONDITIONED, dtype)
    if truth is not None and leaf.effort >= Effort.SEARCH and int(hard.sum()) > 1:  # a search ends with the first
        bounds = replace(bounds, strays=strays(e, truth, leaf))
    return _report(name, expected, actual, hard, bounds, Outcome.MISMATCH, dtype)


def _by_references(
    expected: Tensor, actual: Tensor, bad: Tensor, truth: Reference, leaf: Leaf
) -> tuple[str, Reference, Tensor]:
    """The rule that was asked last, its reference, and which of the ``bad`` numbers no rule finds right.

    The values of float64 come first. Then what there is room for around them is measured, in ways that cost more and
    more; of a first round the cheap ones. Another formula's values come last.
    """
    dtype = leaf.dtype_of(expected)
    row = tolerance(dtype, leaf.targets)
    e, b = wide(expected), wide(actual)
    cheap = (lambda: truth, lambda: with_spread(truth, expected, leaf))
    thorough = (
        lambda: refine_spread(truth, expected, bad, leaf),
        lambda: eager_nearby(truth, expected, dtype, leaf),
    )
    for measured in cheap if leaf.effort is Effort.FEW_RUNS else cheap + thorough:
        truth = measured()
        bad = bad & ~within_reference(b, e, truth, dtype, row)
        if not bool(bad.any()):
            return "float64", truth, bad
    if leaf.effort is Effort.FEW_RUNS:
        return "float64", truth, bad
    bad = bad & ~as_in_float32(b, truth, e, dtype, leaf)
    if not bool(bad.any()) or (by_scipy := scipy_reference(truth, expected, leaf)) is None:
        return "float64", truth, bad
    return "SciPy", by_scipy, bad & ~within_reference(b, e, by_scipy, dtype, row)


def _undecided(expected: Tensor, actual: Tensor, bad: Tensor, truth: Reference | None, leaf: Leaf) -> Tensor:
    """Which of the ``bad`` numbers eager decides no better than the backend: of a first round none is asked about."""
    soft = torch.zeros_like(bad)
    if leaf.effort is Effort.FEW_RUNS:
        return soft
    dtype = leaf.dtype_of(expected)
    row = tolerance(dtype, leaf.targets)
    e, b = wide(expected), wide(actual)
    soft |= bad & nan_of_a_kernel(b, e, dtype, row, leaf)
    if truth is not None and bool((few_digits := bad & ~soft & no_further_than_eager(b, e, truth.values)).any()):
        soft |= few_digits & ~rounding_reaches(e, truth, leaf)
    if bool((rest := bad & ~soft).any()):
        soft |= rest & overflow_order(b, e, rest, dtype, row, leaf)
    if bool((rest := bad & ~soft).any()):
        soft |= rest & ill_conditioned(b, e, truth, rest, dtype, row, leaf)
    return soft


def _single_rounding(name: str, expected: Tensor, actual: Tensor, leaf: Leaf) -> Finding | None:
    """A mismatch where the one operation of a program is not rounded to the nearest number, as eager rounds it."""
    dtype = expected.dtype
    by = None if dtype.is_complex or dtype is torch.float64 else leaf.referee.rounds_once
    if by is None or by.dtype != dtype:
        return None
    truth = leaf.other(leaf.referee.float64, expected)
    if truth is None:
        return None
    bad = misrounded(wide(actual), wide(expected), truth, by)
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

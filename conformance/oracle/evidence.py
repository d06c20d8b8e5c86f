"""What a verdict shows of numbers that differ: the worst one with all that was compared, and the first few of all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.execution.verdict import EAGER_FURTHER
from torchstone.conformance.oracle.equality import same_numbers
from torchstone.conformance.oracle.tolerances import Tolerance
from torchstone.conformance.oracle.ulp import ulp, wide
from torchstone.conformance.program.literals import dtype_name

SHOWN = 5
"""How many of the elements that differ are listed, in their order."""

FURTHER = "eager is further from the float64 result than the backend"


@dataclass(frozen=True)
class Bounds:
    """What eager's and the backend's numbers were compared with, each a tensor of their shape or not there.

    ``truth``: the float64 run's numbers. ``spread``: of the rounding model around them. ``bound``: how far from the
    truth, or from eager's number where there is none, the backend's may be. ``strays``: how far from the truth the last
    bit of the inputs takes a result.
    """

    truth: Tensor | None = None
    spread: Tensor | None = None
    bound: Tensor | None = None
    row: Tolerance | None = None
    note: str = ""
    strays: Tensor | None = None


def inexact(tensor: Tensor) -> bool:
    """Whether a tensor is of floating or complex numbers."""
    return tensor.is_floating_point() or tensor.is_complex()


def eager_is_further(actual: Tensor, expected: Tensor, truth: Tensor) -> Tensor:
    """Where eager's number is further from the truth than the backend's, all three finite."""
    finite = torch.isfinite(actual) & torch.isfinite(expected) & torch.isfinite(truth)
    return finite & (torch.abs(actual - truth) < torch.abs(expected - truth))


def describe_worst(
    name: str, expected: Tensor, actual: Tensor, bad: Tensor, bounds: Bounds, dtype: torch.dtype
) -> tuple[str, dict[str, Any]]:
    """A line for people and the evidence, in JSON values, of the elements that are ``bad``; some are.

    The worst is the one with the largest distance in units in the last place of ``dtype`` from eager's, or in what the
    result strays by, where that is more; NaN and infinities come first. Distances are in ULPs (``ulps``), in the
    numbers' own unit (``error``: from eager; ``float64_error``, ``eager_error``: the backend's and eager's from
    float64) and ``relative`` to eager's number.
    """
    flat = bad.reshape(-1)
    distance = _distance(actual, expected, dtype)
    if bounds.strays is not None:
        distance = distance / (bounds.strays / ulp(wide(expected).abs(), dtype)).clamp(min=1.0)
    worst = int(distance.reshape(-1).where(flat, -1.0).argmax())
    count = int(flat.sum())
    evidence: dict[str, Any] = {"where": name, **_element(expected, actual, worst), "dtype": dtype_name(dtype)}
    e, b = (tensor.reshape(-1)[worst].item() for tensor in (expected, actual))
    message = f"{name}{evidence['index'] or ''}: expected {e!r}, got {b!r}"
    evidence |= {"count": count, "of": expected.numel()}
    error, size = _apart(b, e), _apart(e, 0)
    evidence["error"] = plain(error)
    evidence["relative"] = plain(
        error / size if size and math.isfinite(size) else math.nan if size != size else math.inf
    )
    if inexact(expected):
        evidence["ulps"] = plain(float(_distance(actual, expected, dtype).reshape(-1)[worst]))
    if bounds.truth is not None:
        exact = bounds.truth.reshape(-1)[worst].item()
        evidence["float64"] = plain(exact)
        evidence["float64_error"] = plain(_apart(b, exact))
        evidence["eager_error"] = plain(_apart(e, exact))
        message += f" (float64: {exact!r})"
        if bool(eager_is_further(*(wide(tensor).reshape(-1)[worst] for tensor in (actual, expected, bounds.truth)))):
            evidence[EAGER_FURTHER] = FURTHER
    for key, tensor in (("spread", bounds.spread), ("bound", bounds.bound)):
        if tensor is not None and tensor.numel() == expected.numel():
            evidence[key] = plain(float(tensor.reshape(-1)[worst]))
    if bounds.row is not None:
        evidence["tolerance"] = {"ulps": bounds.row.ulps, "factor": bounds.row.factor, "tiny": bounds.row.tiny}
    if bounds.note:
        evidence["note"] = bounds.note
    if count > 1:
        evidence["first"] = [_element(expected, actual, int(at)) for at in flat.nonzero().reshape(-1)[:SHOWN]]
    if isinstance(evidence.get("ulps"), float) and evidence["ulps"] > 0:
        message += f", {evidence['ulps']:.3g} ULP off"
    return message + (f"; {count} of {expected.numel()} elements differ" if expected.numel() > 1 else ""), evidence


def _distance(actual: Tensor, expected: Tensor, dtype: torch.dtype) -> Tensor:
    """In ULPs, or for integers and bools in ones; infinite where either is not finite."""
    if not inexact(expected):
        return torch.abs(actual.to(torch.float64) - expected.to(torch.float64))
    a, e = wide(actual), wide(expected)
    distance = torch.abs(a - e) / ulp(e.abs(), dtype)
    distance = torch.where(torch.isfinite(a) & torch.isfinite(e), distance, math.inf)
    return torch.where(same_numbers(a, e), 0.0, distance)


def _element(expected: Tensor, actual: Tensor, at: int) -> dict[str, Any]:
    index = [int(i) for i in torch.unravel_index(torch.tensor(at), expected.shape)] if expected.dim() else []
    values = {key: plain(t.reshape(-1)[at].item()) for key, t in (("expected", expected), ("actual", actual))}
    return {"index": index, **values}


def _apart(left: Any, right: Any) -> Any:
    """The distance of two numbers; integers' and bools' is exact."""
    left, right = (int(value) if isinstance(value, bool) else value for value in (left, right))
    try:
        return abs(left - right)
    except OverflowError:  # of complex numbers near the end of the range
        return math.inf


def plain(value: Any) -> Any:
    """Numbers JSON has; the others (NaN, infinities, complex) as text."""
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)

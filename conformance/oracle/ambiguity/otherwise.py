"""Eager's run by another choice that PyTorch leaves open, beside the backend's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchstone.conformance.oracle.equality import same_numbers
from torchstone.conformance.oracle.pytree import flatten

if TYPE_CHECKING:
    from torchstone.conformance.oracle.reference.runs import Referee


def otherwise(other: Referee, expected: Any, actual: Any) -> Iterator[tuple[Referee, Any, Any]]:
    """The referee whose runs take the other choice, eager's run by it and the backend's, as flat lists; nothing where
    the two have not as many leaves."""
    leaves, outputs = other.eager.leaves, flatten(actual.outputs)
    if len(leaves) == len(outputs) + len(actual.inputs):
        wanted = replace(expected, outputs=leaves[: len(outputs)], inputs=tuple(leaves[len(outputs) :]))
        yield other, wanted, replace(actual, outputs=outputs)


def otherwise_if_made(
    mode: Callable[[], Any], referee: Referee, expected: Any, actual: Any
) -> Iterator[tuple[Referee, Any, Any]]:
    """As ``otherwise``, of runs inside such a mode, if in eager's run it has ``made`` anything otherwise."""
    tried = mode()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), tried:
            referee.program(*referee.args())
    except Exception:  # what eager does not run under a mode, it has but one answer for
        return
    if tried.made:
        yield from otherwise(referee.inside(mode), expected, actual)


def otherwise_where_shown(other: Referee, expected: Any, actual: Any) -> Iterator[tuple[Referee, Any, Any]]:
    """As ``otherwise``, where each element is open by itself: eager's run takes the other choice where the backend has
    that number, and stays as it was elsewhere."""
    own = [*flatten(expected.outputs), *expected.inputs]
    shown = [*flatten(actual.outputs), *actual.inputs]
    for referee, wanted, given in otherwise(other, expected, actual):
        leaves = [*wanted.outputs, *wanted.inputs]
        chosen = [_as_shown(*leaf) for leaf in zip(own, leaves, shown, strict=True)] if len(own) == len(shown) else own
        outputs, inputs = chosen[: len(wanted.outputs)], tuple(chosen[len(wanted.outputs) :])
        yield referee, replace(expected, outputs=outputs, inputs=inputs), given


def _as_shown(wanted: Any, other: Any, given: Any) -> Any:
    """``other`` where the backend has that number, else ``wanted``."""
    if not all(isinstance(v, Tensor) for v in (wanted, other, given)) or not wanted.shape == other.shape == given.shape:
        return wanted
    if not wanted.dtype == other.dtype == given.dtype or any(v.layout is not torch.strided for v in (wanted, other)):
        return wanted
    return torch.where(same_numbers(other, given), other, wanted)

"""Eager's run by another choice that PyTorch leaves open, beside the backend's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

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

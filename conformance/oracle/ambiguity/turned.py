"""Eager beside a backend that has chosen other signs and phases of singular vectors and eigenvectors.

Any choice is right, and what follows from it is. Columns of a backend's results that differ from eager's by phases show
the choice; eager is run again with its own factors turned so, and the float64 runs with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from torchstone.conformance.oracle.ambiguity.phases import Aligned, turns
from torchstone.conformance.oracle.pytree import flatten
from torchstone.conformance.oracle.reference.runs import Referee


def turned(referee: Referee, expected: Any, actual: Any) -> Iterator[tuple[Referee, Any, Any]]:
    """For each choice that the backend's results show: the referee, eager's run and the backend's, as flat lists."""
    given = flatten(actual.outputs)
    for noted in turns(referee.factors, flatten(expected.outputs), given):
        other = Referee(referee.program, referee.pristine, around=partial(Aligned, noted), seed=referee.seed)
        leaves = other.eager.leaves
        if leaves:
            wanted = replace(expected, outputs=leaves[: len(given)], inputs=tuple(leaves[len(given) :]))
            yield other, wanted, replace(actual, outputs=given)

"""Results of a random program that nothing drawn reaches: they are judged as those of any other program.

A distribution knows what eager gives, and such a number may be open for reasons of its own, as a gradient through a NaN
is. So where the distributions differ, the oracle is asked of what all runs have in common.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable

from torchstone.conformance.oracle.equality import equal
from torchstone.conformance.oracle.finding import Observed
from torchstone.conformance.oracle.pytree import flatten, map_leaves


def same_in_all(runs: Iterable[Observed]) -> set[int]:
    """The places of the leaves, outputs and then inputs, that are the same in each of these runs."""
    first, *others = (flatten((run.outputs, run.inputs)) for run in runs)
    return {at for at, leaf in enumerate(first) if all(equal(leaf, other[at]) for other in others)}


def apart(left: Observed, right: Observed) -> set[int]:
    """The places of the leaves that two runs differ in."""
    return set(range(len(flatten((left.outputs, left.inputs))))) - same_in_all([left, right])


def with_leaves(run: Observed, other: Observed, places: Collection[int]) -> Observed:
    """The run with the leaves of another in these places."""
    if not places:
        return run
    numbers, leaves = itertools.count(), flatten((other.outputs, other.inputs))

    def picked(leaf: object) -> object:
        at = next(numbers)
        return leaves[at] if at in places else leaf

    return Observed(map_leaves(picked, run.outputs), tuple(map(picked, run.inputs)))  # type: ignore[arg-type]

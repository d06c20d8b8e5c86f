"""The order of what Inductor compiles, where independent programs are one.

Inductor writes a C++ file for its kernels between two calls that it leaves to ATen. So each such call of one program
parts the kernels of all others, and the C++ compiler takes half a second of the processor for a file, whatever is in
it. Programs that have nothing in common may be run in any order: here their kernels come together, and their calls of
ATen. Each program keeps the order in which Inductor put its own steps.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from torchstone.compiler._torch import dynamo


@contextmanager
def kernels_together() -> Iterator[None]:
    """Have steps of independent programs ordered in the block, once Inductor has put all of them in order."""
    in_order = dynamo.inductor_memory.reorder_for_peak_memory

    def reordered(*args: Any, **kwargs: Any) -> list[Any]:
        return interleaved(in_order(*args, **kwargs), _needs, lambda node: node.is_extern() or node.is_template())

    with mock.patch.object(dynamo.inductor_memory, "reorder_for_peak_memory", reordered):
        yield


def _needs(nodes: Sequence[Any]) -> list[list[int]]:
    """Which of the nodes each node comes after."""
    writer = {name: at for at, node in enumerate(nodes) for name in node.get_buffer_names()}
    return [[writer[dep.name] for dep in node.unmet_dependencies if dep.name in writer] for node in nodes]


def interleaved(
    steps: Sequence[Any], needs: Callable[[Sequence[Any]], list[list[int]]], parts_others: Callable[[Any], bool]
) -> list[Any]:
    """Return the steps in an order in which those that part others are together as far as may be.

    ``needs`` gives the places of the steps that each step hangs on. Steps that hang together in some way keep their
    order.
    """
    first = list(range(len(steps)))

    def root(at: int) -> int:
        while first[at] != at:
            first[at] = at = first[first[at]]
        return at

    for at, before in enumerate(needs(steps)):
        for other in before:
            first[root(at)] = root(other)
    programs: dict[int, deque[Any]] = defaultdict(deque)
    for at, step in enumerate(steps):
        programs[root(at)].append(step)
    ordered: list[Any] = []
    while any(programs.values()):
        for parting in (False, True):
            for program in programs.values():
                while program and bool(parts_others(program[0])) is parting:
                    ordered.append(program.popleft())
    return ordered

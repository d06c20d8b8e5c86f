"""The steps of a schedule, and its text: graphs of kernels, and between them the ops that the host runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from torchstone.compiler.ir import Graph, Operation
from torchstone.compiler.ir.graph import print_operation, unique_names
from torchstone.compiler.ops import control

_CONTROL = frozenset(row.op for row in control.ROWS)


@dataclass(frozen=True, slots=True)
class Segment:
    """A kernel's graph. Its last arguments carry ``sizes``: each has that symbol as its first size and no elements."""

    graph: Graph
    sizes: tuple[str, ...]


Step: TypeAlias = Segment | Operation


def is_control(op: Operation) -> bool:
    """Say whether an op is a primitive that the host runs, whatever the target."""
    return op.name in _CONTROL


def is_host(op: Operation) -> bool:
    """Say whether an op is a step of its own."""
    return is_control(op) or not op.name.startswith("flat.")


def print_schedule(graph: Graph, steps: list[Step]) -> str:
    """Return the steps as text, with the names that the graph's own text gives its values."""
    names = unique_names(graph)
    lines: list[str] = []
    count = 0
    for step in steps:
        if isinstance(step, Segment):
            lines.append(f"kernel {count}")
            lines.extend(f"  {print_operation(op, names)}" for op in step.graph.ops)
            count += 1
        else:
            lines.append(print_operation(step, names))
    return "\n".join([*lines, ""])


# What ``join_kernels`` writes ahead of each.
KERNEL_HEADER = r"(?m)^// ---- kernel \d+ ----\n"


def join_kernels(texts: Iterable[Callable[[], str]]) -> str:
    """Return the texts of kernels as one."""
    return "".join(f"// ---- kernel {i} ----\n{text().rstrip()}\n" for i, text in enumerate(texts))

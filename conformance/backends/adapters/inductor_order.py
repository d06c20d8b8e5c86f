"""The order of what Inductor compiles, where independent programs are one.

Inductor writes a C++ file for its kernels between two calls that it leaves to ATen. So each such call of one program
parts the kernels of all others, and the C++ compiler takes half a second of the processor for a file, whatever is in
it. Programs that have nothing in common may be run in any order: here their kernels come together, and their calls of
ATen. Each program keeps the order in which Inductor put its own steps. Beside it stands which program each of the calls
is of, which the profiler does not see.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest import mock

from torchstone.compiler._torch import dynamo
from torchstone.conformance.program.member_names import members_named

S = TypeVar("S")


@contextmanager
def programs_apart(left: dict[str, list[int]]) -> Iterator[None]:
    """Have the steps of a bundle ordered in the block, once Inductor has put all of them in order.

    ``left`` is told of what Inductor leaves to ATen: by op, the number of the program for each call, as far as known.
    """
    in_order = dynamo.inductor_memory.reorder_for_peak_memory

    def reordered(*args: Any, **kwargs: Any) -> list[Any]:
        nodes = in_order(*args, **kwargs)
        programs = independent(_needs(nodes))
        for program in programs:
            known = [_members(nodes[at]) for at in program]
            whole = set().union(*known)
            for at, its in zip(program, known, strict=True):
                its = its or whole
                if (name := _left_to(nodes[at])) and len(its) == 1:
                    left.setdefault(name, []).extend(its)
        steps = [[nodes[at] for at in program] for program in programs]
        return interleaved(steps, lambda node: node.is_extern() or node.is_template())

    with mock.patch.object(dynamo.inductor_memory, "reorder_for_peak_memory", reordered):
        yield


def _members(node: Any) -> set[int]:
    """The programs that a step is of, by the lines of code that it comes from."""
    origins = getattr(node.node, "origins", None) or ()
    return set().union(*(members_named(origin.meta.get("stack_trace") or "") for origin in origins))


def _left_to(node: Any) -> str:
    """The op of ATen that a step calls: empty for a step that is Inductor's own."""
    if not node.is_extern():
        return ""
    op: Any = getattr(node.node, "op_overload", None)
    name = op.name().replace("::", ".") if hasattr(op, "name") else getattr(node.node, "python_kernel_name", None) or ""
    parts = name.removeprefix("torch.ops.").replace("extern_kernels.", "aten.").split(".")
    return "::".join(parts[:2]) if len(parts) > 1 else ""


def _needs(nodes: Sequence[Any]) -> list[list[int]]:
    """Which of the nodes each node comes after."""
    writer = {name: at for at, node in enumerate(nodes) for name in node.get_buffer_names()}
    return [[writer[dep.name] for dep in node.unmet_dependencies if dep.name in writer] for node in nodes]


def independent(needs: Sequence[Sequence[int]]) -> list[list[int]]:
    """The places of steps, of which each needs others, in groups that have nothing to do with each other."""
    first = list(range(len(needs)))

    def root(at: int) -> int:
        while first[at] != at:
            first[at] = at = first[first[at]]
        return at

    for at, before in enumerate(needs):
        for other in before:
            first[root(at)] = root(other)
    groups: dict[int, list[int]] = {}
    for at in range(len(needs)):
        groups.setdefault(root(at), []).append(at)
    return list(groups.values())


def interleaved(programs: Iterable[Iterable[S]], parts_others: Callable[[S], bool]) -> list[S]:
    """The steps of all programs as one, each program's in their order: those that part others stand together."""
    left = [deque(program) for program in programs]
    ordered: list[S] = []
    while any(left):
        for parting in (False, True):
            for program in left:
                while program and bool(parts_others(program[0])) is parting:
                    ordered.append(program.popleft())
    return ordered

"""Splits a graph into the steps of a schedule: kernels of the target, and between them what the host does.

The host makes library calls and binds sizes that are known at run time only. Each step is as early as its operands
allow, so that few kernels are left, and each op of a kernel is as late as its users allow, so that little is handed
from kernel to kernel. A graph that is the target's alone stays one kernel, with nothing around it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torchstone.compiler.ir import Graph, Operation, TensorType, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import symbol
from torchstone.compiler.ir.graph import values_in
from torchstone.compiler.ir.sizes import symbols_bound, symbols_used
from torchstone.compiler.library import has_effect, is_ordered
from torchstone.compiler.lowering.steps import Segment, Step, is_host, join_kernels, print_schedule
from torchstone.compiler.lowering.target import Kernel, Lowered

# Made anew in each kernel that uses them, when what they are made of is too.
_FREE = frozenset({"flat.constant", "flat.iota", "flat.broadcast", "flat.cast", "flat.reshape"})


def lower(graph: Graph, lower_kernel: Callable[[Graph], Lowered]) -> Lowered:
    """Lower a graph to one kernel of the target or, where the host has a part in it, to a schedule of several."""
    if not any(is_host(op) for op in graph.ops):
        return lower_kernel(graph)
    steps = split(graph)
    # One for each graph that a step runs: a segment's own, or those of a branch or loop by name.
    lowered = [{name: lower(g, lower_kernel) for name, g in _graphs(step).items()} for step in steps]
    kernels = [kernel for mine in lowered for kernel in mine.values()]
    texts: dict[str, Callable[[], str]] = {"schedule": lambda: print_schedule(graph, steps), **_joined(kernels)}

    def load() -> Kernel:
        from torchstone.compiler.runtime.host_schedule import Schedule

        loaded = [{name: kernel.load() for name, kernel in mine.items()} for mine in lowered]
        texts.update(_joined(kernels))
        return Schedule(graph, list(zip(steps, loaded, strict=True)))

    return Lowered(load, texts)


def _graphs(step: Step) -> dict[str, Graph]:
    return {"kernel": step.graph} if isinstance(step, Segment) else step.graphs


def _joined(kernels: list[Lowered]) -> dict[str, Callable[[], str]]:
    def join(stage: str) -> Callable[[], str]:
        own = [kernel for kernel in kernels if stage in kernel.texts]
        return lambda: join_kernels([k.texts[stage] for k in own])

    return {stage: join(stage) for stage in dict.fromkeys(s for k in kernels for s in k.texts)}


def split(graph: Graph) -> list[Step]:
    """Return the steps in order."""
    timeline = _Timeline(graph)
    steps: list[Step] = []
    for time in sorted(set(timeline.times.values())):
        if time % 2 == 0:
            steps.extend(op for op in graph.ops if timeline.times[id(op)] == time)
        elif segment := timeline.segment(time, f"{graph.name}_{len(steps)}"):
            steps.append(segment)
    return steps


class _Timeline:
    """When each op happens: what the host does at even times, what kernels do at odd ones."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.needs: dict[int, list[Operation]] = {}
        self.times: dict[int, int] = {}
        self.free: set[int] = set()
        self._early()
        self._late()
        self.handed = {id(v) for v in values_in(graph.outputs)}
        self.handed.update(id(v) for op in graph.ops if is_host(op) for v in op.values)

    def _early(self) -> None:
        producers = {id(r): op for op in self.graph.ops for r in op.results}
        binders = symbols_bound(self.graph)
        effect = 0
        for op in self.graph.ops:
            made = [producers[id(v)] for v in op.values if id(v) in producers]
            sizes = [binders[name] for name in sorted(symbols_used(op)) if binders.get(name, op) is not op]
            time = max(
                [0 if is_host(op) else 1, *(self.times[id(d)] + (is_host(d) != is_host(op)) for d in (*made, *sizes))]
            )
            if is_ordered(op):
                time = effect = max(time, effect)
            if op.name in _FREE and len(made) == len([*op.values]) and all(id(d) in self.free for d in made):
                self.free.add(id(op))
            self.times[id(op)], self.needs[id(op)] = time, [*made, *sizes]

    def _late(self) -> None:
        """Move each op of a kernel to the kernel of its first user. No kernel is added: that one is there already."""
        limits: dict[int, int] = {}
        for op in reversed(self.graph.ops):
            if not is_host(op) and not has_effect(op):
                self.times[id(op)] = limits.get(id(op), self.times[id(op)])
            for made in self.needs[id(op)]:
                limit = self.times[id(op)] - (is_host(op) != is_host(made))
                limits[id(made)] = min(limit, limits.get(id(made), limit))

    def _closure(self, ops: Iterable[Operation]) -> list[Operation]:
        """Add the free ops that these are made of, in the graph's order."""
        found: set[int] = set()
        pending = list(ops)
        while pending:
            op = pending.pop()
            if id(op) not in found:
                found.add(id(op))
                pending.extend(d for d in self.needs[id(op)] if id(d) in self.free)
        return [op for op in self.graph.ops if id(op) in found]

    def segment(self, time: int, name: str) -> Segment | None:
        """Return the kernel of a time, None when nothing is left for it to do."""
        kept = [
            op
            for op in self.graph.ops
            if self.times[id(op)] == time and (id(op) not in self.free or any(id(r) in self.handed for r in op.results))
        ]
        if not kept:
            return None
        later = [op for op in self.graph.ops if self.times[id(op)] > time and id(op) not in self.free]
        used = {id(v) for op in later for v in op.values} | self.handed
        ops = self._closure(kept)
        inside = {id(r) for op in ops for r in op.results}
        args = list({id(v): v for op in ops for v in op.values if id(v) not in inside}.values())
        mentioned = {s for op in ops for s in symbols_used(op)}.union(*(a.tensor.symbols for a in args))
        sizes = tuple(sorted(mentioned - {str(d) for a in args for d in a.shape}))
        carriers = [Value(TensorType((symbol(s), 0), dt.uint8), s) for s in sizes]
        outputs = tuple(r for op in kept for r in op.results if id(r) in used)
        return Segment(Graph(name, [*args, *carriers], ops, outputs), sizes)

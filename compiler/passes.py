"""Passes, and the pipelines that they make: objects that print themselves and tell how long they took.

FLAT = Pipeline("flat", (Pass("expand", "ATen ops become primitives", expand_ops), …))
with timing() as times:
    graph = FLAT.run(graph, context)
print(FLAT, times)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any


def _always(context: Any) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Pass:
    """A step from a program to a program: an IR graph, or an MLIR module.

    ``run(program, context)`` returns the program, the same object where it was changed in place. ``context`` belongs to
    one run of a pipeline: options, and what one pass leaves for another. A pass that does not apply to the context is
    left out. ``what`` says what the pass does, in a few words; ``mlir`` is what ``mlir-opt`` takes for MLIR's own.
    """

    name: str
    what: str
    run: Callable[[Any, Any], Any]
    applies: Callable[[Any], bool] = _always
    mlir: str = ""

    def __str__(self) -> str:
        sometimes = "" if self.applies is _always else " [conditional]"
        return f"{self.name:<28} {self.what}{sometimes}" + (f"\n{'':<29}mlir: {self.mlir}" if self.mlir else "")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Passes in order, under a name."""

    name: str
    passes: tuple[Pass, ...]

    def run(self, program: Any, context: Any = None) -> Any:
        """Return the program after all passes that apply."""
        for step in self.passes:
            if step.applies(context):
                with timed(self.name, step.name):
                    program = step.run(program, context)
        return program

    def with_run(self, name: str, run: Callable[[Any, Any], Any]) -> Pipeline:
        """Return the pipeline with another function for the pass of this name. ValueError when there is none."""
        if name not in (step.name for step in self.passes):
            raise ValueError(f"the pipeline {self.name} has no pass {name}")
        return replace(self, passes=tuple(replace(p, run=run) if p.name == name else p for p in self.passes))

    def __str__(self) -> str:
        return "\n".join([f"{self.name}:", *(f"  {line}" for step in self.passes for line in str(step).split("\n"))])


class Times:
    """Seconds by pipeline and pass, in the order of their first runs."""

    def __init__(self) -> None:
        self.runs: dict[tuple[str, str], int] = {}
        self.seconds: dict[tuple[str, str], float] = {}

    def add(self, pipeline: str, step: str, seconds: float) -> None:
        key = pipeline, step
        self.runs[key] = self.runs.get(key, 0) + 1
        self.seconds[key] = self.seconds.get(key, 0.0) + seconds

    def __str__(self) -> str:
        total = sum(self.seconds.values())
        lines = [f"{'pipeline':<16} {'pass':<28} {'runs':>5} {'ms':>9} {'share':>6}"]
        for (pipeline, step), seconds in self.seconds.items():
            share = seconds / total if total else 0.0
            lines.append(
                f"{pipeline:<16} {step:<28} {self.runs[pipeline, step]:>5} {1000 * seconds:>9.2f} {share:>6.1%}"
            )
        return "\n".join([*lines, f"{'total':<16} {'':<28} {'':>5} {1000 * total:>9.2f}"])


_times: ContextVar[Times | None] = ContextVar("times", default=None)


@contextmanager
def timing() -> Iterator[Times]:
    """Measure the passes that run in the block."""
    token = _times.set(times := Times())
    try:
        yield times
    finally:
        _times.reset(token)


@contextmanager
def timed(pipeline: str, step: str) -> Iterator[None]:
    """Count the block as a run of a pass; ``capture`` and code generation, which are none, are measured so too."""
    times = _times.get()
    if times is None:
        yield
        return
    begin = time.perf_counter()
    try:
        yield
    finally:
        times.add(pipeline, step, time.perf_counter() - begin)

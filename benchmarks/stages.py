"""Where the time of one case goes: CPU milliseconds by stage, warm, over cases of the op database.

Each stage is a function of the compiler or the harness that is timed from outside while cases run as the suite runs
them; a stage inside another is taken out of the outer one, so the rows add up. CPU time of this process is counted,
not wall time, so that other work on the machine does not.
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from throughput import select, together

from torchstone.compiler.runtime.cpu.cache import CACHE
from torchstone.conformance.backends import load
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.program.case import Case

# Stage, and the function that is it: module, attribute (of a class, after a dot). A stage may name an argument.
STAGES = (
    ("the rest", "conformance.backends.adapters.builtin", "_Mlir.compile_many"),
    ("case (the rest)", "conformance.execution.run_case", "_run_variant"),
    ("eager and copies", "conformance.execution.run_case", "observe"),
    ("randomness", "conformance.oracle.random.compare", "undetermined"),
    ("capture", "compiler.capture.trace.frontend", "capture"),
    ("capture: aliases", "compiler.capture.program", "Captured.keep_aliased"),
    ("contract", "compiler.driver", "to_contract"),
    ("contract", "compiler.driver", "to_flat"),
    ("lower", "compiler.driver", "to_target"),
    ("lower: verify", "compiler.lowering.linalg.build", "_verify"),
    ("compile (the rest)", "compiler.runtime.cpu.kernel", "CpuKernel.__init__"),
    ("compile (the rest)", "compiler.runtime.cpu.code", "_compile"),
    ("compile: key", "compiler.runtime.cpu.cache", "key_of"),
    ("compile: destination", "compiler.runtime.cpu.code", "Code.prepare"),
    ("compile: merge", "compiler.runtime.cpu.code", "_merged"),
    ("compile: pipeline {0}", "compiler.lowering.mlir_passes.pipelines", "run"),
    ("compile: free and copy", "compiler.lowering.mlir_passes.cpu", "finish_buffers"),
    ("compile: checks", "compiler.runtime.cpu.code", "divert_aborts"),
    ("compile: LLVM", "compiler.runtime.cpu.jit", "Engine.__init__"),
    ("compile: link", "compiler.runtime.cpu.jit", "Engine.function"),
    ("call", "compiler.runtime.cpu.kernel", "CpuKernel.__call__"),
    ("oracle", "conformance.execution.run_case", "judge"),
)


class Clock:
    """CPU seconds by stage, exclusive of the stages entered inside."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner = [0.0]

    def timed(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            self._inner.append(0.0)
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                taken = time.process_time() - start
                name = stage.format(*args) if "{" in stage else stage
                self.seconds[name] = self.seconds.get(name, 0.0) + taken - self._inner.pop()
                self._inner[-1] += taken

        return run

    def install(self) -> None:
        """Put the timers in the places of the functions."""
        for stage, module, path in STAGES:
            owner, name = find(module, path)
            setattr(owner, name, self.timed(stage, getattr(owner, name)))


def find(module: str, path: str) -> tuple[Any, str]:
    """Return the module or class that holds a function of the table, and the function's name there."""
    owner: Any = importlib.import_module(f"torchstone.{module}")
    *classes, name = path.split(".")
    for cls in classes:
        owner = getattr(owner, cls)
    return owner, name


def main() -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="linalg", help="one of torchstone's own [linalg]")
    parser.add_argument("--op", action="append", help="op or shell pattern, repeatable [default: all]")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--per-op", type=int, default=1, help="first samples of each op to try [1]")
    parser.add_argument("--cases", type=int, default=150, help="cases to time, at most [150]")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds, after one that warms up [3]")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    cases = select([options.backend], options.op, options.dtype, options.per_op, options.cases)
    if not cases:
        sys.exit("no case passes")
    rows = measure(cases, options.backend, options.rounds)
    total = sum(rows.values())
    if options.format == "json":
        stages = {stage: round(taken, 4) for stage, taken in rows.items()}
        print(json.dumps({"cases": len(cases), "total_ms": round(total, 4), "stages_ms": stages}, indent=2))
        return
    print(f"CPU time a case, mean over {len(cases)} cases, median of {options.rounds} rounds\n")
    for stage, taken in rows.items():
        print(f"{stage:<24}{taken:>8.3f} ms{100 * taken / total:>7.1f} %")
    print(f"{'total':<24}{total:>8.3f} ms")


def measure(cases: list[Case], name: str, rounds: int) -> dict[str, float]:
    """Return the CPU milliseconds of a case by stage: the mean over the cases, the median over the rounds."""
    backend = load(name)
    size = getattr(backend, "batch", 1)
    clock = Clock()
    clock.install()
    found: list[dict[str, float]] = []
    for number in range(rounds + 1):
        clock.seconds.clear()
        for start in range(0, len(cases), size):
            batch = cases[start : start + size]
            CACHE.clear()
            compiled = together(batch, backend)
            for index, case in enumerate(batch):
                run_case(case, backend, compiled.pop(index, None))
        gc.collect()
        print(f"round {number} of {rounds}{' (warm-up)' if not number else ''}", file=sys.stderr)
        if number:
            found.append({stage: 1000 * taken / len(cases) for stage, taken in clock.seconds.items()})
    order = [stage for stage, _, _ in STAGES]
    names = sorted({name for one in found for name in one}, key=lambda name: _row(name, order))
    return {stage: statistics.median(one.get(stage, 0.0) for one in found) for stage in names}


def _row(name: str, order: list[str]) -> int:
    return next(i for i, stage in enumerate(order) if name == stage or name.startswith(stage.partition("{")[0]))


if __name__ == "__main__":
    main()

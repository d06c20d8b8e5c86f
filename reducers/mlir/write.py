"""What a reduction of a module leaves: the module, with the command that shows the failure, and a summary."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from torchstone.compiler import mlir
from torchstone.conformance.escape import shell_command, visible
from torchstone.reducers.engine import Reduced
from torchstone.reducers.mlir import edits, pipeline
from torchstone.reducers.mlir.shrink import Subject
from torchstone.reducers.mlir.trial import Outcome

MODULE, ORIGINAL, SUMMARY = "reduced.mlir", "original.mlir", "summary.json"


def write_reduction(
    folder: Path, original: Subject, reduced: Reduced[Subject], outcome: Outcome, confirmed: bool, seconds: float
) -> None:
    """Write a reduction's files into ``folder``, which is there."""
    head = [f"// {line}" for line in visible(str(outcome)).splitlines()]
    head.append(f"// {tool_command(reduced.value)}")
    _write(folder / MODULE, "\n".join([*head, reduced.value.module]))
    _write(folder / ORIGINAL, original.module)
    record = {
        "outcome": {"kind": outcome.kind, "at": outcome.at, "detail": outcome.detail},
        "confirmed": confirmed,
        "complete": reduced.complete,
        "pipeline": pipeline.text(reduced.value.pipeline),
        "reduced": measure(reduced.value),
        "original": {"pipeline": pipeline.text(original.pipeline), **measure(original)},
        "trials": reduced.trials,
        "seconds": round(seconds, 3),
        "passes": [step.name for step in reduced.steps],
    }
    _write(folder / SUMMARY, json.dumps(record, indent=2) + "\n")


def measure(subject: Subject) -> dict[str, Any]:
    """Return the size of a subject: its passes, its ops, and the bytes of its text."""
    return {
        "passes": pipeline.passes(subject.pipeline),
        "ops": edits.count_ops(subject.module),
        "bytes": len(subject.module.encode()),
    }


def tool_command(subject: Subject) -> str:
    """Return the command that runs the pipeline with the tool that comes with the bindings."""
    tool = "mlir-opt" if mlir.bindings().provider == "mlir" else "torch-mlir-opt"
    return shell_command([tool, f"--pass-pipeline={pipeline.text(subject.pipeline)}", MODULE])


def ends_so(subject: Subject, outcome: Outcome, timeout: float, folder: Path, values: tuple[str, ...] = ()) -> bool:
    """Whether the pipeline ends on the module in the same way in an interpreter that was started for it.

    ``values``: the function to call, and the tolerance, where the question is what the module computes.
    """
    path = folder / MODULE
    _write(path, subject.module)
    command = [sys.executable, "-m", "torchstone.reducers.mlir.once", str(path), pipeline.text(subject.pipeline)]
    done = subprocess.run([*command, str(timeout), *values], capture_output=True, text=True, check=False)
    if done.returncode:
        return False
    return Outcome(**json.loads(done.stdout.splitlines()[-1])).signature == outcome.signature


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")

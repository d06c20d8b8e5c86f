"""What a reduction leaves on disk: a script to paste, the case to replay, the case it came from, and a summary."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from torchstone.conformance.escape import file_name, replay_command
from torchstone.conformance.files import prepare_folder
from torchstone.conformance.program.case import Case
from torchstone.reducers.failure import Reduction

SCRIPT, CASE, ORIGINAL, SUMMARY = "reproducer.py", "case.safetensors", "original.safetensors", "summary.json"


def write_reduction(reduction: Reduction, folder: Path) -> None:
    """Write a reduction's files into ``folder``, which is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SCRIPT).write_text(reduction.script, encoding="utf-8", newline="\n")
    reduction.case.save(folder / CASE)
    reduction.original.save(folder / ORIGINAL)
    (folder / SUMMARY).write_text(json.dumps(summary(reduction), indent=2) + "\n", encoding="utf-8")


def add_to_corpus(reduction: Reduction, folder: Path) -> Path:
    """Add the reduced case to a corpus, called after what fails; return its file. One that is there stays as it is."""
    ops = "-".join(call.target.rpartition(".")[2] for call in reduction.case.program.calls[:3])
    name = file_name(reduction.signature.outcome, ops, reduction.signature.digest)
    path = prepare_folder(folder) / f"{name}.safetensors"
    if not path.exists():
        reduction.case.save(path)
    return path


def summary(reduction: Reduction) -> dict[str, Any]:
    """Return a reduction as JSON values."""
    return {
        "backend": reduction.backend,
        "signature": dataclasses.asdict(reduction.signature),
        "message": reduction.verdict.message,
        "evidence": reduction.verdict.evidence,
        "confirmed": reduction.confirmed,
        "complete": reduction.complete,
        "reduced": measure_case(reduction.case),
        "original": {"id": reduction.original.id, **measure_case(reduction.original)},
        "trials": reduction.trials,
        "seconds": round(reduction.seconds, 3),
        "passes": [step.name for step in reduction.steps],
        "replay": replay_command(CASE, reduction.backend),
    }


def measure_case(case: Case) -> dict[str, Any]:
    """Return the size of a case: its calls, and the elements of its inputs."""
    return {
        "calls": len(case.program.calls),
        "ops": [call.target for call in case.program.calls],
        "elements": sum(tensor.numel() for tensor in case.args),
        "largest_input": max((tensor.numel() for tensor in case.args), default=0),
        "dtypes": [str(tensor.dtype)[6:] for tensor in case.args],
        "program": str(case.program).splitlines(),
    }

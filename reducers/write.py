"""What a reduction leaves on disk: an issue to paste, a script, a test, the case and where it came from, a summary."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from torchstone.conformance.custom.registration import OPS_FROM
from torchstone.conformance.escape import file_name, replay_command, utf8
from torchstone.conformance.files import prepare_folder
from torchstone.conformance.program.case import Case
from torchstone.reducers import script_run
from torchstone.reducers.failure import Reduction
from torchstone.reducers.issue import issue, text_name
from torchstone.reducers.script_run import RunningScript, ScriptRun

SCRIPT, CASE, ORIGINAL, SUMMARY = "reproducer.py", "case.safetensors", "original.safetensors", "summary.json"
ISSUE, TEST = "issue.md", "test_reproducer.py"
SIDES = ("before", "after")

_TEST = '''"""Fails for as long as the failure is there: the script beside this file exits with 1 where it shows."""

import subprocess
import sys
from pathlib import Path


def test_reproducer():
    script = Path(__file__).with_name("{script}")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
'''


def write_reduction(reduction: Reduction, folder: Path) -> None:
    """Write a reduction's files into ``folder``, which is made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SCRIPT).write_text(reduction.script, encoding="utf-8", newline="\n")
    (folder / TEST).write_text(_TEST.format(script=SCRIPT), encoding="utf-8", newline="\n")
    (folder / ISSUE).write_text(issue(reduction, SCRIPT), encoding="utf-8", newline="\n")
    for side in SIDES:
        (folder / text_name(side)).unlink(missing_ok=True)  # of an earlier reduction
    for side, (_, text) in reduction.texts.items():
        (folder / text_name(side)).write_text(utf8(text), encoding="utf-8", newline="\n")
    reduction.case.save(folder / CASE)
    reduction.original.save(folder / ORIGINAL)
    (folder / SUMMARY).write_text(json.dumps(summary(reduction), indent=2) + "\n", encoding="utf-8")


def confirm_script(reduction: Reduction, folder: Path, python: str | None = None) -> ScriptRun:
    """Run the script that was written, by a backend's own Python if it has one; the summary tells how that ended."""
    ran = start_script(reduction, folder, python).wait()
    write_script_run(reduction, folder, ran)
    return ran


def start_script(reduction: Reduction, folder: Path, python: str | None = None) -> RunningScript:
    """Run the script that was written, beside what else is to be done."""
    beside_user = ":" in reduction.backend or any(tag.startswith(OPS_FROM) for tag in reduction.case.tags)
    return script_run.start_script(folder / SCRIPT, reduction.verdict, python, beside_user=beside_user)


def write_script_run(reduction: Reduction, folder: Path, ran: ScriptRun) -> None:
    """Write into the summary how the script ended."""
    told = summary(reduction) | {"script": dataclasses.asdict(ran)}
    (folder / SUMMARY).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


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
        "blame": reduction.blame,
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

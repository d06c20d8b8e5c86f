"""A reduction's script, run by itself in a new process: whether it shows the failure that the verdict names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torchstone.conformance.execution.verdict import Kind, Outcome, Verdict
from torchstone.conformance.repro.check import HEAD
from torchstone.conformance.repro.standalone import SECONDS
from torchstone.reducers.signature import contrast

TAIL = 600


@dataclass(frozen=True)
class ScriptRun:
    """How a script ended: its exit code, None when it hung; whether that shows the failure; the end of its stderr."""

    code: int | None
    shows: bool
    tail: str


def run_script(script: Path, verdict: Verdict, python: str | None = None, *, beside_user: bool = False) -> ScriptRun:
    """Run a script in a folder that is thrown away, by a backend's own Python, and say whether it shows the verdict.

    ``beside_user``: what it imports may lie in the user's folder.
    """
    environment = dict(os.environ)
    if beside_user or ":" in verdict.backend:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), environment.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory(prefix="torchstone-script-") as folder:
        try:
            done = subprocess.run(
                [python or sys.executable, str(script.absolute())],
                cwd=folder,
                env=environment | {"TMPDIR": folder},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=2 * SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return ScriptRun(None, verdict.outcome is Outcome.TIMEOUT, "")
    return ScriptRun(done.returncode, done.returncode == 1 and shows_failure(verdict, done.stderr), done.stderr[-TAIL:])


def shows_failure(verdict: Verdict, stderr: str) -> bool:
    """Whether a script that failed did so as the verdict says: it could lack a package, or fail at something else.

    A script looks only at the place that the verdict names, so that this is left: what differs, and how.
    """
    if verdict.outcome is Outcome.MISMATCH:
        head = f"{HEAD} {verdict.kind}: "
        said = [line for line in stderr.splitlines() if line.startswith(head)]
        return any(map(partial(_as_wrong, verdict), said)) if said else "AssertionError: " in stderr
    if verdict.outcome is Outcome.CRASH:
        return "killed by signal" in stderr or "exited with" in stderr or "rror code" in stderr
    if verdict.outcome in (Outcome.TIMEOUT, Outcome.OOM):
        return "timed out after" in stderr or "killed by signal" in stderr
    words = set(re.findall(r"[A-Za-z_]{4,}", verdict.message))
    said_words = set(re.findall(r"[A-Za-z_]{4,}", stderr))
    return len(words & said_words) * 2 >= len(words)


def _as_wrong(verdict: Verdict, said: str) -> bool:
    """Whether numbers in a script's last line are to each other what those of the verdict are."""
    numbers = re.search(r"expected (\S+), got ([^\s,]+)", said)
    told = verdict.evidence
    if numbers is None or "expected" not in told or "actual" not in told or verdict.kind == Kind.NONDETERMINISTIC:
        return True
    return contrast(numbers[1], numbers[2]) == contrast(told["expected"], told["actual"])

"""A reduction's script, run by itself in a new process: whether it shows the failure that the verdict names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from torchstone.conformance.execution.verdict import Outcome, Verdict
from torchstone.conformance.repro.standalone import SECONDS

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
    """Whether a script that failed did so as the verdict says: it could lack a package, or fail at something else."""
    differs = "AssertionError: " in stderr and "AssertionError" not in verdict.message  # which may be the compiler's
    if verdict.outcome is Outcome.MISMATCH:
        return differs
    if verdict.outcome is Outcome.CRASH:
        return not differs and ("killed by signal" in stderr or "exited with" in stderr or "rror code" in stderr)
    if verdict.outcome in (Outcome.TIMEOUT, Outcome.OOM):
        return not differs and ("timed out after" in stderr or "killed by signal" in stderr)
    words = set(re.findall(r"[A-Za-z_]{4,}", verdict.message))
    said = set(re.findall(r"[A-Za-z_]{4,}", stderr))
    return not differs and len(words & said) * 2 >= len(words)

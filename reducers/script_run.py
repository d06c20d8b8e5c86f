"""A reduction's script, run by itself in a new process: whether it shows the failure that the verdict names."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from torchstone.conformance.backends.adapters import inductor_warm_files
from torchstone.conformance.execution.verdict import Kind, Outcome, Verdict
from torchstone.conformance.repro.check import HEAD
from torchstone.conformance.repro.standalone import SECONDS
from torchstone.reducers.message import PASSED_BEFORE
from torchstone.reducers.signature import contrast

OUT_OF_MEMORY = ("bad_alloc", "MemoryError", "out of memory", "Cannot allocate memory")
"""What is said by a process that got no memory and was not killed for it: a script has no limit of its own."""
INDUCTORS_FOLDERS = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""PyTorch sets the first in its own environment as soon as it is asked for the folder."""
TAIL = 600
POLL_SECONDS = 1.0


@dataclass(frozen=True)
class ScriptRun:
    """How a script ended: its exit code, None when it hung; whether that shows the failure; the end of its stderr."""

    code: int | None
    shows: bool
    tail: str


class RunningScript:
    """A script at work in a folder that is thrown away."""

    def __init__(self, script: Path, verdict: Verdict, python: str | None, environment: Mapping[str, str]) -> None:
        self._verdict = verdict
        self._folder = tempfile.TemporaryDirectory(prefix="torchstone-script-")
        self._said = Path(self._folder.name) / "stderr"
        # Inductor's folders lie in the temporary one, unless these say another: what a script that is ended leaves half
        # written there would be met by every later run of the user's.
        environment = {name: value for name, value in environment.items() if name not in INDUCTORS_FOLDERS}
        environment["TMPDIR"] = self._folder.name
        if not inductor_warm_files.give_to(Path(self._folder.name)):
            # Of use to many kernels only: inductor takes longer to precompile its headers than to do without them once.
            environment.setdefault("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "0")
        self._ends = time.monotonic() + 2 * SECONDS
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [python or sys.executable, str(script.absolute())],
                cwd=self._folder.name,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,  # ended with all that it starts
            )

    def poll(self) -> ScriptRun | None:
        """How it ended, None as long as it runs."""
        code = self._process.poll()
        if code is None:
            if time.monotonic() < self._ends:
                return None
            self.kill()
            return ScriptRun(None, self._verdict.outcome is Outcome.TIMEOUT, "")
        said = self._said.read_text(encoding="utf-8", errors="replace")
        self._folder.cleanup()
        return ScriptRun(code, code == 1 and shows_failure(self._verdict, said), said[-TAIL:])

    def wait(self) -> ScriptRun:
        """Wait until it has ended."""
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(POLL_SECONDS)
                if (ran := self.poll()) is not None:
                    return ran
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._folder.cleanup()


def start_script(
    script: Path, verdict: Verdict, python: str | None = None, *, beside_user: bool = False
) -> RunningScript:
    """Run a script by a backend's own Python, to see whether it shows the failure of a verdict.

    ``beside_user``: what it imports may lie in the user's folder.
    """
    environment = dict(os.environ)
    if beside_user or ":" in verdict.backend:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), environment.get("PYTHONPATH")]))
    return RunningScript(script, verdict, python, environment)


def run_script(script: Path, verdict: Verdict, python: str | None = None, *, beside_user: bool = False) -> ScriptRun:
    """Run a script to its end."""
    return start_script(script, verdict, python, beside_user=beside_user).wait()


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
        said = ("timed out after", "killed by signal", *(OUT_OF_MEMORY if verdict.outcome is Outcome.OOM else ()))
        return any(words in stderr for words in said)
    words = set(re.findall(r"[A-Za-z_]{4,}", verdict.message.removesuffix(PASSED_BEFORE)))
    said_words = set(re.findall(r"[A-Za-z_]{4,}", stderr))
    return len(words & said_words) * 2 >= len(words)


def _as_wrong(verdict: Verdict, said: str) -> bool:
    """Whether numbers in a script's last line are to each other what those of the verdict are.

    Of calls that differ, and of a distribution, they are of no one element.
    """
    numbers = re.search(r"expected (\S+), got ([^\s,]+)", said)
    told = verdict.evidence
    if numbers is None or verdict.kind in (Kind.NONDETERMINISTIC, Kind.DISTRIBUTION):
        return True
    if "expected" not in told or "actual" not in told:
        return True
    return contrast(numbers[1], numbers[2]) == contrast(told["expected"], told["actual"])

"""What is asked of a module and its pipeline: how the passes end, or what a command of the user's says of them."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from torchstone.reducers.mlir import pipeline
from torchstone.reducers.mlir.trial import Outcome, try_pipeline

if TYPE_CHECKING:
    from torchstone.reducers.mlir.shrink import Question, Subject


def passing(timeout: float) -> Question:
    """Ask how the pipeline ends on the module: an error of a pass, a crash, a hang."""
    return lambda subject: try_pipeline(subject.module, subject.pipeline, timeout)


def answering(command: str, timeout: float) -> Question:
    """Ask a command of the user's, run by the shell: it shows the failure if it ends with 0.

    It finds the module's file in ``$MODULE`` and the pipeline in ``$PIPELINE``, and it runs in a folder of its own.
    """

    def ask(subject: Subject) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="torchstone-reduce-") as folder:
            path = Path(folder) / "module.mlir"
            path.write_text(subject.module, encoding="utf-8")
            given = {"MODULE": str(path), "PIPELINE": pipeline.text(subject.pipeline)}
            try:
                done = subprocess.run(
                    command, shell=True, cwd=folder, env={**os.environ, **given}, timeout=timeout, capture_output=True,
                    check=False, start_new_session=True,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return Outcome("timeout", "--test", f"over {timeout:g} s")
        return Outcome("wrong" if done.returncode == 0 else "ok", "--test", f"exit code {done.returncode}")

    return ask

"""Run one step within its part of the time, and read what it has found."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from results import Result
from steps import Step

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "from torchstone.cli import main; main()"
# What a run needs after it was interrupted, to end its workers and to write down where it stands.
GRACE_SECONDS = 30.0
STATES = {0: "passed", 1: "failures"}


class Budget:
    """Seconds for all steps: each takes its share of what those before it have left."""

    def __init__(self, seconds: float, shares: int) -> None:
        self.end, self.shares = time.monotonic() + seconds, shares

    def take(self, share: int) -> float:
        left = self.end - time.monotonic()
        part = left * share / max(self.shares, 1)
        self.shares -= share
        return max(part, 1.0)


def run(step: Step, out: Path, budget: Budget, jobs: str, options: Sequence[str]) -> Result:
    """Return what came of a step; its output is in ``out``, in the file of its name."""
    if lacking := step.lacking():
        return Result(step.name, "skipped", reason=lacking)
    for old in out.glob(f"{step.name}.*"):
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    seconds = budget.take(step.share)
    place = out / f"{step.name}.{'xml' if step.tests else 'sqlite'}"
    begin = time.monotonic()
    code, cut = _ended(_command(step, place, seconds, jobs, options), step, out, seconds)
    result = {"tests": _of_tests, "run": _of_run, "fuzz": _of_fuzz}[step.kind](step, place, code)
    result.seconds = round(time.monotonic() - begin, 1)
    if cut:
        result.state, result.reason = "part", f"cut after its {seconds:.0f} s"
    return result


def _command(step: Step, place: Path, seconds: float, jobs: str, options: Sequence[str]) -> list[str]:
    python = [sys.executable, "-P"]
    if step.tests:
        return [*python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={place}", *step.tests]
    command = [*python, "-c", COMMAND, *step.arguments, "--jobs", jobs, "--store", str(place)]
    if step.kind == "run":
        return [*command, *options]
    limit = f"{max(seconds - GRACE_SECONDS, 10):.0f}s"
    return [*command, "--time", limit, "--out", str(place.with_suffix(".findings"))]


def _ended(command: list[str], step: Step, out: Path, seconds: float) -> tuple[int, bool]:
    """Return the exit code of a command, and whether it was interrupted because its time was up."""
    with (out / f"{step.name}.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=os.environ | step.environment, stdout=log, stderr=subprocess.STDOUT
        )
        cut = False
        for wait, then in ((seconds, signal.SIGINT), (GRACE_SECONDS, signal.SIGKILL), (None, signal.SIGKILL)):
            try:
                return process.wait(wait), cut
            except subprocess.TimeoutExpired:
                process.send_signal(then)
                cut = True
            except BaseException:
                process.send_signal(signal.SIGINT)
                raise
    raise AssertionError("a process that was killed has ended")


def _died(step: Step, code: int) -> Result:
    return Result(step.name, "died", reason=f"exit code {code}: {step.name}.log has its words")


def _of_tests(step: Step, place: Path, code: int) -> Result:
    try:
        cases = list(ElementTree.parse(place).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return _died(step, code)
    result = Result(step.name, STATES.get(code, "died"), reason="" if code in STATES else f"exit code {code}")
    for case in cases:
        bad = [*case.iter("failure"), *case.iter("error")]
        state = "failed" if bad else "skipped" if case.find("skipped") is not None else "pass"
        result.counts[state] = result.counts.get(state, 0) + 1
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        result.failures += [{"case": name, "outcome": "failed", "message": bad[0].get("message", "")}] if bad else []
    return result


def _of_run(step: Step, place: Path, code: int) -> Result:
    from torchstone.conformance.execution.verdict import FAILURES

    rows = place.with_suffix(".jsonl")
    export = ["runs", "export", "--store", str(place), "--out", str(rows)]
    done = subprocess.run([sys.executable, "-P", "-c", COMMAND, *export], capture_output=True, text=True, check=False)
    if done.returncode:
        return _died(step, code)
    verdicts = [json.loads(line) for line in rows.read_text().splitlines()]
    result = Result(step.name, STATES.get(code, "died"), reason="" if code in STATES else f"exit code {code}")
    result.counts = dict(Counter(row["outcome"] for row in verdicts).most_common())
    result.failures = [
        {"case": row["case_id"], "outcome": row["outcome"], "message": row["message"]}
        for row in verdicts
        if row["outcome"] in FAILURES
    ]
    return result if verdicts else _died(step, code)


def _of_fuzz(step: Step, place: Path, code: int) -> Result:
    try:
        told = json.loads((place.with_suffix(".findings") / "campaign.json").read_text())
    except (OSError, ValueError):
        return _died(step, code)
    result = Result(step.name, STATES.get(code, "died"), reason="" if code in STATES else f"exit code {code}")
    result.counts = told["outcomes"]
    result.failures = [
        {"case": finding["name"], "outcome": finding["signature_parts"]["outcome"], "message": finding["message"]}
        for finding in told["findings"]
    ]
    return result

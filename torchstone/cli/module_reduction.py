"""``torchstone reduce --mlir``: from a module and a pipeline that fail to a few lines that still do."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

from torchstone.cli.errors import FAILURES, OK
from torchstone.cli.output import say, warn
from torchstone.compiler import mlir
from torchstone.conformance.errors import InputError
from torchstone.conformance.escape import file_name, printable_lines, visible
from torchstone.conformance.files import prepare_folder
from torchstone.reducers.engine import Budget, Reduced
from torchstone.reducers.mlir import pipeline, questions
from torchstone.reducers.mlir.shrink import Question, Subject, shrink
from torchstone.reducers.mlir.trial import RUN_BEFORE, Outcome
from torchstone.reducers.mlir.write import ends_so, measure, write_reduction

TIMEOUT = 20.0
"""Seconds that a trial may take: passes on a small module take milliseconds."""


@dataclass(frozen=True)
class Asked:
    """What the user asked for: the options of ``reduce`` that speak of a module."""

    path: Path
    pipeline: str
    values: bool
    test: str | None
    entry: str
    tolerance: float
    trials: int
    seconds: float
    timeout: float
    out: Path | None


def reduce_module(asked: Asked) -> int:
    """Shrink the module and its pipeline, write what is left, and say how it went. Returns the exit code."""
    if asked.values and asked.test:
        raise InputError("--values and --test both say what the failure is: give one of them")
    if not asked.pipeline and not asked.test:
        raise InputError('give the --pipeline that fails, as "func.func(canonicalize),cse", or a --test of your own')
    subject = Subject(_text(asked.path), pipeline.parse(asked.pipeline))
    mlir.bindings()  # says how to install them where there are none
    question = _question(asked)
    outcome = question(subject)
    _check_fails(asked, outcome)
    folder = prepare_folder(asked.out or Path(".torchstone/reduced") / file_name(asked.path.stem, outcome.kind))
    say(f"failure   {visible(str(outcome))}")
    live = sys.stderr.isatty()
    began = time.monotonic()
    reduced = shrink(
        subject,
        question,
        asked.timeout,
        Budget(trials=asked.trials, seconds=asked.seconds),
        progress=lambda step: warn(f"  {step.name}: {step.size[0]} passes, {step.size[1]} ops") if live else None,
    )
    took = time.monotonic() - began
    outcome = question(reduced.value)
    confirmed = _confirm(asked, reduced.value, outcome, folder)
    write_reduction(folder, subject, reduced, outcome, confirmed, took)
    _show(subject, reduced, confirmed, took, folder)
    return OK if confirmed else FAILURES


def _show(subject: Subject, reduced: Reduced[Subject], confirmed: bool, took: float, folder: Path) -> None:
    """Say what is left, and how it was found."""
    before, after = measure(subject), measure(reduced.value)
    for what in before:
        say(f"{what:<9} {before[what]} -> {after[what]}")
    say(f"pipeline  {visible(pipeline.text(reduced.value.pipeline))}")
    say(printable_lines(reduced.value.module.rstrip()))
    end = "nothing more to take away" if reduced.complete else "stopped by its budget"
    state = "confirmed" if confirmed else "NOT confirmed"
    say(f"search    {reduced.trials} trials, {took:.1f} s, {end}, {state} in a fresh process")
    say(f"written   {visible(str(folder))}")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is no text of a module: {error}; bytecode is turned into text by mlir-opt") from error


def _question(asked: Asked) -> Question:
    if asked.test:
        return questions.answering(asked.test, asked.timeout)
    if asked.values:
        from torchstone.reducers.mlir import values  # it loads PyTorch, which makes every trial dearer

        return values.computing(asked.entry, asked.timeout, asked.tolerance)
    return questions.passing(asked.timeout)


def _check_fails(asked: Asked, outcome: Outcome) -> None:
    """Raise InputError where there is no failure to keep."""
    if outcome.at == RUN_BEFORE:
        raise InputError(f"{asked.path} cannot be run without the pipeline, so that nothing can be compared: {outcome}")
    if outcome.kind == "invalid":
        what = "is no valid module" if outcome.at == "parse" else "is refused with its pipeline"
        raise InputError(f"{asked.path} {what}: {outcome.detail}")
    if outcome.kind != "ok":
        return
    if asked.test:
        raise InputError(f"--test ends with {outcome.detail} on {asked.path}: it has to end with 0 where it shows")
    what = "changes nothing that is computed" if asked.values else "ends well"
    raise InputError(f"the pipeline {what} on {asked.path}: nothing to reduce")


def _confirm(asked: Asked, subject: Subject, outcome: Outcome, folder: Path) -> bool:
    if asked.test:  # each trial of it is a process of its own
        return _question(asked)(subject).signature == outcome.signature
    values = (asked.entry, str(asked.tolerance)) if asked.values else ()
    return ends_so(subject, outcome, asked.timeout, folder, values)

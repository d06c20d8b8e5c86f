"""Eager asked in a fork of this process: some of its kernels end the process for arguments that no sample has.

Integer average pooling divides by a ``divisor_override`` of 0, for one. A process that is expendable asks without a
fork, which takes longer than most questions.
"""

from __future__ import annotations

import faulthandler
import itertools
import os
import resource
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch

from torchstone.conformance.fork import fork
from torchstone.conformance.program.case import Case
from torchstone.conformance.sources.sampling import seeded
from torchstone.conformance.variants.attempts import attempts
from torchstone.conformance.variants.support import complaint

SECONDS = 10
"""Of the processor's time that a fork may take."""

REFUSED = 4
"""Programs of each kind that a backend has to refuse, at most."""


def answers(questions: Sequence[Callable[[], bool]], most: int) -> list[bool]:
    """What each question is answered in a fork, to the ``most``th yes; no where that ends the fork.

    Questions of one fork are asked in order, in one process. A fork that ends is followed by one for the rest. Either
    way no question changes what this process draws.
    """
    found: list[bool] = []
    if attempts.expendable:
        with seeded(""):
            for question in itertools.takewhile(lambda _: sum(found) < most, questions):
                found.append(_answered(question))
        return found
    while len(found) < len(questions) and sum(found) < most:
        said = _ask(questions[len(found) :], most - sum(found))
        found += [answer == b"y"[0] for answer in said]
        if len(found) < len(questions) and sum(found) < most:
            found.append(False)
    return found


def refused(cases: Iterable[Case]) -> list[Case]:
    """The first of each kind that eager refuses: with words that it had for none before, whatever the numbers in them.

    What ends eager's process is no case.
    """
    found, heard = list(cases), {""}

    def is_new(case: Case) -> bool:
        words = complaint(case)
        before = words in heard
        heard.add(words)
        return not before

    told = answers([partial(is_new, case) for case in found], REFUSED)
    return [case for case, yes in zip(found, told, strict=False) if yes]


def _ask(questions: Sequence[Callable[[], bool]], most: int) -> bytes:
    child, reading = fork(partial(_answer, questions, most))
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def _answer(questions: Sequence[Callable[[], bool]], most: int, writing: int) -> None:
    faulthandler.disable()
    torch.set_num_threads(1)  # the threads of the process are not in its fork, which would wait for them for ever
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    for question in questions:
        answer = _answered(question)
        os.write(writing, b"y" if answer else b"n")
        most -= answer
        if not most:
            return


def _answered(question: Callable[[], bool]) -> bool:
    try:
        return question()
    except BaseException:
        return False

"""What a program asked of things that are no objects of its own, and was told: a call has to be told the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torchstone.compiler.diagnostics import GuardError


@dataclass(frozen=True, slots=True)
class Question:
    """``what`` is how the message calls what ``ask`` returns."""

    what: str
    ask: Callable[[], Any]
    answer: Any


def check_answers(questions: Iterable[Question]) -> None:
    """GuardError where an answer is another one now."""
    for question in questions:
        now = question.ask()
        if now is not question.answer and now != question.answer:
            raise GuardError(f"{question.what} was {question.answer} when compiled, is {now}")

"""GitHub's annotations: workflow commands on a line each, which the runner shows at the lines of a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torchstone.conformance.escape import one_line, workflow_message, workflow_property

LIMIT = 10
"""GitHub shows no more errors than this from one step."""
MESSAGE = 500


@dataclass(frozen=True)
class Annotation:
    """One thing to say; ``file`` and ``line`` are where, if anywhere in the repository."""

    title: str
    message: str
    file: str = ""
    line: int = 0


def annotation_lines(problems: Sequence[Annotation], limit: int = LIMIT) -> Iterator[str]:
    """Yield at most ``limit`` commands; the last one counts what is left out."""
    shown = problems if len(problems) <= limit else problems[: limit - 1]
    yield from map(_command, shown)
    if len(shown) < len(problems):
        yield _command(Annotation("torchstone", f"and {len(problems) - len(shown):,} more; the log has all of them"))


def _command(problem: Annotation) -> str:
    properties = {"title": one_line(problem.title)}
    if problem.file:
        properties |= {"file": problem.file} | ({"line": str(problem.line)} if problem.line else {})
    listed = ",".join(f"{name}={workflow_property(value)}" for name, value in properties.items())
    return f"::error {listed}::{workflow_message(one_line(problem.message, MESSAGE))}"

"""What follows when a worker dies or hangs: the verdict of its case, or another try."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from torchstone.conformance.execution.verdict import Outcome, Verdict

if TYPE_CHECKING:
    from torchstone.conformance.program.case import Case

WORKER_DIED = frozenset({Outcome.CRASH, Outcome.TIMEOUT, Outcome.OOM, Outcome.UNTESTED})


@dataclass(frozen=True, eq=False)
class Trial:
    """A case to be tried in a way of its own.

    ``fresh``: in a worker that has tried nothing before. ``once``: where its worker dies, that is its verdict.
    ``quick``: judged by few runs of the oracle, so that a mismatch may be ill-conditioned. ``traced``: where the pool
    watches, it is told what ran for the case, which takes about as long again.
    """

    case: Case
    fresh: bool = False
    once: bool = False
    quick: bool = False
    traced: bool = True


@dataclass(frozen=True)
class CaseResult:
    """A case, its verdict, and its serialized form.

    Of one that failed, ``before`` are the cases that its worker had done before it, and ``first`` is the verdict there
    where it was tried again, alone.
    """

    case: Case
    verdict: Verdict
    data: bytes
    before: tuple[str, ...] = ()
    first: Verdict | None = None


@dataclass(eq=False)
class ResultQueue:
    """What one caller of ``results`` waits for; batches of nested callers share the workers."""

    done: deque[CaseResult] = field(default_factory=deque)
    open: int = 0
    closed: bool = False


@dataclass(eq=False)
class Task:
    """A case on its way."""

    case: Case
    data: bytes
    batch: ResultQueue
    first: Verdict | None = None  # set when this is the retry of a case that killed its worker
    second: Verdict | None = None  # set when the retry did too: now eager is tried alone
    alone: bool = False  # not to be compiled together with others
    fresh: bool = False  # waits for a worker that has tried nothing
    once: bool = False  # not to be tried again where its worker dies
    quick: bool = False  # to be judged by few runs
    traced: bool = True  # what it runs is to be told
    fork_server_deaths: int = 0  # how often the fork server died under it
    memory_kills: int = 0  # how often the system killed its worker for want of memory
    deaths_before_start: int = 0  # how often a worker died that was to have it, and had not begun it
    before: tuple[str, ...] = ()  # the cases that its first worker had done before it

    def settle(self, verdict: Verdict) -> None:
        """Hand a verdict to who asked, after weighing a retry against the first try."""
        first = self.first
        if first is not None and verdict.outcome in WORKER_DIED:
            verdict = replace(verdict, evidence={**verdict.evidence, "first": first.message})
        elif first is not None:
            verdict = replace(
                verdict, outcome=Outcome.FLAKY, stage=first.stage,
                message=f"{first.outcome} ({first.message}), then {verdict.outcome} alone in a fresh worker",
                evidence={**first.evidence, "retry": {"outcome": str(verdict.outcome), "message": verdict.message}},
            )  # fmt: skip
        self.batch.open -= 1
        if not self.batch.closed:
            before = self.before if verdict.failed else ()
            self.batch.done.append(CaseResult(self.case, verdict, self.data, before, first))


def case_labels(case: Case) -> dict[str, Any]:
    """The fields of a verdict that the case decides."""
    return {
        "case_id": case.id, "source": case.source, "op": case.op, "dtype": case.dtype, "variant": case.variant,
    }  # fmt: skip


def retry_or_settle(task: Task, verdict: Verdict, *, called: bool, retry: bool) -> Verdict | Task:
    """Return the task to try again, alone in a fresh worker, or the verdict that stands.

    ``verdict`` tells how the worker ended, ``called`` whether the backend had been called for the case by then.
    """
    again = retry and verdict.outcome is not Outcome.OOM
    if again and task.first is None:
        return replace(task, first=verdict)
    if again and task.second is None and called and verdict.outcome is Outcome.CRASH:
        return replace(task, second=verdict)
    if task.second is not None and verdict.outcome is not Outcome.CRASH:
        return task.second
    if not called and task.first is not None:  # twice, the second time in a fresh worker
        message = f"eager itself: {verdict.message} before the backend was called"
        return replace(verdict, outcome=Outcome.UNTESTED, message=message)
    return verdict

"""One place in a pool: a worker, its successors, and the cases queued for it."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.runner.cleanup import disk_usage
from torchstone.conformance.runner.resources import over_limit
from torchstone.conformance.runner.retry import Task, case_labels
from torchstone.conformance.runner.worker_process import WorkerProcess

QUEUE_DEPTH = 2
QUEUE_SECONDS = 1.0
"""How long what is queued beyond that may take, as far as is known: who asks for one more verdict waits behind it."""
NEWEST = 0.25
"""What the last case counts for in how long a case takes."""
DISK_SECONDS = 1.0  # between two looks at what a worker has written
GROWTH_BYTES = 1 << 30


@dataclass(frozen=True)
class Limits:
    """What a worker may take: seconds a case, and until one is judged, resident bytes, bytes on disk, cases until it is
    renewed."""

    timeout: float
    judging: float
    memory: int
    disk: int
    recycle: int


@dataclass(eq=False)
class WorkerSlot:
    """A worker at work, or its place."""

    number: int
    limits: Limits
    worker: WorkerProcess | None = None
    ready: bool = False
    queue: deque[Task] = field(default_factory=deque)  # the first is being worked on, once the worker is ready
    sent: int = 0
    batch: int = 1  # cases that the backend compiles together
    pace: float = QUEUE_SECONDS  # seconds a case, of late
    deadline: float = 0.0
    began: float = 0.0
    called: bool = False  # whether the backend was seen to be called for the case
    disk_checked: float = 0.0
    served: int = 0
    baseline: int = 0
    retire: bool = False
    alone: bool = False
    largest: int = 0  # resident bytes of its worker, as last seen
    cold: int = 0  # counts cache folders: a new one after every violent death
    previous_cases: list[str] = field(default_factory=list)  # the cases that its worker has done

    def has_room(self) -> bool:
        """Whether another case may be queued here."""
        depth = max(QUEUE_DEPTH, min(self.batch, int(QUEUE_SECONDS / max(self.pace, 1e-3))))
        return len(self.queue) < depth and not self.retire and not self.alone

    def clear(self) -> None:
        """Be without a worker. The queue stays."""
        self.worker, self.ready, self.sent, self.retire = None, False, 0, False

    def await_worker(self, seconds: float) -> None:
        """Wait for a new worker, at most so many seconds until it is ready."""
        self.clear()
        self.served = self.largest = 0
        self.previous_cases.clear()
        self.deadline = self.disk_checked = time.monotonic() + seconds

    def worker_ready(self, header: dict[str, Any]) -> None:
        """Take note that the worker is ready."""
        self.ready, self.baseline = True, header["rss"]
        self.batch = header["batch"]
        self.disk_checked = time.monotonic()

    def send_queued(self) -> None:
        """Send the worker what is queued for it, if it is ready."""
        if not self.ready or self.worker is None:
            return
        if self.sent == 0 and self.queue:
            self.start_clock()
        while self.sent < len(self.queue):
            task = self.queue[self.sent]
            header: dict[str, Any] = {"case": task.case.id, "about": case_labels(task.case), "alone": task.alone}
            if task.first is not None:
                header["unpatched"] = True
            if task.second is not None:
                header["eager"] = True
            if task.quick:
                header["quick"] = True
            if not task.traced:
                header["untraced"] = True
            self.worker.send(header, task.data)
            self.sent += 1

    def start_clock(self) -> None:
        """Begin the time of the case that is first in the queue."""
        self.began, self.called = time.monotonic(), False
        self.deadline = self.began + self.limits.timeout

    def is_overdue(self) -> bool:
        """Whether the time of the case is up: eager's, the backend's, which begins as it is called, or the judge's."""
        now = time.monotonic()
        stage = self.worker.progress().stage if self.worker is not None and self.has_begun() else None
        if stage is not None and not self.called:
            self.called = True
            self.deadline += now - self.began  # what eager took; one that was brought forward stays so
        return now > self.deadline or (stage is Stage.COMPARE and now - self.began > self.limits.judging)

    def finish_case(self, resident: int) -> Task:
        """Take the case that was worked on out of the queue, and see whether the worker is used up."""
        task = self.queue.popleft()
        self.pace += NEWEST * (time.monotonic() - self.began - self.pace)
        self.sent -= 1
        self.served += 1
        self.alone = False
        self.previous_cases.append(task.case.id)
        if self.sent:
            self.start_clock()
        limits = self.limits
        self.retire = (  # long before a case could be ended for what those before it have leaked or written
            self.served >= limits.recycle
            or resident - self.baseline > min(GROWTH_BYTES, (limits.memory - self.baseline) // 2)
            or self._written() > limits.disk // 4
        )
        return task

    def verdict_in(self, header: dict[str, Any], backend: str) -> Verdict | None:
        """The verdict of the case that is worked on, under the name that the backend was asked for by; None if the
        worker said something else."""
        if not self.sent or header.get("case") != self.queue[0].case.id:
            return None
        try:
            fields = header["verdict"]
            known = {"stage": Stage(fields["stage"]), "outcome": Outcome(fields["outcome"]), "backend": backend}
            text = {"message": str(fields["message"]).encode("utf-8", "replace").decode()}  # what a store can hold
            return Verdict(**{**fields, **known, **text})
        except (KeyError, TypeError, ValueError):
            return None

    def has_begun(self) -> bool:
        """Whether the worker has, or had when it died, taken up the case that is first in the queue."""
        return bool(self.sent) and self.worker is not None and self.worker.progress().cases_begun > self.served

    def limit_exceeded(self) -> str:
        """Say what the worker has too much of; an empty string if nothing."""
        if self.worker is None:
            return ""
        self.largest = used = self.worker.resident()
        if used > self.limits.memory:
            return f"resident memory {over_limit(used, self.limits.memory)}"
        if self.ready and (used := self._written()) > self.limits.disk:
            return f"what its temporary folder holds, {over_limit(used, self.limits.disk)}"
        return ""

    def _written(self) -> int:
        """The bytes in the worker's folder, if it is time to look."""
        now = time.monotonic()
        if self.worker is None or now - self.disk_checked < DISK_SECONDS:
            return 0
        self.disk_checked = now
        return disk_usage(self.worker.scratch, self.limits.disk)

"""The time of a case: eager, the backend and the judge each have their own."""

from __future__ import annotations

import mmap
import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from torchstone.conformance.execution.verdict import Stage
from torchstone.conformance.runner.progress_mark import COUNT, STAGES, Progress
from torchstone.conformance.runner.slot import Limits, WorkerSlot

LIMITS = Limits(timeout=60, judging=100, memory=1 << 30, disk=1 << 30, recycle=100)


@dataclass
class At:
    """A worker that is where it is put, and so is the clock."""

    now: float = 1000.0
    reached: Stage | None = None

    def progress(self) -> Progress:
        page = bytearray(mmap.PAGESIZE)
        page[0], page[COUNT.start] = STAGES.index(self.reached), 1
        return Progress(bytes(page))


@pytest.mark.parametrize(
    ("steps", "late"),
    [
        ([(59, None)], False),
        ([(61, None)], True),
        ([(50, None), (1, Stage.COMPILE), (40, Stage.RUN)], False),
        ([(50, None), (1, Stage.COMPILE), (61, Stage.RUN)], True),
        ([(1, Stage.COMPILE), (58, Stage.RUN)], False),
        ([(1, Stage.COMPILE), (61, Stage.RUN)], True),
        ([(50, None), (1, Stage.COMPILE), (48, Stage.COMPARE)], False),
        ([(50, None), (1, Stage.COMPILE), (50, Stage.COMPARE)], True),
    ],
)
def test_each_has_its_own_time(steps: list[tuple[float, Stage | None]], late: bool, monkeypatch: pytest.MonkeyPatch):
    worker = At()
    monkeypatch.setattr(time, "monotonic", lambda: worker.now)
    slot = WorkerSlot(0, LIMITS, worker=cast(Any, worker), ready=True, sent=1)
    slot.start_clock()
    for number, (seconds, stage) in enumerate(steps):
        worker.now, worker.reached = worker.now + seconds, stage
        assert slot.is_overdue() is (late and number == len(steps) - 1)


def test_a_deadline_that_was_brought_forward_stays_so(monkeypatch: pytest.MonkeyPatch):
    """A worker that has closed the harness's channel is to end soon, wherever it is."""
    worker = At()
    monkeypatch.setattr(time, "monotonic", lambda: worker.now)
    slot = WorkerSlot(0, LIMITS, worker=cast(Any, worker), ready=True, sent=1)
    slot.start_clock()
    slot.deadline = worker.now + 3
    worker.now, worker.reached = worker.now + 1, Stage.COMPILE
    assert not slot.is_overdue()
    worker.now += 5
    assert slot.is_overdue()


def test_no_more_is_queued_than_takes_a_moment(monkeypatch: pytest.MonkeyPatch):
    """Who asks for one more verdict waits behind it, however many the backend compiles together."""
    worker = At()
    monkeypatch.setattr(time, "monotonic", lambda: worker.now)
    slot = WorkerSlot(0, LIMITS, worker=cast(Any, worker))
    slot.worker_ready({"rss": 0, "batch": 32})
    slot.disk_checked = float("inf")

    def queued_after(seconds: float, cases: int) -> int:
        for _ in range(cases):
            slot.queue.clear()
            slot.queue.append(cast(Any, SimpleNamespace(case=SimpleNamespace(id="c"))))
            slot.sent = 1
            slot.start_clock()
            worker.now += seconds
            slot.finish_case(0)
        while slot.has_room():
            slot.queue.append(cast(Any, None))
        return len(slot.queue)

    assert queued_after(0.0, 0) == 2
    assert queued_after(0.01, 40) == 32
    assert queued_after(0.1, 40) in (9, 10)
    assert queued_after(5.0, 3) == 2

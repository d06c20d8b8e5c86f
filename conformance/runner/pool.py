"""A pool of warm, isolated workers for one backend.

One thread, one selector: whoever asks for a verdict turns the loop. Each worker works on one case and holds at most
one more, so that it never waits for the next, or as many as its backend compiles together; a case's clock starts when
the one before it is answered. A worker that dies takes only the case it was working on with it; one that dies of cases
it compiled together takes none, and each of them is compiled alone.
"""

from __future__ import annotations

import contextlib
import itertools
import selectors
import shutil
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchstone.conformance.errors import HarnessError
from torchstone.conformance.runner.process import WorkerProcess, describe_exit
from torchstone.conformance.verdict import Outcome, Stage, Verdict

if TYPE_CHECKING:
    from torchstone.conformance.case import Case

QUEUE_DEPTH = 2
STARTUP_SECONDS = 180.0
STARTUP_DEATHS = 3
TICK_SECONDS = 0.2
GROWTH_BYTES = 1 << 30
DEAD = frozenset({Outcome.CRASH, Outcome.TIMEOUT, Outcome.OOM, Outcome.UNTESTED})


@dataclass(frozen=True)
class Result:
    """A case, its verdict, and its serialized form."""

    case: Case
    verdict: Verdict
    data: bytes


@dataclass(eq=False)
class _Batch:
    """What one caller of ``results`` waits for; batches of nested callers share the workers."""

    done: deque[Result] = field(default_factory=deque)
    open: int = 0
    closed: bool = False


@dataclass(eq=False)
class _Task:
    case: Case
    data: bytes
    batch: _Batch
    first: Verdict | None = None  # set when this is the retry of a case that killed its worker
    second: Verdict | None = None  # set when the retry did too: now eager is tried alone
    alone: bool = False  # not to be compiled together with others


@dataclass(eq=False)
class _Slot:
    number: int
    worker: WorkerProcess | None = None
    ready: bool = False
    queue: deque[_Task] = field(default_factory=deque)  # the first is being worked on, once the worker is ready
    sent: int = 0
    depth: int = QUEUE_DEPTH
    deadline: float = 0.0
    began: float = 0.0
    served: int = 0
    baseline: int = 0
    retire: bool = False
    alone: bool = False
    cold: int = 0  # counts cache folders: a new one after every violent death


class Pool:
    """Workers of one backend; a context manager that leaves no process and no file behind.

    ``backend`` is a registered name or ``module:attribute``; ``jobs`` workers at most, spawned as they are needed;
    ``timeout`` seconds a case; ``memory`` resident bytes a worker; ``recycle`` cases until a worker is renewed;
    ``tick`` is called at least every 0.2 s while the pool waits.

    A case whose worker dies (except by SIGKILL from outside) or times out is tried again, alone in a fresh worker:
    the same trouble again stands, anything else makes it ``flaky``. When it comes both times before the backend was
    even called, or kills a third worker that runs eager alone, it is eager's own, and the case is ``untested``. Raises
    HarnessError when workers cannot start.
    """

    def __init__(
        self,
        backend: str,
        *,
        jobs: int = 1,
        timeout: float = 60.0,
        memory: int = 8 << 30,
        recycle: int = 2000,
        retry: bool = True,
        tick: Callable[[], None] | None = None,
    ) -> None:
        self.backend = backend
        self.jobs = max(1, jobs)
        self.timeout = timeout
        self.memory = memory
        self.recycle = recycle
        self.retry = retry
        self.tick = tick
        self.spawned = 0
        self._slots: list[_Slot] = []
        self._backlog: deque[_Task] = deque()  # tasks that lost their place when a worker died before them
        self._deaths = 0
        self._selector = selectors.DefaultSelector()
        self._root: Path | None = None
        self._serial = itertools.count()
        self._left = time.monotonic()

    # -- asking -------------------------------------------------------------------------------------------------

    def verdict(self, case: Case) -> Verdict:
        """Try one case and return its verdict."""
        (result,) = self.results([case])
        return result.verdict

    def verdicts(self, cases: Iterable[Case]) -> Iterator[Verdict]:
        """Try cases as they are generated and yield the verdicts as they come, in whatever order."""
        return (result.verdict for result in self.results(cases))

    def results(self, cases: Iterable[Case]) -> Iterator[Result]:
        """Like ``verdicts``, with the case and its bytes. Leaving the iterator early drops what is in flight."""
        source: Iterator[Case] | None = iter(cases)
        batch = _Batch()
        try:
            while source is not None or batch.open or batch.done:
                while batch.done:
                    yield batch.done.popleft()
                busy = False
                if source is not None and self._room():
                    case = next(source, None)
                    if case is None:
                        source = None
                    else:
                        batch.open += 1
                        self._place(_Task(case, case.to_bytes(), batch))
                        busy = True
                if busy or batch.open or source is not None:
                    self._step(0.0 if busy and self._room() else TICK_SECONDS)
        finally:
            batch.closed = True

    # -- scheduling ---------------------------------------------------------------------------------------------

    def _room(self) -> bool:
        if self._backlog:
            return False
        return len(self._slots) < self.jobs or any(self._takes(slot) for slot in self._slots)

    @staticmethod
    def _takes(slot: _Slot) -> bool:
        return len(slot.queue) < slot.depth and not slot.retire and not slot.alone

    def _place(self, task: _Task) -> None:
        """Queue a task: at an idle worker, else at a new one, else behind another case."""
        open_slots = [slot for slot in self._slots if self._takes(slot)]
        slot = min(open_slots, key=lambda s: (len(s.queue), not s.ready), default=None)
        if (slot is None or slot.queue) and len(self._slots) < self.jobs:
            slot = _Slot(len(self._slots))
            self._slots.append(slot)
        if slot is None:
            self._backlog.append(task)
            return
        slot.queue.append(task)
        if slot.worker is None:
            self._spawn(slot)
        self._feed(slot)

    def _feed(self, slot: _Slot) -> None:
        """Send the worker what is queued for it, if it is ready."""
        if not slot.ready or slot.worker is None:
            return
        if slot.sent == 0 and slot.queue:
            self._start_clock(slot)
        while slot.sent < len(slot.queue):
            task = slot.queue[slot.sent]
            header: dict[str, Any] = {"case": task.case.id, "about": _about(task.case), "alone": task.alone}
            if task.second is not None:
                header["eager"] = True
            slot.worker.send(header, task.data)
            slot.sent += 1
        self._watch_channel(slot)

    def _start_clock(self, slot: _Slot) -> None:
        slot.began = time.monotonic()
        slot.deadline = slot.began + self.timeout

    def _spawn(self, slot: _Slot) -> None:
        if self._root is None:
            self._root = Path(tempfile.mkdtemp(prefix="torchstone-"))
        scratch = self._root / f"worker-{next(self._serial)}"
        cache = self._root / f"cache-{slot.number}-{slot.cold}"
        worker = WorkerProcess(self.backend, scratch, cache)
        slot.worker, slot.ready, slot.sent, slot.served, slot.retire = worker, False, 0, 0, False
        slot.deadline = time.monotonic() + STARTUP_SECONDS
        self.spawned += 1
        self._selector.register(worker.channel, selectors.EVENT_READ, (slot, "channel"))
        self._selector.register(worker.output, selectors.EVENT_READ, (slot, "output"))
        if worker.death is not None:
            self._selector.register(worker.death, selectors.EVENT_READ, (slot, "death"))

    def _watch_channel(self, slot: _Slot) -> None:
        worker = slot.worker
        if worker is not None and worker.channel_open:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.unsent else 0)
            if self._selector.get_key(worker.channel).events != events:
                self._selector.modify(worker.channel, events, (slot, "channel"))

    # -- the loop -----------------------------------------------------------------------------------------------

    def _step(self, wait: float) -> None:
        """Wait for news, at most ``wait`` seconds, and act on it."""
        now = time.monotonic()
        if now - self._left > TICK_SECONDS:  # the caller was away: its time is not the workers'
            for slot in self._slots:
                slot.deadline += now - self._left
        dead: list[_Slot] = []
        for key, _ in self._selector.select(wait):
            slot, what = key.data
            if slot.worker is None or slot in dead:
                continue
            if what == "channel":
                slot.worker.push()
                self._read(slot)
            elif what == "output" and not slot.worker.read_output():
                self._selector.unregister(key.fileobj)
            elif what == "death":
                dead.append(slot)
        for slot in self._slots:
            if slot.worker is not None and slot not in dead and slot.worker.death is None and slot.worker.exited():
                dead.append(slot)
        for slot in dead:
            self._buried(slot)
        self._watch()
        while self._backlog and (len(self._slots) < self.jobs or any(self._takes(slot) for slot in self._slots)):
            self._place(self._backlog.popleft())
        if self.tick is not None:
            self.tick()
        self._left = time.monotonic()

    def _read(self, slot: _Slot) -> None:
        worker = slot.worker
        assert worker is not None
        for header, _ in worker.frames():
            if "ready" in header:
                slot.ready, slot.baseline = True, header["rss"]
                slot.depth = max(QUEUE_DEPTH, header["batch"])
                self._deaths = 0
                self._feed(slot)
            elif "failed" in header:
                raise HarnessError(f"no worker of backend {self.backend} can start: {header['failed']}")
            elif "verdict" in header and slot.queue:
                self._answered(slot, self._verdict(header["verdict"]), header["rss"])
        if not worker.channel_open:
            with contextlib.suppress(KeyError):
                self._selector.unregister(worker.channel)
            slot.deadline = min(slot.deadline, time.monotonic() + 2)  # it should be dying: its exit says of what
        else:
            self._watch_channel(slot)

    def _answered(self, slot: _Slot, verdict: Verdict, resident: int) -> None:
        task = slot.queue.popleft()
        slot.sent -= 1
        slot.served += 1
        slot.alone = False
        if slot.sent:
            self._start_clock(slot)
        self._settle(slot, task, task.second or verdict)
        slot.retire = slot.served >= self.recycle or resident > min(slot.baseline + GROWTH_BYTES, self.memory)
        if slot.retire and not slot.queue:
            self._remove(slot)

    def _verdict(self, fields: dict[str, Any]) -> Verdict:
        """The worker's verdict, under the name that the backend was asked for by."""
        known = {"stage": Stage(fields["stage"]), "outcome": Outcome(fields["outcome"]), "backend": self.backend}
        return Verdict(**{**fields, **known})

    def _watch(self) -> None:
        """Kill what is over its time or its memory."""
        now = time.monotonic()
        for slot in self._slots:
            worker = slot.worker
            if worker is None:
                continue
            if not slot.ready:
                if now > slot.deadline:
                    self._died(slot, "did not start in time", Outcome.CRASH)
            elif slot.sent:
                if now > slot.deadline:
                    if not worker.channel_open:
                        self._died(slot, "closed the harness's channel", Outcome.CRASH)
                        continue
                    worker.probe()
                    self._died(slot, f"no result after {self.timeout:g} s", Outcome.TIMEOUT)
                elif now - slot.began > TICK_SECONDS and (used := worker.resident()) > self.memory:
                    limit = f"resident memory {used / 2**30:.1f} GiB is over the limit of {self.memory / 2**30:.1f} GiB"
                    self._died(slot, limit, Outcome.OOM)

    # -- death --------------------------------------------------------------------------------------------------

    def _buried(self, slot: _Slot) -> None:
        """A worker has exited by itself: read its last words, then say how it ended."""
        assert slot.worker is not None
        self._read(slot)
        if slot.worker is not None:  # else it was retired by what it had still to say
            self._died(slot, "", Outcome.CRASH)

    def _died(self, slot: _Slot, why: str, outcome: Outcome) -> None:
        worker, was_ready, working = slot.worker, slot.ready, bool(slot.sent)
        assert worker is not None
        seconds = time.monotonic() - slot.began
        stage, in_batch = worker.stage(), worker.in_batch()
        code = self._remove(slot)
        why = why or describe_exit(code)
        slot.cold += 1
        if not was_ready:
            self._deaths += 1
            if self._deaths >= STARTUP_DEATHS:
                raise HarnessError(
                    f"no worker of backend {self.backend} can start: the last {self._deaths} died at once "
                    f"({why}){': ' + worker.tail.splitlines()[-1] if worker.tail else ''}"
                )
        elif working and in_batch:
            for task in slot.queue:
                task.alone = True
        elif working:
            task = slot.queue.popleft()
            by_hand = outcome is Outcome.CRASH and code == -signal.SIGKILL and why.startswith("killed by")
            if by_hand:
                why += " (by hand, or by the system when memory ran out)"
            verdict = Verdict(
                **_about(task.case), backend=self.backend, stage=stage or Stage.CAPTURE, outcome=outcome, message=why,
                evidence={"stderr": worker.tail} if worker.tail else {}, seconds=seconds,
            )  # fmt: skip
            again = self.retry and not by_hand and outcome is not Outcome.OOM
            if again and task.first is None:
                self._alone(slot, replace(task, first=verdict))
            elif again and task.second is None and stage is not None and outcome is Outcome.CRASH:
                self._alone(slot, replace(task, second=verdict))
            elif task.second is not None and outcome is not Outcome.CRASH:
                slot.alone = False
                self._settle(slot, task, task.second)
            else:
                if stage is None and task.first is not None:  # twice, the second time in a fresh worker
                    why = f"eager itself: {why} before the backend was called"
                    verdict = replace(verdict, outcome=Outcome.UNTESTED, message=why)
                slot.alone = False
                self._settle(slot, task, verdict)
        if slot.queue:
            self._spawn(slot)

    def _alone(self, slot: _Slot, task: _Task) -> None:
        """Give the slot's next worker this task and no other."""
        self._backlog.extend(slot.queue)
        slot.queue.clear()
        slot.queue.append(task)
        slot.alone = True

    def _settle(self, slot: _Slot, task: _Task, verdict: Verdict) -> None:
        """Hand a verdict to who asked, after weighing a retry against the first try."""
        first = task.first
        if first is not None and verdict.outcome in DEAD:
            verdict = replace(verdict, evidence={**verdict.evidence, "first": first.message})
        elif first is not None:
            verdict = replace(
                verdict, outcome=Outcome.FLAKY, stage=first.stage,
                message=f"{first.outcome} ({first.message}), then {verdict.outcome} alone in a fresh worker",
                evidence={**first.evidence, "retry": {"outcome": str(verdict.outcome), "message": verdict.message}},
            )  # fmt: skip
        task.batch.open -= 1
        if not task.batch.closed:
            task.batch.done.append(Result(task.case, verdict, task.data))

    def _remove(self, slot: _Slot) -> int:
        """Stop the slot's worker; the slot keeps its queue."""
        worker = slot.worker
        assert worker is not None
        for fileobj in (worker.channel, worker.output, worker.death):
            if fileobj is not None:
                with contextlib.suppress(KeyError):
                    self._selector.unregister(fileobj)
        slot.worker, slot.ready, slot.sent, slot.retire = None, False, 0, False
        return worker.stop()

    # -- the end ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Kill the workers and remove their files. The pool cannot be used afterwards."""
        with _no_interrupt():
            for slot in self._slots:
                slot.queue.clear()
                if slot.worker is not None:
                    self._remove(slot)
            self._slots.clear()
            self._backlog.clear()
            self._selector.close()
            if self._root is not None:
                shutil.rmtree(self._root, ignore_errors=True)
                self._root = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _about(case: Case) -> dict[str, str]:
    return {
        "case_id": case.id, "source": case.source, "op": case.op, "dtype": case.dtype, "variant": case.variant,
    }  # fmt: skip


@contextlib.contextmanager
def _no_interrupt() -> Iterator[None]:
    """Let an impatient second Ctrl-C not leave half the workers alive."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

"""A pool of warm, isolated workers for one backend.

One thread, one selector: whoever asks for a verdict turns the loop. Each worker works on one case and holds at most
one more, so that it never waits for the next, or as many as its backend compiles together if they are quick; a case's
clock starts when the one before it is answered. A worker that dies takes only the case it was working on with it; one
that dies of cases it compiled together takes none, and each of them is compiled alone.
"""

from __future__ import annotations

import contextlib
import itertools
import selectors
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from torchstone.conformance.backends.registry import preloadable
from torchstone.conformance.errors import HarnessError
from torchstone.conformance.execution.line_tracer import Fingerprints, Ran
from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.runner.cleanup import no_interrupt
from torchstone.conformance.runner.interpreter import Interpreter
from torchstone.conformance.runner.predecessors import AFTER
from torchstone.conformance.runner.progress_mark import describe_exit
from torchstone.conformance.runner.resources import format_bytes, oom_kills
from torchstone.conformance.runner.retry import CaseResult, ResultQueue, Task, Trial, retry_or_settle
from torchstone.conformance.runner.retry import case_labels as _about
from torchstone.conformance.runner.slot import Limits, WorkerSlot
from torchstone.conformance.runner.worker_process import ForkServerClient, ForkServerDied

if TYPE_CHECKING:
    from torchstone.conformance.program.case import Case

STARTUP_SECONDS = 300.0
STARTUP_DEATHS = 3
TICK_SECONDS = 0.2
DYING_SECONDS = 30.0  # for news of a worker whose channel has closed: the fork server may be busy importing
MAX_LOSSES = 3
"""A case under which the fork server died so often, or a worker before it had begun the case, is to blame; one whose
worker the system killed so often for want of memory is given up."""
LAST = 3
"""How many of the cases before a death its evidence names, as long as nobody has looked for those that matter."""
GIB = 1 << 30
_END: Any = object()
_NUMBERS = itertools.count()  # of pools: their cache folders may lie in one fork server's


class Pool:
    """Workers of one backend; a context manager that leaves no process and no file behind.

    ``backend`` is a registered name or ``module:attribute``; ``python`` the interpreter it runs in, this one if None;
    ``jobs`` workers at most, started as they are needed; ``timeout`` seconds for eager and as many for the backend,
    ``judging`` seconds for a case that only has to be judged any more: then it is ``untested``, and not tried again if
    that is less than ``timeout``; ``memory`` resident bytes a worker; ``disk`` bytes in its temporary folder, and in
    any one file; ``recycle`` cases until a worker is renewed; ``tick`` is called at least every 0.2 s while the pool
    waits; ``watch`` with each case and what it ran of the backend's ``sources``, if that is news: for the first time
    in a worker, or not as ``known``.

    A case whose worker dies (except by SIGKILL from outside) or times out is tried again, alone in a fresh worker:
    the same trouble again stands, anything else makes it ``flaky``. A worker that dies before it has begun a case, as
    one killed while idle does, leaves the case to the next. One that is over its memory or disk in a worker
    that others had before is judged by what it does in a fresh one. When trouble comes both times before the backend
    was even called, or kills a third worker that runs eager alone, it is eager's own, and the case is ``untested``.
    Where three workers die one after the other as they load the backend, every case from then on has that for its
    verdict. Raises HarnessError when workers cannot start for another reason.
    """

    def __init__(
        self,
        backend: str,
        *,
        python: str | None = None,
        jobs: int = 1,
        timeout: float = 60.0,
        judging: float | None = None,
        memory: int = 8 * GIB,
        disk: int = 8 * GIB,
        recycle: int = 2000,
        retry: bool = True,
        tick: Callable[[], None] | None = None,
        watch: Callable[[Case, Ran], None] | None = None,
        known: Fingerprints | None = None,
    ) -> None:
        self.backend = backend
        self.interpreter = Interpreter(python) if python else Interpreter()
        self.jobs = max(1, jobs)
        self.limits = Limits(timeout, timeout if judging is None else judging, memory, disk, recycle)
        self.retry = retry
        self.tick = tick
        self.watch = watch
        self.known = known or {}
        self.spawned = 0
        self._slots: list[WorkerSlot] = []
        self._backlog: deque[Task] = deque()  # tasks that lost their place when a worker died before them
        self._suspects: deque[Task] = deque()  # tasks under which the fork server died: one at a time, from then on
        self._deaths = 0
        self._oom_kills = oom_kills()
        self._started = False  # a worker has been ready
        self._unloadable: dict[str, Any] = {}  # where loading the backend is the end of a worker: what cases get for it
        self._selector = selectors.DefaultSelector()
        self._server: ForkServerClient | None = None
        self._number = next(_NUMBERS)
        self._fork_server_died = False  # the fork server has died
        self._last_step = time.monotonic()

    # -- asking -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all workers now: they load while the caller prepares what to ask."""
        while len(self._slots) < self.jobs:
            slot = WorkerSlot(len(self._slots), self.limits)
            self._slots.append(slot)
            self._spawn(slot)

    def verdict(self, case: Case) -> Verdict:
        """Try one case and return its verdict."""
        (result,) = self.results([case])
        return result.verdict

    def verdicts(self, cases: Iterable[Case]) -> Iterator[Verdict]:
        """Try cases as they are generated and yield the verdicts as they come, in whatever order."""
        return (result.verdict for result in self.results(cases))

    def results(self, cases: Iterable[Case | Trial | None]) -> Iterator[CaseResult]:
        """Like ``verdicts``, with the case and its bytes. Leaving the iterator early drops what is in flight.

        ``cases`` may yield None: there is none now, and it is asked again when there is news.
        """
        source: Iterator[Case | Trial | None] | None = iter(cases)
        batch = ResultQueue()
        try:
            while source is not None or batch.open or batch.done:
                while batch.done:
                    yield batch.done.popleft()
                busy = False
                if source is not None and self._has_room():
                    asked = next(source, _END)
                    if asked is _END:
                        source = None
                    elif asked is not None:
                        trial = asked if isinstance(asked, Trial) else Trial(asked)
                        batch.open += 1
                        how = {"fresh": trial.fresh, "once": trial.once, "quick": trial.quick, "traced": trial.traced}
                        self._place(Task(trial.case, trial.case.to_bytes(), batch, **how))
                        busy = True
                if busy or batch.open or source is not None:
                    self._step(0.0 if busy and self._has_room() else TICK_SECONDS)
        finally:
            batch.closed = True

    # -- scheduling ---------------------------------------------------------------------------------------------

    def _has_room(self) -> bool:
        return not self._backlog and self._has_place()

    def _has_place(self) -> bool:
        return bool(self._unloadable) or len(self._slots) < self.jobs or any(slot.has_room() for slot in self._slots)

    def _has_idle_place(self) -> bool:
        return bool(self._unloadable) or len(self._slots) < self.jobs or not all(slot.queue for slot in self._slots)

    def _place(self, task: Task) -> None:
        """Queue a task: at an idle worker, else at a new one, else behind another case."""
        if self._unloadable:
            task.settle(Verdict(**_about(task.case), backend=self.backend, **self._unloadable))
            return
        open_slots = [slot for slot in self._slots if slot.has_room() and not (task.fresh and slot.queue)]
        slot = min(open_slots, key=lambda s: (len(s.queue), not s.ready), default=None)
        if (slot is None or slot.queue) and len(self._slots) < self.jobs:
            slot = WorkerSlot(len(self._slots), self.limits)
            self._slots.append(slot)
        if slot is None:
            self._backlog.append(task)
            return
        if task.fresh:
            task.fresh = False
            if slot.worker is not None and slot.served:
                self._remove(slot)
        slot.queue.append(task)
        if slot.worker is None:
            self._spawn(slot)
        self._send_queued(slot)

    def _send_queued(self, slot: WorkerSlot) -> None:
        slot.send_queued()
        self._watch_channel(slot)

    def _spawn(self, slot: WorkerSlot) -> None:
        if self._server is None:
            self._server = ForkServerClient.shared(self.interpreter)
            self._selector.register(self._server.control, selectors.EVENT_READ, (None, "server"))
        slot.await_worker(STARTUP_SECONDS)
        try:
            cache = f"cache-{self._number}-{slot.number}-{slot.cold}"
            watch = None if self.watch is None else self.known
            slot.worker = worker = self._server.start(
                self.backend, cache, self.limits.disk, watch=watch, preload=preloadable(self.backend)
            )
        except ForkServerDied:
            self._fork_server_died = True
            return
        self.spawned += 1
        self._selector.register(worker.channel, selectors.EVENT_READ, (slot, "channel"))
        self._selector.register(worker.output, selectors.EVENT_READ, (slot, "output"))
        self._watch_channel(slot)

    def _watch_channel(self, slot: WorkerSlot) -> None:
        worker = slot.worker
        if worker is not None and worker.channel_open:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.unsent else 0)
            self._selector.modify(worker.channel, events, (slot, "channel"))

    # -- the loop -----------------------------------------------------------------------------------------------

    def _step(self, wait: float) -> None:
        """Wait for news, at most ``wait`` seconds, and act on it."""
        now = time.monotonic()
        if now - self._last_step > TICK_SECONDS:  # the caller was away: its time is not the workers'
            for slot in self._slots:
                slot.deadline += now - self._last_step
        for key, _ in self._selector.select(0.0 if self._fork_server_died else wait):
            slot, what = key.data
            if what == "server":
                self._read_fork_server()
            elif slot.worker is None or slot.worker.code is not None:
                continue
            elif what == "channel":
                slot.worker.flush()
                self._read(slot)
            elif not slot.worker.read_output():
                self._selector.unregister(key.fileobj)
        for slot in self._slots:
            worker = slot.worker
            if worker is not None and worker.code is not None:
                self._read(slot)  # what it had still to say
                if slot.worker is worker:
                    self._worker_died(slot, "", Outcome.CRASH)
        self._enforce_limits()
        if self._fork_server_died:
            self._restart_fork_server()
        if (
            self._suspects
            and self._has_place()
            and not any(task.fork_server_deaths for slot in self._slots for task in slot.queue)
        ):
            self._place(self._suspects.popleft())
        while self._backlog and self._has_place() and not (self._backlog[0].fresh and not self._has_idle_place()):
            self._place(self._backlog.popleft())
        if self.tick is not None:
            self.tick()
        self._last_step = time.monotonic()

    def _read_fork_server(self) -> None:
        try:
            self._server.receive()  # type: ignore[union-attr]
        except ForkServerDied:
            self._fork_server_died = True

    def _read(self, slot: WorkerSlot) -> None:
        worker = slot.worker
        assert worker is not None
        for header, _ in worker.frames():
            if "ready" in header:
                slot.worker_ready(header)
                self._started = True
                self._deaths = 0
                self._send_queued(slot)
            elif "failed" in header:
                raise HarnessError(f"no worker of backend {self.backend} can start: {header['failed']}")
            elif verdict := slot.verdict_in(header, self.backend):
                if self.watch is not None and (ran := header.get("ran")):
                    self.watch(slot.queue[0].case, Ran.from_json(ran))
                self._answered(slot, verdict, header["rss"], header.get("spent", ""))
                if slot.worker is not worker:
                    return
            else:
                worker.channel_open = False  # no answer to what was asked: whoever wrote this was not the worker's loop
                break
        if not worker.channel_open:
            with contextlib.suppress(KeyError):
                self._selector.unregister(worker.channel)
            slot.deadline = min(slot.deadline, time.monotonic() + DYING_SECONDS)  # its exit says of what
        else:
            self._watch_channel(slot)

    def _answered(self, slot: WorkerSlot, verdict: Verdict, resident: int, spent: str) -> None:
        if verdict.failed and slot.queue[0].first is None:
            slot.queue[0].before = tuple(slot.previous_cases)
        task = slot.finish_case(resident)
        task.settle(task.second or verdict)
        if spent or (slot.retire and not slot.queue):
            self._remove(slot)
            if slot.queue:  # what the spent worker has been sent, and should not work on
                self._spawn(slot)

    def _enforce_limits(self) -> None:
        """Kill what is over its time, its memory or its disk."""
        now = time.monotonic()
        for slot in self._slots:
            worker = slot.worker
            if worker is None:
                continue
            if not slot.ready:
                if now > slot.deadline:
                    self._deaths = STARTUP_DEATHS  # once is long enough
                    self._worker_died(slot, f"not ready after {STARTUP_SECONDS:g} s", Outcome.TIMEOUT)
                elif why := slot.limit_exceeded():
                    self._worker_died(slot, why, Outcome.OOM)
            elif slot.sent:
                if slot.is_overdue():
                    if not worker.channel_open:
                        self._worker_died(slot, "closed the harness's channel, or wrote to it", Outcome.CRASH)
                        continue
                    worker.dump_stack()
                    self._worker_died(slot, f"no result after {self.limits.timeout:g} s", Outcome.TIMEOUT)
                elif now - slot.began > TICK_SECONDS and (why := slot.limit_exceeded()):
                    if slot.previous_cases:  # whose memory or files these are cannot be told
                        self._renew(slot)
                    else:
                        self._worker_died(slot, why, Outcome.OOM)

    # -- death --------------------------------------------------------------------------------------------------

    def _worker_died(self, slot: WorkerSlot, why: str, outcome: Outcome) -> None:
        worker, was_ready, working = slot.worker, slot.ready, bool(slot.sent)
        assert worker is not None
        seconds = time.monotonic() - slot.began
        begun, progress = slot.has_begun(), worker.progress()
        stage, call = (progress.stage, progress.call) if begun else (None, {})
        code = self._remove(slot)
        why = why or describe_exit(code)
        slot.cold += 1
        if not was_ready:
            self._deaths += 1
            if self._deaths >= STARTUP_DEATHS:
                by_hand = outcome is Outcome.CRASH and code == -signal.SIGKILL
                self._cannot_start(why, outcome, worker.tail, progress.loading and not by_hand and not self._started)
        elif working and progress.in_batch:
            for task in slot.queue:
                task.alone = True
        elif working and not begun and slot.queue[0].deaths_before_start < MAX_LOSSES - 1:
            slot.queue[0].deaths_before_start += 1  # killed while idle, for one: that says nothing about the case
        elif working:
            self._judge_death(slot, why, outcome, code, stage, {**call, "stderr": worker.tail}, seconds)
        if slot.queue:
            self._spawn(slot)

    def _judge_death(
        self, slot: WorkerSlot, why: str, outcome: Outcome, code: int, stage: Stage | None,
        told: dict[str, Any], seconds: float,
    ) -> None:  # fmt: skip
        """Judge the case that a worker died of, or have it tried again."""
        task = slot.queue.popleft()
        killed = outcome is Outcome.CRASH and code == -signal.SIGKILL and why.startswith("killed by")
        unjudged = stage is Stage.COMPARE and outcome in (Outcome.TIMEOUT, Outcome.OOM)
        late = unjudged and outcome is Outcome.TIMEOUT
        is_final = killed or task.once or (late and self.limits.judging < self.limits.timeout)
        if killed and self._out_of_memory():
            outcome = Outcome.OOM if slot.largest > self.limits.memory // 2 else Outcome.UNTESTED
            held = f"{format_bytes(slot.largest)} of the {format_bytes(self.limits.memory)} it may take"
            why = f"the machine ran out of memory and killed the worker, which had {held}; fewer --jobs may help"
            task.memory_kills += 1
            if task.memory_kills < MAX_LOSSES:
                self._run_alone(slot, task)
                return
        elif killed:
            why += " (by hand, or by itself)"
        elif unjudged:
            outcome = Outcome.UNTESTED
            took = f"over {self.limits.judging:g} s in all" if late else f"too much: {why}"
            why = f"the backend answered, and judging it took {took}"
        if task.first is None:
            task.before = tuple(slot.previous_cases)
        evidence = told | {AFTER: slot.previous_cases[-LAST:]}
        verdict = Verdict(
            **_about(task.case), backend=self.backend, stage=stage or Stage.CAPTURE, outcome=outcome, message=why,
            evidence={key: value for key, value in evidence.items() if value not in ("", [])}, seconds=seconds,
        )  # fmt: skip
        self._retry_or_settle(slot, task, verdict, called=stage is not None, retry=self.retry and not is_final)

    def _out_of_memory(self) -> bool:
        """Whether the system has killed a process for want of memory since this was last asked."""
        before, self._oom_kills = self._oom_kills, oom_kills()
        return self._oom_kills > before

    def _cannot_start(self, why: str, outcome: Outcome, words: str, by_backend: bool) -> None:
        """Give up: with a verdict for every case where the backend is the reason, else by HarnessError."""
        if not by_backend:
            raise HarnessError(
                f"no worker of backend {self.backend} can start: the last of {self._deaths} died at once "
                f"({why}){': ' + words.splitlines()[-1] if words else ''}"
            )
        self._unloadable = {
            "stage": Stage.CAPTURE, "outcome": outcome, "message": f"{why}, as the backend was loaded",
            "evidence": {"stderr": words} if words else {},
        }  # fmt: skip
        for slot in self._slots:
            self._backlog.extend(slot.queue)
            slot.queue.clear()
            if slot.worker is not None:
                self._remove(slot)
        self._backlog.extend(self._suspects)
        self._suspects.clear()

    def _retry_or_settle(self, slot: WorkerSlot, task: Task, verdict: Verdict, *, called: bool, retry: bool) -> None:
        """Settle the case of a dead worker, or give the slot's next worker this case and no other."""
        decided = retry_or_settle(task, verdict, called=called, retry=retry)
        slot.alone = False
        if isinstance(decided, Task):
            self._run_alone(slot, decided)
        else:
            task.settle(decided)

    def _run_alone(self, slot: WorkerSlot, task: Task) -> None:
        slot.alone = True
        self._backlog.extend(slot.queue)
        slot.queue.clear()
        slot.queue.append(task)

    def _renew(self, slot: WorkerSlot) -> None:
        """Try the case at hand again, alone in a fresh worker."""
        self._remove(slot)
        self._run_alone(slot, slot.queue.popleft())
        self._spawn(slot)

    def _remove(self, slot: WorkerSlot) -> int:
        """Stop the slot's worker and return its exit code; the slot keeps its queue."""
        worker = slot.worker
        assert worker is not None
        self._detach(slot)
        try:
            worker.stop()
        except ForkServerDied:
            self._fork_server_died = True
        return -signal.SIGKILL if worker.code is None else worker.code

    def _detach(self, slot: WorkerSlot) -> None:
        if slot.worker is not None:
            for fileobj in (slot.worker.channel, slot.worker.output):
                with contextlib.suppress(KeyError):
                    self._selector.unregister(fileobj)
        slot.clear()

    def _restart_fork_server(self) -> None:
        """Go on after the fork server has died, and every worker with it; whose doing it was, if a case's, is open."""
        assert self._server is not None
        self._fork_server_died = False
        starved = self._out_of_memory()
        self._selector.unregister(self._server.control)
        words, up = self._server.last_output(), self._server.up
        working = [slot for slot in self._slots if slot.sent]
        for slot in self._slots:
            self._detach(slot)
        self._server.close(gone=True)
        self._server = None
        if not up:
            raise HarnessError(f"no worker of backend {self.backend} can start in {self.interpreter.path}: {words}")
        for slot in working:
            task = slot.queue.popleft()
            task.fork_server_deaths += 1
            if task.fork_server_deaths < MAX_LOSSES:
                self._suspects.append(task)
                continue
            times = task.fork_server_deaths
            message = f"the process that forks the workers died each of the {times} times that this case was tried"
            outcome = Outcome.CRASH
            if starved:
                outcome, message = Outcome.UNTESTED, f"{message}; the machine ran out of memory"
            verdict = Verdict(
                **_about(task.case), backend=self.backend, stage=Stage.RUN, outcome=outcome, message=message
            )
            task.settle(verdict)
        for slot in self._slots:
            slot.alone = False
            self._backlog.extend(slot.queue)
            slot.queue.clear()

    # -- the end ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Kill the workers and remove their files. The pool cannot be used afterwards."""
        with no_interrupt():
            self._backlog.clear()
            if self._server is not None:
                for slot in self._slots:
                    if slot.worker is not None and self._server.up:
                        self._remove(slot)
                self._server.close()
                self._server = None
            self._slots.clear()
            self._selector.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

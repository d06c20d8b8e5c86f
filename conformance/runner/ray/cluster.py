"""Workers on a Ray cluster, asked as a local pool is: ``results`` in, verdicts out.

A Ray actor takes one CPU and holds a pool of one isolated worker, so a case runs on a node just as it does at home.
Cases travel as the bytes of their files, and only the isolated worker reads them. Each actor works on one batch and has
another waiting; a batch is as many cases as take about half a second. The cases of a lost node are run again elsewhere,
each alone. A verdict counts once: that of the call that came back.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from torchstone.conformance.errors import HarnessError, InputError
from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.runner.cleanup import no_interrupt
from torchstone.conformance.runner.pool import CaseResult
from torchstone.conformance.runner.ray.node_pool import NodeActor, describe_node, version_differences
from torchstone.conformance.runner.retry import case_labels

if TYPE_CHECKING:
    from torchstone.conformance.program.case import Case

INSTALL = "pip install torchstone[ray]"
TICK_SECONDS = 0.2
SCALE_SECONDS = 3.0
STARTUP_SECONDS = 300.0
CLOSE_SECONDS = 10.0
BATCH_SECONDS = 0.5
MAX_BATCH = 64
CALLS_AHEAD = 2
MAX_LOSSES = 3  # so many actors may die of one case alone before it is given up


@contextlib.contextmanager
def connect(address: str | None = None) -> Iterator[None]:
    """Join the cluster at ``address``, else that of ``RAY_ADDRESS`` or of this machine, else start one here.

    Nothing of Ray is shown; what was started here is stopped at the end. Raises ``InputError``.
    """
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise InputError(f"--executor ray needs Ray ({error}); install it with: {INSTALL}") from error
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level="CRITICAL",
            include_dashboard=None if address not in (None, "local") else False,
        )
    except Exception as error:  # ConnectionError, ValueError, RuntimeError: as many kinds as ways to fail
        where = f"the Ray cluster at {address}" if address else "a Ray cluster"
        raise InputError(f"cannot join {where}: {str(error).strip().splitlines()[0]}") from error
    inside: Any = import_module("ray._private.worker")
    if hasattr(inside, "print_to_stdstream"):  # deaths of nodes and actors are printed whatever log_to_driver says
        inside.print_to_stdstream = lambda *args, **kwargs: None
    try:
        yield
    finally:
        with no_interrupt():
            ray.shutdown()


_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",  # of a cluster started here: a worker's clock runs as it does at home
}


@dataclass(eq=False)
class _Task:
    number: int
    case: Case
    data: bytes
    losses: int = 0


@dataclass(eq=False)
class _Call:
    actor: _Actor
    tasks: list[_Task]
    began: float


@dataclass(eq=False)
class _Actor:
    handle: Any
    node: str = ""  # known once it is ready
    calls: list[Any] = field(default_factory=list)  # references, oldest first
    size: int = 1
    lost: Any = None  # the call that it had in hand when it was lost


class Cluster:
    """Actors for one backend; a context manager, inside ``connect``. ``jobs`` actors at most, None for every CPU.

    ``on_node(name, versions)`` is told of each node that joins. Raises ``HarnessError`` for a node whose versions are
    not those of this machine, when no actor can be had, and when workers cannot start.
    """

    def __init__(
        self,
        backend: str,
        *,
        jobs: int | None = None,
        timeout: float = 60.0,
        memory: int = 8 << 30,
        tick: Callable[[], None] | None = None,
        on_node: Callable[[str, dict[str, str]], None] | None = None,
    ) -> None:
        self.backend, self.jobs, self.tick, self.on_node = backend, jobs, tick, on_node
        self._ray: Any = import_module("ray")
        self._settings = (backend, timeout, memory, os.getcwd(), os.environ.get("OMP_NUM_THREADS"))
        self._here = describe_node(backend)
        self._nodes: dict[str, Any] = {}  # node id to the reference of its description, None once it is as it should
        self._joining: dict[Any, _Actor] = {}  # the reference of its node's id to an actor that is starting
        self._undescribed: dict[str, list[_Actor]] = {}  # actors that are ready, by nodes that are not described yet
        self._actors: list[_Actor] = []
        self._calls: dict[Any, _Call] = {}
        self._retries: deque[_Task] = deque()
        self._last_scaled = 0.0
        self._last_ready = time.monotonic()  # when an actor was last there
        self._trouble = ""

    # -- results -------------------------------------------------------------------------------------------------

    def results(self, cases: Iterable[Case]) -> Iterator[CaseResult]:
        """Try cases as they are generated, and yield the results as they come, in whatever order."""
        numbers = itertools.count()
        source = ((number, case) for number, case in zip(numbers, cases, strict=False))
        drained = False
        while not drained or self._retries or self._calls:
            self._scale()
            for actor in [actor for actor in self._actors if len(actor.calls) < CALLS_AHEAD]:
                tasks = self._batch(actor, source)
                if not tasks:
                    drained = True
                    break
                self._ask(actor, tasks)
            yield from self._wait()
            if self.tick is not None:
                self.tick()

    def _batch(self, actor: _Actor, source: Iterator[tuple[int, Case]]) -> list[_Task]:
        if self._retries:
            return [self._retries.popleft()]
        chosen = itertools.islice(source, actor.size)
        return [_Task(number, case, case.to_bytes()) for number, case in chosen]

    def _ask(self, actor: _Actor, tasks: list[_Task]) -> None:
        batch = [(task.number, case_labels(task.case), task.data) for task in tasks]
        reference = actor.handle.run_cases.remote(batch)
        actor.calls.append(reference)
        self._calls[reference] = _Call(actor, tasks, time.monotonic())

    def _wait(self) -> Iterator[CaseResult]:
        """Wait for news, at most a tick, and act on it."""
        described = [reference for reference in self._nodes.values() if reference is not None]
        waited = [*self._calls, *self._joining, *described]
        if not waited:
            time.sleep(TICK_SECONDS)
            return
        done, _ = self._ray.wait(waited, num_returns=len(waited), timeout=0)
        if not done:
            done, _ = self._ray.wait(waited, num_returns=1, timeout=TICK_SECONDS)
        for reference in done:
            if reference in self._joining:
                self._actor_started(reference)
            elif reference in self._calls:
                yield from self._answered(reference)
            else:
                self._node_described(reference)

    # -- actors --------------------------------------------------------------------------------------------------

    def _scale(self) -> None:
        """Ask for as many actors as there are CPUs, now and then: nodes come and go."""
        now = time.monotonic()
        if self._actors:
            self._last_ready = now
        elif now - self._last_ready > STARTUP_SECONDS:
            known = self._ray.cluster_resources().get("CPU", 0)
            free = self._ray.available_resources().get("CPU", 0)
            why = self._trouble or f"{free:g} of its {known:g} CPUs are free"
            raise HarnessError(f"no worker could be had from the cluster in {STARTUP_SECONDS:.0f} s: {why}")
        if now - self._last_scaled < SCALE_SECONDS:
            return
        self._last_scaled = now
        cpus = int(self._ray.cluster_resources().get("CPU", 0))
        most = cpus if self.jobs is None else min(cpus, self.jobs)
        undescribed = sum(map(len, self._undescribed.values()))
        for _ in range(most - len(self._actors) - len(self._joining) - undescribed):
            handle = self._ray.remote(num_cpus=1, max_concurrency=CALLS_AHEAD + 1)(NodeActor).remote(*self._settings)
            self._joining[handle.node.remote()] = _Actor(handle)

    def _actor_started(self, reference: Any) -> None:
        actor = self._joining.pop(reference)
        try:
            actor.node = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            self._trouble = _brief(error)
            if "torchstone" in self._trouble:  # a node that has none, or another one
                raise HarnessError(f"a node of the cluster cannot run torchstone: {self._trouble}") from error
            return
        if actor.node not in self._nodes:
            strategies: Any = import_module("ray.util.scheduling_strategies")
            there = strategies.NodeAffinitySchedulingStrategy(actor.node, soft=False)
            task = self._ray.remote(num_cpus=0, max_calls=1, max_retries=0)(describe_node)
            self._nodes[actor.node] = task.options(scheduling_strategy=there).remote(self.backend)
        if self._nodes[actor.node] is None:
            self._actors.append(actor)
        else:
            self._undescribed.setdefault(actor.node, []).append(actor)

    def _node_described(self, reference: Any) -> None:
        node = next(node for node, asked in self._nodes.items() if asked is reference)
        actors = self._undescribed.pop(node, [])
        try:
            there = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise HarnessError(f"node {node[:8]} of the cluster cannot be used: {_brief(error)}") from error
        except self._ray.exceptions.RayError as error:  # the node went away meanwhile
            self._trouble = _brief(error)
            del self._nodes[node]
            for actor in actors:
                self._ray.kill(actor.handle)
            return
        unlike = version_differences(self._here, there)
        if unlike:
            raise HarnessError(
                f"node {there['host']} of the cluster has {unlike}: verdicts of a run come from the same versions, "
                "so install the same ones on every node"
            )
        self._nodes[node] = None
        self._actors += actors
        if self.on_node is not None:
            self.on_node(f"{there['host']} ({node[:8]})", there)

    # -- answers ------------------------------------------------------------------------------------------------

    def _answered(self, reference: Any) -> Iterator[CaseResult]:
        call = self._calls.pop(reference)
        oldest = call.actor.calls[0]
        call.actor.calls.remove(reference)
        try:
            verdicts, ended = self._ray.get(reference)
        except self._ray.exceptions.RayTaskError as error:
            raise HarnessError(f"a worker of the cluster failed: {_brief(error)}") from error
        except self._ray.exceptions.RayError as error:  # the actor, its node or the way there is lost
            call.actor.lost = call.actor.lost or oldest
            yield from self._lost(call, call.actor.lost is reference, _brief(error))
            return
        tasks = {task.number: task for task in call.tasks}
        for number, text in verdicts:
            task = tasks.pop(number)
            yield CaseResult(task.case, Verdict.from_json(text), task.data)
        if ended:
            raise HarnessError(ended)
        seconds = time.monotonic() - call.began
        if seconds < BATCH_SECONDS and len(call.tasks) == call.actor.size:
            call.actor.size = min(2 * call.actor.size, MAX_BATCH)
        elif seconds > 4 * BATCH_SECONDS:
            call.actor.size = max(1, call.actor.size // 2)

    def _lost(self, call: _Call, in_hand: bool, why: str) -> Iterator[CaseResult]:
        """Ask the cases of a lost call again; a case that several actors died of, alone, is given up."""
        if call.actor in self._actors:
            self._actors.remove(call.actor)
            self._ray.kill(call.actor.handle)  # it may be alive behind a network that is not
        for task in call.tasks:
            task.losses += in_hand
            if task.losses < MAX_LOSSES:
                self._retries.append(task)
                continue
            verdict = Verdict(
                **case_labels(task.case), backend=self.backend, stage=Stage.RUN, outcome=Outcome.HARNESS_ERROR,
                message=f"{MAX_LOSSES} workers of the cluster were lost with this case: {why}",
            )  # fmt: skip
            yield CaseResult(task.case, verdict, task.data)

    # -- the end ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the actors, with their workers and files."""
        with no_interrupt():
            undescribed = [actor for actors in self._undescribed.values() for actor in actors]
            ready, starting = [*self._actors, *undescribed], list(self._joining.values())
            stopping = [actor.handle.stop.remote() for actor in ready]
            if stopping:
                with contextlib.suppress(Exception):
                    self._ray.wait(stopping, num_returns=len(stopping), timeout=CLOSE_SECONDS)
            for actor in [*ready, *starting]:
                with contextlib.suppress(Exception):
                    self._ray.kill(actor.handle)
            self._actors.clear()
            self._joining.clear()
            self._calls.clear()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _brief(error: BaseException) -> str:
    """What is wrong, out of the many lines that Ray says: the last one of an exception, else the first."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    said = [line for line in lines if line.split(":")[0].rpartition(".")[2].endswith(("Error", "Exception"))]
    return (said or lines or [type(error).__name__])[-1 if said else 0][:500]

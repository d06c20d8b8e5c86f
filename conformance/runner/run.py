"""A whole run: every entry of a source through every backend, journalled as the verdicts come."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from torchstone.conformance.errors import HarnessError
from torchstone.conformance.execution.run_case import untested_verdict
from torchstone.conformance.execution.verdict import CORRECT, Outcome, Verdict
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.runner import predecessors
from torchstone.conformance.runner.pool import CaseResult, Pool
from torchstone.conformance.runner.retry import WORKER_DIED

if TYPE_CHECKING:
    from torchstone.conformance.store import Store

WITHOUT_CASE_BYTES = CORRECT | {Outcome.UNSUPPORTED, Outcome.UNTESTED}


@dataclass
class RunSummary:
    """What a run did. ``errors`` holds, for each backend that could not be run to the end, the harness's reason."""

    tried: int = 0
    skipped: int = 0
    failed: int = 0
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.failed and not self.errors


class Workers(Protocol):
    """Workers of one backend, here or elsewhere; a context manager."""

    def results(self, cases: Iterable[Case]) -> Iterator[CaseResult]: ...
    def __enter__(self) -> Workers: ...
    def __exit__(self, *exc: object) -> None: ...


def run_cases(
    entries: Callable[[], Iterable[Case | Untested]],
    backends: Sequence[str],
    store: Store,
    run_id: str,
    *,
    jobs: int | None = 1,
    timeout: float = 60.0,
    memory: int = 8 << 30,
    on_verdict: Callable[[Verdict], None] | None = None,
    on_tick: Callable[[], None] | None = None,
    on_backend: Callable[[str], None] | None = None,
    on_note: Callable[[str], None] | None = None,
    wanted: Mapping[str, Collection[str]] | None = None,
    pool: Callable[..., Workers] = Pool,
) -> RunSummary:
    """Try what ``entries()`` yields (Case or Untested) on one backend after the other and journal every verdict.

    Where a failing case passes alone, its verdict is replaced by one with the cases that it needs before it
    (``predecessors``); ``on_note`` is told of that. ``wanted`` says which ids each backend is asked, if not all of
    them. ``pool`` makes the workers of a backend, as ``Pool`` does. A (case, backend) that has a verdict in this run
    is skipped, so a run is resumed by calling this again. The caller closes the run with ``store.finish``. A backend
    whose workers cannot start ends up in ``Summary.errors``; KeyboardInterrupt passes through, with every verdict so
    far in the journal.
    """
    summary = RunSummary()
    limits = {"timeout": timeout, "memory": memory}

    def keep(verdict: Verdict, data: bytes | None) -> None:
        store.record(run_id, verdict, None if verdict.outcome in WITHOUT_CASE_BYTES else data)
        summary.tried += 1
        summary.failed += verdict.failed
        if on_verdict is not None:
            on_verdict(verdict)

    def tick() -> None:
        store.tick()
        if on_tick is not None:
            on_tick()

    for backend in backends:
        if on_backend is not None:
            on_backend(backend)
        done = store.done(run_id, backend)

        def cases(backend: str = backend, done: set[str] = done) -> Iterator[Case]:
            for entry in entries():
                if wanted is not None and entry.id not in wanted.get(backend, ()):
                    continue
                if entry.id in done:
                    summary.skipped += 1
                elif isinstance(entry, Case):
                    yield entry
                else:
                    keep(untested_verdict(entry, backend), None)

        try:
            with pool(backend, jobs=jobs, **limits, tick=tick) as workers:
                suspects = predecessors.Suspects()
                for result in workers.results(cases()):
                    keep(result.verdict, result.data)
                    suspects.add(result)
                fresh = partial(pool, backend, jobs=1, **limits, tick=tick, retry=False)
                _explain(suspects, fresh, store, run_id, on_note)
        except HarnessError as error:
            summary.errors[backend] = str(error)
        store.flush()
    return summary


def _explain(
    suspects: predecessors.Suspects,
    fresh: Callable[[], Workers],
    store: Store,
    run_id: str,
    on_note: Callable[[str], None] | None,
) -> None:
    """Look for the cases that failing ones need before them, each sequence in a pool of its own, and journal them."""

    def try_all(cases: Sequence[Case]) -> Verdict | None:
        with contextlib.suppress(HarnessError), fresh() as workers:
            return in_sequence(workers, cases)
        return None

    for result, verdict in predecessors.explain(suspects.values(), try_all, on_note or (lambda text: None)):
        store.record(run_id, verdict, result.data)


def in_sequence(workers: Workers, cases: Sequence[Case]) -> Verdict | None:
    """Try cases one by one in the worker of a fresh pool: the last one's verdict, None if the worker died before it."""
    verdict = None
    for case in cases:
        if verdict is not None and verdict.outcome in WORKER_DIED - {Outcome.UNTESTED}:
            return None
        (result,) = workers.results([case])
        verdict = result.verdict
    return verdict

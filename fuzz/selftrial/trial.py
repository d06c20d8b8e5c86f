"""Trying mutants: in this process where that is safe, in isolated workers where it is not.

In this process cases run with the same code as in a worker, to save the worker's start-up time. Mutants that may end
the process get workers, and with ``isolated`` every mutant does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import multiprocessing
import signal
import time
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import torch

from torchstone.conformance.backends import load as load_backend
from torchstone.conformance.errors import HarnessError
from torchstone.conformance.execution.run_case import compile_cases, run_case
from torchstone.conformance.execution.verdict import Outcome, Verdict
from torchstone.conformance.mutants import BACKEND_NAME, MUTANTS, Mutant
from torchstone.conformance.program.case import Case
from torchstone.conformance.runner.pool import Pool
from torchstone.conformance.variants.registry import compiled_alone
from torchstone.fuzz.selftrial.cases import trial_cases
from torchstone.fuzz.selftrial.results import TrialResult

MAX_BATCH = 32  # cases compiled together


class SelfTrial:
    """Tries mutants one after the other; ``pool`` are the options of the workers for those that have some.

    A context manager: Python's threads and torch's are left as they were found.
    """

    def __init__(
        self, *, limit: int = 8, programs: int = 60, most: int = 500, isolated: bool = False, **pool: Any
    ) -> None:
        self.effort, self.isolated = (limit, programs, most), isolated
        self._pool = pool
        self._known: dict[str, Verdict] = {}

    def __enter__(self) -> SelfTrial:
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)  # as in a worker
        return self

    def __exit__(self, *exc: object) -> None:
        torch.set_num_threads(self._threads)

    def try_mutant(self, mutant: Mutant) -> TrialResult:
        """Return what became of a mutant. HarnessError when workers cannot start."""
        started = time.perf_counter()
        tried: list[Case] = []
        first: Verdict | None = None
        results = self._results(f"{BACKEND_NAME}+{mutant.name}", trial_cases(mutant, *self.effort), mutant.harmful)
        with contextlib.closing(results):
            for case, verdict in results:
                tried.append(case)
                if _is_detection(verdict) and self._right([case])[case.id].outcome is Outcome.PASS:
                    first = verdict
                    break
        alarms = [name for name, verdict in self._right(tried).items() if verdict.failed]
        found = TrialResult(
            mutant.name, mutant.group, tried=len(tried), seconds=time.perf_counter() - started, alarms=alarms
        )
        if first is None:
            return found
        return dataclasses.replace(
            found,
            case=first.case_id,
            by=first.source,
            outcome=str(first.outcome),
            kind=first.kind,
            message=first.message.split("\n", 1)[0][:200],
        )

    def _right(self, tried: Iterable[Case]) -> dict[str, Verdict]:
        """The verdicts on the compiler without the mutant, by case id."""
        by_id = {case.id: case for case in tried}
        new = (case for name, case in by_id.items() if name not in self._known)
        self._known |= {case.id: verdict for case, verdict in self._results(BACKEND_NAME, new)}
        return {name: self._known[name] for name in by_id}

    def _results(
        self, backend: str, tried: Iterable[Case], harmful: bool = False
    ) -> Generator[tuple[Case, Verdict], None, None]:
        if not (harmful or self.isolated):
            yield from _in_process(backend, tried)
            return
        with Pool(backend, jobs=1, **self._pool) as pool:
            for result in pool.results(tried):
                yield result.case, result.verdict


def _is_detection(verdict: Verdict) -> bool:
    """Whether the harness says that something is not as it should be: the answer, or whose it is."""
    return verdict.failed or verdict.outcome is Outcome.FALLBACK


def _in_process(name: str, tried: Iterable[Case]) -> Iterator[tuple[Case, Verdict]]:
    """What a worker makes of the cases, in growing batches: the first failure ends most trials."""
    backend, tried = load_backend(name), iter(tried)
    size = 1
    while batch := list(itertools.islice(tried, size)):
        alone = any(map(compiled_alone, batch))
        compiled = [None] * len(batch) if alone else compile_cases(batch, backend)
        for case, one in zip(batch, compiled, strict=True):
            yield case, run_case(case, backend, one)
        size = min(2 * size, MAX_BATCH)


def run_trials(mutants: Iterable[Mutant], jobs: int = 1, **options: Any) -> Generator[TrialResult, None, None]:
    """Try mutants, ``jobs`` at a time in processes of their own, each as it is done. ``options`` are ``SelfTrial``'s.

    Raises HarnessError when a process ends before its mutant is tried: one that is not known to be harmful ended it.
    """
    mutants = list(mutants)
    if jobs == 1 or len(mutants) < 2:
        with SelfTrial(**options) as trial:
            yield from map(trial.try_mutant, mutants)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(mutants)), context, _start, (options,)) as pool:
        # The harmful first: they wait for time-outs, which nothing should wait for in the end.
        tasks = [pool.submit(_try_one, mutant.name) for mutant in sorted(mutants, key=lambda one: not one.harmful)]
        try:
            for task in as_completed(tasks):
                yield task.result()
        except BrokenProcessPool as error:
            raise HarnessError(
                "a mutant ended the process that it was tried in; --isolated gives it workers"
            ) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


_trial: SelfTrial


def _start(options: dict[str, Any]) -> None:
    global _trial
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _trial = SelfTrial(**options).__enter__()


def _try_one(name: str) -> TrialResult:
    return _trial.try_mutant(MUTANTS[name])

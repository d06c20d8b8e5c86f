"""Work beside the stream: who needs verdicts asks for one after the other, and the workers of a pool try what is asked.

All of it runs in one thread, whenever a verdict has come: the order in which programs are drawn and judged is all that
hangs on time.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import TypeAlias, TypeVar

from torchstone.conformance.execution.verdict import Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.runner.pool import Pool
from torchstone.conformance.runner.retry import Trial

R = TypeVar("R")
Trying: TypeAlias = Generator[Trial, Verdict, R]
"""Yields a trial, is sent its verdict, and so on; returns what it came to."""


class Desk:
    """Trials on their way to the workers, and who waits for each."""

    def __init__(self, pool: Pool) -> None:
        self.jobs = pool.jobs
        self._pool = pool
        self._asked: deque[tuple[Trial, Callable[[Verdict], None]]] = deque()
        self._waiting: dict[int, deque[tuple[Case, Callable[[Verdict], None]]]] = {}

    def drive(self, trying: Trying[R], done: Callable[[R], None], *, traced: bool = False) -> None:
        """Have the trials of a generator made, one after the other; ``done`` is given what it returns.

        ``traced``: as in ``Trial``.
        """

        def go_on(verdict: Verdict | None) -> None:
            try:
                trial = next(trying) if verdict is None else trying.send(verdict)
            except StopIteration as end:
                done(end.value)
            else:
                self._asked.append((dataclasses.replace(trial, traced=traced), go_on))

        go_on(None)

    def serve(self, more: Callable[[], bool]) -> Iterator[None]:
        """Have trials made until no more are asked; yields whenever one is answered.

        ``more`` is called when there is room for another: it asks for one, or says that there is none now.
        """
        for result in self._pool.results(self._trials(more)):
            waiting = self._waiting[id(result.case)]
            _, go_on = waiting.popleft()
            if not waiting:
                del self._waiting[id(result.case)]
            go_on(result.verdict)
            yield

    def _trials(self, more: Callable[[], bool]) -> Iterator[Trial | None]:
        while True:
            if self._asked:
                trial, go_on = self._asked.popleft()
                self._waiting.setdefault(id(trial.case), deque()).append((trial.case, go_on))
                yield trial
            elif not more():
                if not self._waiting:
                    return
                yield None

"""What ``torchstone run`` shows: the progress while cases are running, and the table of outcomes at the end."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchstone.cli.output import TableFormat, say, show_table, warn
from torchstone.conformance.escape import shell_command, visible

if TYPE_CHECKING:
    from torchstone.conformance.execution.verdict import Verdict
    from torchstone.conformance.store import Store

PLAIN_SECONDS = 10.0
LIVE_SECONDS = 0.2
SHOWN_OPS = 20


class LiveText:
    """Lines that stay in their place on a terminal's stderr, as a context manager; elsewhere nothing is shown."""

    def __init__(self) -> None:
        self._live: Any = None

    def __enter__(self) -> LiveText:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True, highlight=False), auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def __bool__(self) -> bool:
        return self._live is not None

    def show(self, *lines: str) -> None:
        """Put these lines in the place of those that are there."""
        from rich.text import Text

        if self._live is not None:  # a str would be markup
            text = "\n".join(visible(line) for line in lines)
            self._live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)

    def stop(self) -> None:
        """Take the lines away."""
        if self._live is not None:
            self._live.stop()
            self._live = None


class Progress:
    """Counts verdicts and says how fast they come and when they will be through.

    How many cases there will be is not known before they are generated, but they come source by source and op by op in
    the order of ``ops``, so the position of the latest op is the share that is done.
    """

    def __init__(self, backends: Sequence[str], ops: Mapping[str, Sequence[str]]) -> None:
        self.backends = list(backends)
        self.ops = {pair: i for i, pair in enumerate((source, op) for source, names in ops.items() for op in names)}
        self.counts: Counter[str] = Counter()
        self.cases = 0
        self.backend = self.backends[0]
        self.share = 0.0
        self.began = self.shown = time.monotonic()
        self._before = 0.0  # what was done when the first verdict came: of a run that goes on, all that it had
        self._live = LiveText()

    def __enter__(self) -> Progress:
        self._live.__enter__()
        self._live.show(self.line())
        return self

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def start(self, backend: str) -> None:
        """Say that ``backend`` is the one whose verdicts come next."""
        self.backend, self.share = backend, 0.0
        self.counts.clear()

    def add(self, verdict: Verdict) -> None:
        """Count one verdict."""
        if not self.cases:
            self.began = time.monotonic()  # loading the database and starting workers says nothing about the rate
            self._before = self._done(self._place(verdict, 0))
        self.cases += 1
        self.counts[str(verdict.outcome)] += 1
        self.share = max(self.share, self._place(verdict, 1))

    def tick(self) -> None:
        """Show the progress when it is time to; call it as often as you like."""
        now = time.monotonic()
        if now - self.shown < (LIVE_SECONDS if self._live else PLAIN_SECONDS):
            return
        self.shown = now
        if self._live:
            self._live.show(self.line())
        else:
            warn(self.line())

    def line(self) -> str:
        """One line: backend, share, cases, rate, time left, outcomes."""
        seconds = time.monotonic() - self.began
        done = self._done(self.share)
        now = done - self._before
        left = (
            "starting"
            if not self.counts
            else f"{_clock(seconds / now * (1 - done))} left"
            if now > 0.01 / len(self.backends) and seconds > 3
            else "…"
        )
        outcomes = "  ".join(f"{name} {count}" for name, count in self.counts.most_common())
        return (
            f"{self.backend}: {self.share:4.0%} of {len(self.ops)} ops, {self.cases} cases, "
            f"{self.cases / max(seconds, 0.1):.0f}/s, {left}  {outcomes}"
        )

    def _place(self, verdict: Verdict, more: int) -> float:
        """The share of the ops that come before this verdict's, and ``more``; 0 for one that nobody asked for."""
        at = self.ops.get((verdict.source, verdict.op))
        return 0.0 if at is None else (at + more) / len(self.ops)

    def _done(self, share: float) -> float:
        """The share of the run that is done with so much of this backend, all backends taken as equally long."""
        return (self.backends.index(self.backend) + share) / len(self.backends)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def show_summary(db: Store, run: str) -> None:
    """Print on stdout what the store holds of the run."""
    from torchstone.conformance.execution.verdict import EAGER_FURTHER, Outcome
    from torchstone.conformance.store import DEFAULT_PATH

    counts = db.counts(run)
    seen = {outcome for outcomes in counts.values() for outcome in outcomes}
    columns = [str(outcome) for outcome in Outcome if outcome in seen]
    passing = db.passing_ops(run)
    rows = [
        {"backend": backend, "cases": sum(outcomes.values()), **{name: outcomes.get(name, 0) for name in columns}}
        | {"ops passing": f"{passing[backend][0]} of {passing[backend][1]}"}
        for backend, outcomes in counts.items()
    ]
    say()
    show_table(rows, ["backend", "cases", *columns, "ops passing"], TableFormat.table)
    for backend, count in db.noted(run, EAGER_FURTHER).items():
        cases = "1 case" if count == 1 else f"{count} cases"
        say(f"\nin {cases} eager is further from the float64 result than {backend}: no failure of the backend's")
    for backend, ops in db.untested_ops(run).items():
        named = ", ".join(ops[:SHOWN_OPS]) + (f" and {len(ops) - SHOWN_OPS:,} more" if len(ops) > SHOWN_OPS else "")
        of = "1 op" if len(ops) == 1 else f"{len(ops):,} ops"
        say(f"\nnothing is known of {of} on {backend}, every sample is untested: {visible(named)}")
    where = [] if db.path == DEFAULT_PATH else ["--store", str(db.path)]
    say(f"\nrun {run} is in {db.path}; for the report: {shell_command(['torchstone', 'report', '--run', run, *where])}")

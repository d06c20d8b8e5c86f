"""``torchstone selftrial --mutants``: mutants drawn from the compiler's source, and which of them the suite kills."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torchstone.cli.errors import FAILURES, OK
from torchstone.cli.output import TableFormat, say, show_table, warn

if TYPE_CHECKING:
    from torchstone.conformance.mutants.syntactic.mutation import Mutation
    from torchstone.fuzz.selftrial.mutation_results import MutationResult

LINES_FOLDER = Path(".torchstone")
PROGRESS_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Draw:
    """So many mutants of one target's code by a seed; with ``names``, those with these fingerprints instead."""

    count: int
    seed: int
    target: str
    names: Sequence[str] = ()

    def mutations(self) -> list[Mutation]:
        """UnknownName for a target, or a fingerprint, that there is none of."""
        from torchstone.conformance.mutants.syntactic import population

        texts = population.sources(self.target)
        if self.names:
            return list(population.find(texts, self.names).values())
        return list(itertools.islice(population.draw(texts, self.seed), self.count))


def try_drawn(
    draw: Draw, jobs: int, out: Path, effort: dict[str, int], timeout: float, *, listing: bool, format: TableFormat
) -> int:
    """Draw mutants, try those that the journal does not hold, and show the rate and the survivors.

    Exit code 0 if every mutant was killed that is not judged equivalent, 1 if not.
    """
    from torchstone.cli.workers import sigterm_interrupts
    from torchstone.fuzz.selftrial import mutation_results as results
    from torchstone.fuzz.selftrial.line_map import line_map
    from torchstone.fuzz.selftrial.reaching_cases import Effort
    from torchstone.fuzz.selftrial.syntactic import run_syntactic_trials

    chosen = draw.mutations()
    if listing:
        _list(chosen, draw.target, format)
        return OK
    known = results.read_mutation_journal(out)
    found = {one.fingerprint: known[one.fingerprint] for one in chosen if one.fingerprint in known}
    left = [one for one in chosen if one.fingerprint not in found]
    if left:
        line_map(draw.target, LINES_FOLDER, jobs, _MapProgress())
    started = time.perf_counter()
    options = {"target": draw.target, "effort": Effort(**effort), "timeout": timeout}
    with (
        sigterm_interrupts(),
        contextlib.closing(run_syntactic_trials(left, LINES_FOLDER, jobs, **options)) as tried,
    ):
        for result in tried:
            found[result.fingerprint] = result
            results.append_to_mutation_journal(out, result)
            ended = f"{result.outcome} in {result.case}" if result.killed else "SURVIVED"
            where = f"{result.path}:{result.line} {result.operator}"
            seconds = time.perf_counter() - started
            warn(f"{seconds:.0f} s  {len(found)}/{len(chosen)}  {result.fingerprint} {where}: {ended}")
    return _report([found[one.fingerprint] for one in chosen], format)


def _report(found: Sequence[MutationResult], format: TableFormat) -> int:
    from torchstone.conformance.mutants.syntactic.judgements import read_judgements
    from torchstone.fuzz.selftrial import mutation_results as results

    judged = read_judgements()
    rows = results.mutant_rows(found, judged)
    if format is TableFormat.table:
        show_table(results.rate_rows(found, judged), ("operator", "mutants", "equivalent", "killed", "rate"), format)
        show_table(results.killers(found), ("outcome", "by", "mutants"), format)
        say(results.survivors_text(row for row in rows if not row["case"]))
    else:
        show_table(rows, results.COLUMNS, format)
    missed = any(not row["case"] and row["state"] != "equivalent" for row in rows)
    return FAILURES if missed else OK


def _list(chosen: Sequence[Mutation], target: str, format: TableFormat) -> None:
    from torchstone.conformance.mutants.syntactic import population

    texts = population.sources(target)
    rows = []
    for one in chosen:
        before, after = one.diff(texts[one.path])
        where = f"compiler/{one.path}:{one.line}"
        row = {"mutant": one.fingerprint, "where": where, "operator": one.operator, "before": before, "after": after}
        rows.append(row)
    show_table(rows, ("mutant", "where", "operator", "before", "after"), format)


class _MapProgress:
    """Says how far the line map is, every ten seconds."""

    def __init__(self) -> None:
        self._began = self._shown = time.monotonic()

    def __call__(self, done: int, of: int) -> None:
        now = time.monotonic()
        if now - self._shown >= PROGRESS_SECONDS or done == of:
            self._shown = now
            warn(f"{now - self._began:.0f} s  which ops run which lines: {done}/{of}")

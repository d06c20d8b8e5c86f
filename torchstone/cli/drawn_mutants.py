"""``torchstone selftrial --mutants``: mutants drawn from the compiler's source, and which of them the suite kills."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchstone.cli.errors import FAILURES, OK
from torchstone.cli.output import TableFormat, say, show_table, warn

if TYPE_CHECKING:
    from torchstone.conformance.mutants.syntactic.mutation import Mutation
    from torchstone.fuzz.selftrial.mutation_results import MutationResult

LINES_FOLDER = Path(".torchstone")
PROGRESS_SECONDS = 10.0


def try_drawn(
    count: int, seed: int, names: Sequence[str] | None, target: str, jobs: int, out: Path, listing: bool,
    format: TableFormat, options: dict[str, Any],
) -> int:  # fmt: skip
    """Draw mutants of one target's code, try those that the journal does not hold, and show rate and survivors.

    ``names`` are fingerprints to try in place of a draw. Exit code 0 if every mutant was killed that is not judged
    equivalent, 1 if not.
    """
    from torchstone.cli.workers import sigterm_interrupts
    from torchstone.fuzz.selftrial import mutation_results as results
    from torchstone.fuzz.selftrial.line_map import line_map
    from torchstone.fuzz.selftrial.syntactic import run_syntactic_trials

    chosen = _drawn(count, seed, names, target)
    if listing:
        _list(chosen, target, format)
        return OK
    known = results.read_mutation_journal(out)
    found = {one.fingerprint: known[one.fingerprint] for one in chosen if one.fingerprint in known}
    left = [one for one in chosen if one.fingerprint not in found]
    if left:
        line_map(target, LINES_FOLDER, jobs, _MapProgress())
    started = time.perf_counter()
    with (
        sigterm_interrupts(),
        contextlib.closing(run_syntactic_trials(left, LINES_FOLDER, jobs, target=target, **options)) as tried,
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


def _drawn(count: int, seed: int, names: Sequence[str] | None, target: str) -> list[Mutation]:
    from torchstone.conformance.mutants.syntactic import population

    texts = population.sources(target)
    if names:
        return list(population.find(texts, names).values())
    return list(itertools.islice(population.draw(texts, seed), count))


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

"""``torchstone runs``: what is in a store, run by run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchstone.cli.commands.export import export
from torchstone.cli.commands.prune import prune
from torchstone.cli.errors import FAILURES, OK
from torchstone.cli.options import StoreOption
from torchstone.cli.output import FormatOption, TableFormat, say, show_table

if TYPE_CHECKING:
    from torchstone.conformance.store import RunRecord, Store

COLUMNS = ("run", "state", "started", "finished", "backends", "cases", "outcomes", "command")
CHANGES = ("change", "backend", "case", "before", "after", "message")
FACTS = ("section", "backend", "name", "value")

runs = typer.Typer(invoke_without_command=True)


@runs.callback()
def every(context: typer.Context, store: StoreOption = None, form: FormatOption = TableFormat.table) -> None:
    """List, show, compare, export and prune the runs in a store; without a command, list them."""
    if context.invoked_subcommand is None:
        list_runs(store, form)
        return
    given = {"store": store} | ({} if form is TableFormat.table else {"form": form.value})
    context.default_map = dict.fromkeys(("list", "show", "diff", "prune", "export"), given)


@runs.command("list")
def list_runs(store: StoreOption = None, form: FormatOption = TableFormat.table) -> None:
    """List the runs in a store, oldest first."""
    from torchstone.conformance.store import Store

    with Store(store, readonly=True) as db:
        rows = [_listed(db, record) for record in db.run_list()]
    show_table(rows, COLUMNS, form)


def _listed(db: Store, record: RunRecord) -> dict[str, Any]:
    counts = db.counts(record.run)
    totals: dict[str, int] = {}
    for outcomes in counts.values():
        for outcome, count in outcomes.items():
            totals[outcome] = totals.get(outcome, 0) + count
    return {
        "run": record.run, "state": record.state, "started": record.started, "finished": record.finished,
        "backends": list(record.options.get("backends", sorted(counts))), "cases": sum(totals.values()),
        "outcomes": totals, "command": record.command,
    }  # fmt: skip


@runs.command("show")
def show_run(
    run: Annotated[str, typer.Argument(help="The run, or latest.")] = "latest",
    top: Annotated[int, typer.Option("--top", min=1, help="How many of the slowest cases, and of the failures.")] = 10,
    store: StoreOption = None,
    form: FormatOption = TableFormat.table,
) -> None:
    """Show one run: options, versions, machine, counts, the slowest cases, and the failures by what went wrong."""
    from torchstone.conformance.store import Store

    with Store(store, readonly=True) as db:
        facts = _facts(db, db.run(run), top)
    if form is not TableFormat.table:
        show_table(facts, FACTS, form)
        return
    for section in dict.fromkeys(fact["section"] for fact in facts):
        say(f"\n{section}" if section != "run" else section)
        rows = [fact for fact in facts if fact["section"] == section]
        show_table(rows, [name for name in FACTS[1:] if any(row[name] != "" for row in rows)], form)


def _facts(db: Store, record: RunRecord, top: int) -> list[dict[str, Any]]:
    """Return rows of ``FACTS``. The value of a slowest case is in seconds, that of an outcome or a failure a count."""
    import heapq
    from collections import Counter

    from torchstone.conformance.execution.verdict import FAILURES as FAILED
    from torchstone.conformance.expectations import StoredVerdict
    from torchstone.reports.aggregate import message_pattern

    failures: Counter[tuple[str, str, str]] = Counter()
    slowest: list[tuple[float, str, str]] = []
    for row in db.iter_verdicts(record.run):
        result = StoredVerdict(*row)
        if result.outcome in FAILED:
            failures[result.backend, result.outcome, message_pattern(result.message)] += 1
        add = heapq.heappush if len(slowest) < top else heapq.heappushpop
        add(slowest, (result.seconds, result.backend, result.case_id))
    fields = ("run", "state", "started", "finished", "command", "device", "seed")
    facts: list[tuple[str, str, str, Any]] = [("run", "", name, getattr(record, name)) for name in fields]
    facts += [("options", "", name, value) for name, value in record.options.items()]
    facts += [("versions", "", name, value) for name, value in sorted(record.versions.items())]
    facts += [("machine", "", name, value) for name, value in record.machine.items()]
    facts += [("not run to the end", name, "reason", reason) for name, reason in record.errors.items()]
    for backend, counts in sorted(db.counts(record.run).items()):
        passing, ops = db.passing_ops(record.run)[backend]
        facts += [("counts", backend, outcome, count) for outcome, count in sorted(counts.items())]
        facts += [("counts", backend, "ops", ops), ("counts", backend, "ops passing", passing)]
    ranked = sorted(failures.items(), key=lambda item: (item[0][0], -item[1], item[0]))
    facts += [("slowest", b, case, round(seconds, 3)) for seconds, b, case in sorted(slowest, reverse=True)]
    facts += [("failures", b, f"{outcome}: {what}", count) for (b, outcome, what), count in ranked[:top]]
    return [dict(zip(FACTS, fact, strict=True)) for fact in facts]


@runs.command("diff")
def diff(
    run: Annotated[str, typer.Argument(help="The run, or latest.")],
    against: Annotated[str, typer.Argument(help="The earlier run that it is compared with.")],
    store: StoreOption = None,
    form: FormatOption = TableFormat.table,
) -> int:
    """List the cases that changed from AGAINST to RUN: regressions, improvements, and other changes of outcome.

    Before them, what the versions and the machines of the two runs do not have in common. Exit code 1 if there is a
    regression.
    """
    from torchstone.conformance.escape import one_line
    from torchstone.conformance.store import Store
    from torchstone.reports.diff import compare_runs
    from torchstone.reports.results import load_results

    with Store(store, readonly=True) as db:
        changes = compare_runs(load_results(db, [against]), load_results(db, [run]))
        provenance = _provenance(db.run(against), db.run(run))
    kinds = {"regression": "regressions", "improvement": "fixes", "change": "others"}
    rows = [
        {"change": kind, "case": change["case_id"], **{name: change[name] for name in ("backend", "before", "after")}}
        | {"message": one_line(change["message"])}
        for kind, key in kinds.items()
        for change in changes[key]
    ]
    if form is not TableFormat.table:
        show_table(provenance + rows, CHANGES, form)
    elif rows:
        show_table(rows, CHANGES, form)
    if form is TableFormat.table:
        for fact in provenance:
            before, after = fact["before"] or "not noted", fact["after"] or "not noted"
            say(f"another {fact['change']}: {fact['case']} is {after} in {run}, and {before} in {against}")
        counts = ", ".join(f"{len(changes[key]):,} {kind}s" for kind, key in kinds.items())
        say(f"{run} against {against}: {counts}, {changes['unchanged']:,} cases unchanged")
        for names, which in ((changes["only_before"], against), (changes["only_after"], run)):
            if names:
                say(f"only in {which}, so not compared: {', '.join(names)}")
    return FAILURES if changes["regressions"] else OK


def _provenance(before: RunRecord, after: RunRecord) -> list[dict[str, Any]]:
    """Return rows of ``CHANGES`` for what the runs' versions and machines do not have in common."""
    from torchstone.conformance.execution.machine import differing_facts

    rows = []
    for what in ("versions", "machine"):
        old, new = getattr(before, what), getattr(after, what)
        found = differing_facts(old, new)
        if what == "machine" and bool(old) != bool(new):  # an older torchstone noted none
            found = {"all of it": tuple("noted" if noted else "" for noted in (old, new))}
        for name, (one, other) in found.items():
            fact = {"change": what.removesuffix("s"), "backend": "", "case": name, "before": one, "after": other}
            rows.append(fact | {"message": ""})
    return rows


runs.command()(prune)
runs.command()(export)

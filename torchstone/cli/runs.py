"""``torchstone runs``: what is in a store."""

from __future__ import annotations

from torchstone.cli.options import StoreOption
from torchstone.cli.tables import Format, FormatOption, show

COLUMNS = ("run", "state", "started", "finished", "backends", "cases", "outcomes", "command")


def runs(store: StoreOption = None, form: FormatOption = Format.table) -> None:
    """List the runs in a store, oldest first."""
    from torchstone.conformance.store import Store

    rows = []
    with Store(store, create=False) as db:
        for record in db.run_list():
            counts = db.counts(record.run)
            totals: dict[str, int] = {}
            for outcomes in counts.values():
                for outcome, count in outcomes.items():
                    totals[outcome] = totals.get(outcome, 0) + count
            rows.append(
                {
                    "run": record.run, "state": record.state, "started": record.started, "finished": record.finished,
                    "backends": list(record.options.get("backends", sorted(counts))), "cases": sum(totals.values()),
                    "outcomes": totals, "command": record.command,
                }
            )  # fmt: skip
    show(rows, COLUMNS, form)

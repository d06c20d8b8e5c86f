"""The table that ends a run: outcomes per backend, ops with every sample passing, and where to look next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchstone.cli.output import say
from torchstone.cli.tables import TableFormat, show
from torchstone.conformance.escape import shell

if TYPE_CHECKING:
    from torchstone.conformance.store import Store


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
    show(rows, ["backend", "cases", *columns, "ops passing"], TableFormat.table)
    for backend, count in db.noted(run, EAGER_FURTHER).items():
        cases = "1 case" if count == 1 else f"{count} cases"
        say(f"\nin {cases} eager is further from the float64 result than {backend}: no failure of the backend's")
    where = [] if db.path == DEFAULT_PATH else ["--store", str(db.path)]
    say(f"\nrun {run} is in {db.path}; for the report: {shell(['torchstone', 'report', '--run', run, *where])}")

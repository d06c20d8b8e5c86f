"""Read the runs of a report from the store into one frame of verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pandas as pd

from torchstone.conformance.errors import InputError
from torchstone.conformance.store import Campaign, Store, campaigns

# A pandas data frame: the types that pandas ships are too coarse for a checker to follow a groupby.
Frame: TypeAlias = Any


class ReportError(InputError):
    """The report cannot be made or written; the message says what to do."""


@dataclass(frozen=True)
class Results:
    """``verdicts`` has the store's columns and one row a (backend, case); ``runs`` are the records it came from.

    ``campaigns`` are those of the store on the backends of the runs.
    """

    runs: list[dict[str, Any]]
    verdicts: Frame
    campaigns: list[Campaign] = field(default_factory=list)


def load_results(store: Store, runs: Sequence[str] = ()) -> Results:
    """Read the named runs, or the newest one. Of two verdicts on the same backend and case the later run's counts.

    Raises StoreError for a store without runs, UnknownName for a run it does not hold, ReportError for empty runs.
    """
    records = sorted({r.run: r for r in map(store.run, runs or (None,))}.values(), key=lambda r: int(r.run[1:]))
    frames = [store.verdicts(record.run) for record in records]
    verdicts = pd.concat(frames, ignore_index=True)
    verdicts = verdicts.drop_duplicates(["backend", "case_id"], keep="last")
    if verdicts.empty:
        names = ", ".join(record.run for record in records)
        raise ReportError(f"no verdicts in {names} of {store.path}: name another run (`torchstone runs` lists them)")
    verdicts = verdicts.sort_values(["backend", "op", "dtype", "case_id"], kind="stable", ignore_index=True)
    asked = set(verdicts["backend"])
    found = [campaign for campaign in campaigns(store) if campaign.backend in asked]
    return Results([_record(record) for record in records], verdicts, found)


def _record(run: Any) -> dict[str, Any]:
    names = ("run", "state", "started", "finished", "command", "device", "seed", "versions", "options")
    return {name: getattr(run, name) for name in names} | {"scope": scope(run.options)}


def scope(options: dict[str, Any]) -> str:
    """Return what a run was asked to cover, from its options: a report of a part must not pass for one of the whole."""
    ops, dtypes, limit = options.get("ops"), options.get("dtypes"), options.get("limit")
    wide = "all ops" if not ops else f"ops {', '.join(ops)}"
    if options.get("effort"):
        return f"{wide}; the plan of {options['effort']} effort" + (f" in {', '.join(dtypes)}" if dtypes else "")
    parts = [
        wide,
        "all dtypes" if not dtypes else ", ".join(dtypes),
        "every sample" if not limit else "the first sample of each op and dtype" if limit == 1
        else f"the first {limit} samples of each op and dtype",
    ]  # fmt: skip
    return "; ".join(parts)

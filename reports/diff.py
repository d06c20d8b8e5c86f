"""What changed between two sets of results: transitions of outcome, case by case."""

from __future__ import annotations

from typing import Any

import pandas as pd

from torchstone.conformance.execution.verdict import ABSENT, Direction, direction
from torchstone.reports.aggregate import first_line
from torchstone.reports.outcomes import PASS
from torchstone.reports.results import Frame, Results


def compare_runs(old: Results, new: Results) -> dict[str, Any]:
    """Return the transitions from ``old`` to ``new``.

    What is a regression, a fix or neither is ``conformance.transitions``'s to say. Backends that one side lacks are
    named and not compared.
    """
    backends = [set(results.verdicts["backend"]) for results in (old, new)]
    both = sorted(backends[0] & backends[1])
    keys = ["backend", "case_id"]
    sides = [r.verdicts[r.verdicts["backend"].isin(both)].set_index(keys) for r in (old, new)]
    table: Frame = pd.DataFrame({"before": sides[0]["outcome"], "after": sides[1]["outcome"]}).fillna(ABSENT)
    moved = table[table["before"] != table["after"]].sort_index()
    counts = moved.groupby(["before", "after"]).size()
    transitions = [{"before": before, "after": after, "cases": int(n)} for (before, after), n in counts.items()]
    changes = [
        _change(key, row.before, row.after, sides) for key, row in zip(moved.index, moved.itertuples(), strict=True)
    ]
    return {
        "runs": old.runs,
        "backends": both,
        "only_before": sorted(backends[0] - backends[1]),
        "only_after": sorted(backends[1] - backends[0]),
        "unchanged": int((table["before"] == table["after"]).sum()),
        "transitions": sorted(transitions, key=lambda row: (-row["cases"], row["before"], row["after"])),
        "regressions": [change for change in changes if _goes(change) is Direction.REGRESSION],
        "fixes": [change for change in changes if _goes(change) is Direction.IMPROVEMENT],
        "others": [change for change in changes if _goes(change) is Direction.CHANGE],
    }


def _goes(change: dict[str, Any]) -> Direction | None:
    return direction(change["before"], change["after"])


def _change(key: Any, before: Any, after: Any, sides: list[Frame]) -> dict[str, Any]:
    backend, case_id = key
    row = sides[1].loc[key] if after != ABSENT else sides[0].loc[key]
    return {
        "backend": backend,
        "case_id": case_id,
        "op": row["op"],
        "dtype": row["dtype"],
        "before": before,
        "after": after,
        "message": first_line(row["message"]) if after not in (PASS, ABSENT) else "",
    }

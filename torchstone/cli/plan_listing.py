"""``torchstone run --plan``: the cases that a run would ask, and what each is the first of its op to bring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from torchstone.cli.output import TableFormat, say, show_table

if TYPE_CHECKING:
    from torchstone.conformance.program.case import Case, Untested

LISTED = 200
"""Up to so many cases are listed one by one; of more, how many there are of each variant and dtype."""


def show_plan(entries: Iterable[Case | Untested]) -> None:
    """Print the cases in the order in which they are asked, each with what is new in it."""
    rows = list(_rows(entries))
    ops = {row["op"].partition(":")[2] for row in rows}
    if len(rows) <= LISTED:
        show_table(rows, ("case", "new"), TableFormat.table)
    else:
        counts = Counter((row["variant"], row["dtype"]) for row in rows)
        dtypes = list(dict.fromkeys(row["dtype"] for row in rows))
        table: list[dict[str, Any]] = [
            {"variant": variant, **{dtype: counts[variant, dtype] for dtype in dtypes}}
            for variant in dict.fromkeys(row["variant"] for row in rows)
        ]
        show_table(table, ("variant", *dtypes), TableFormat.table)
    say(f"{len(rows)} cases of {len(ops)} op{'s' * (len(ops) != 1)}; nothing was run")


def _rows(entries: Iterable[Case | Untested]) -> Iterator[dict[str, Any]]:
    from torchstone.conformance.program.case import Untested
    from torchstone.conformance.selection.features import features

    op, met = "", set[Any]()
    for entry in entries:
        if (name := f"{entry.source}:{entry.op}") != op:
            op, met = name, set()
        row = {"case": entry.id, "op": name, "variant": entry.variant, "dtype": entry.dtype}
        if isinstance(entry, Untested):
            yield row | {"new": f"cannot be asked: {entry.reason}"}
            continue
        levels = {f"variant {entry.variant}", f"dtype {entry.dtype}"} - met
        facts = features(entry)
        fresh = len(facts - met)
        met |= levels | facts
        yield row | {
            "new": ", ".join(
                [*sorted(levels), *([f"{fresh} fact{'s' * (fresh > 1)} of its arguments"] if fresh else [])]
            )
        }

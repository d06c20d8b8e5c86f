"""The report as data: the one structure that the JSON, Markdown and HTML writers render."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from torchstone.conformance.escape import replay_command
from torchstone.conformance.store import parse_evidence
from torchstone.reports import aggregate
from torchstone.reports.diff import compare_runs
from torchstone.reports.export import strict
from torchstone.reports.fuzzing import campaign_rows
from torchstone.reports.outcomes import LISTED, LOOKS, RANK
from torchstone.reports.results import Frame, Results

SCHEMA = 1


def build_report(results: Results, against: Results | None = None) -> dict[str, Any]:
    """Return the report as JSON data: the same results give the same report, byte for byte.

    docs/reports.md describes the keys; ``schema`` counts up when one of them changes its meaning.
    """
    verdicts = results.verdicts
    return {
        "schema": SCHEMA,
        "torchstone": metadata.version("torchstone"),
        "runs": results.runs,
        "legend": [{"outcome": x.outcome, "symbol": x.symbol, "meaning": x.meaning} for x in LOOKS],
        "backends": aggregate.backend_rows(verdicts),
        "ops": sorted(set(verdicts["op"])),
        "dtypes": sorted(set(verdicts["dtype"]), key=_dtype_order),
        "matrix": aggregate.cells(verdicts),
        "cases": listed_cases(verdicts),
        "unsupported": aggregate.reasons(verdicts, "unsupported"),
        "fallback": aggregate.reasons(verdicts, "fallback"),
        "untested": untested_reasons(verdicts),
        "lonely": aggregate.failures_of_one_backend(verdicts),
        "fuzzing": campaign_rows(results.campaigns),
        "against": compare_runs(against, results) if against is not None else None,
    }


def listed_cases(verdicts: Frame) -> list[dict[str, Any]]:
    """Return every case that needs looking at, with message, evidence and the command that replays it."""
    chosen = verdicts[verdicts["outcome"].isin(LISTED)]
    rows = []
    for row in chosen.to_dict("records"):
        fields = ("backend", "op", "dtype", "case_id", "variant", "source", "stage", "outcome", "kind", "message")
        case = {name: row[name] for name in fields}
        case["evidence"] = strict(parse_evidence(row["evidence"], row["case_id"]))
        case["seconds"] = round(float(row["seconds"]), 4)
        case["signature"] = aggregate.message_pattern(row["message"])
        case["replay"] = replay_command(row["case_id"], row["backend"])
        rows.append(case)
    return sorted(rows, key=lambda r: (r["backend"], RANK[r["outcome"]], r["op"], r["dtype"], r["case_id"]))


def untested_reasons(verdicts: Frame) -> list[dict[str, Any]]:
    """Return what the suite could not ask, by op and reason; the backends are not to blame, so they are merged."""
    chosen = verdicts[verdicts["outcome"] == "untested"].drop_duplicates("case_id")
    chosen = chosen.assign(reason=chosen["message"].map(aggregate.first_line))
    return [
        {"op": op, "reason": reason, "dtypes": sorted(set(group["dtype"]), key=_dtype_order), "cases": len(group)}
        for (op, reason), group in chosen.groupby(["op", "reason"], sort=True)
    ]


_KINDS = ("bool", "uint", "int", "float", "bfloat", "complex")


def _dtype_order(dtype: str) -> tuple[int, int, str]:
    """Order dtypes as a reader expects them: bool, then integers by width, then floats, then complex."""
    kind = dtype.rstrip("0123456789")
    width = int(dtype[len(kind) :][:9] or 0)
    return (_KINDS.index("float" if kind == "bfloat" else kind) if kind in _KINDS else len(_KINDS), width, dtype)

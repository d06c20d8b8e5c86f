"""Counts over a frame of verdicts: by outcome, by stage, by op and dtype, by reason. Every order is total."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from torchstone.conformance.execution.verdict import EAGER_FURTHER, UNPROVEN
from torchstone.conformance.store import parse_evidence
from torchstone.reports.outcomes import FAILING, PASS, STAGES, in_order
from torchstone.reports.results import Frame

UNTESTED = "untested"


def backend_rows(verdicts: Frame) -> list[dict[str, Any]]:
    """Return one summary a backend: cases by outcome, ops by how much of them passes, stages.

    Of an op's samples only the tested ones count. ``untested_ops`` are those that have none.
    """
    return [_backend_row(name, group) for name, group in verdicts.groupby("backend", sort=True)]


def _backend_row(name: Any, group: Frame) -> dict[str, Any]:
    outcomes = in_order(group["outcome"].value_counts().to_dict())
    tested = group[group["outcome"] != UNTESTED]
    ops = tested.assign(passed=tested["outcome"] == PASS).groupby("op")["passed"].agg(["all", "any"])
    return {
        "backend": name,
        "cases": len(group),
        "outcomes": outcomes,
        "failing": sum(outcomes.get(outcome, 0) for outcome in FAILING),
        "unproven": int(((group["outcome"] == PASS) & _noted(group, UNPROVEN)).sum()),
        "eager_further": int(_noted(group, EAGER_FURTHER).sum()),
        "ops": {
            "total": len(ops),
            "complete": int(ops["all"].sum()),
            "partial": int((ops["any"] & ~ops["all"]).sum()),
            "none": int((~ops["any"]).sum()),
            "untested": group["op"].nunique() - len(ops),
        },
        "untested_ops": sorted(set(group["op"]) - set(ops.index)),
        "stages": _stages(group),
        "seconds": round(float(group["seconds"].sum()), 3),
    }


def _noted(group: Frame, key: str) -> Frame:
    """Return whether each row has the key in its evidence; what cannot have it is not parsed."""
    rows = zip(group["evidence"], group["case_id"], strict=True)
    return pd.Series(
        [key in text and key in parse_evidence(text, case_id) for text, case_id in rows], group.index, bool
    )


def _stages(group: Frame) -> list[dict[str, Any]]:
    """Return, a stage: how many cases reached it, and what stopped there. Untested cases reach no stage at all."""
    tested = group[group["outcome"] != UNTESTED]
    stopped = tested[tested["outcome"] != PASS].groupby(["stage", "outcome"]).size()
    at = tested["stage"].map({stage: rank for rank, stage in enumerate(STAGES)})
    rows = []
    for rank, stage in enumerate(STAGES):
        here = {str(o): int(n) for (s, o), n in stopped.items() if s == stage}
        rows.append({"stage": stage, "reached": int((at >= rank).sum()), "stopped": in_order(here)})
    return rows


def cells(verdicts: Frame) -> list[dict[str, Any]]:
    """Return the matrix: one entry a (backend, op, dtype) that has cases, with its counts by outcome."""
    counts = verdicts.groupby(["backend", "op", "dtype", "outcome"], sort=True).size()
    merged: dict[tuple[str, str, str], dict[str, int]] = {}
    for (backend, op, dtype, outcome), count in counts.items():
        merged.setdefault((backend, op, dtype), {})[outcome] = int(count)
    return [
        {"backend": backend, "op": op, "dtype": dtype, "outcomes": in_order(outcomes)}
        for (backend, op, dtype), outcomes in merged.items()
    ]


def reasons(verdicts: Frame, outcome: str) -> list[dict[str, Any]]:
    """Group the cases of one outcome by backend and reason, the reason that blocks most ops first.

    ``ops`` counts the cases of each op; ``alone`` are the ops that would pass wholly but for this reason.
    """
    chosen = verdicts[verdicts["outcome"] == outcome]
    chosen = chosen.assign(reason=chosen["message"].map(first_line))
    others = verdicts[~verdicts["outcome"].isin([outcome, PASS])]
    blocked = set(zip(others["backend"], others["op"], strict=True))
    per_op = chosen.groupby(["backend", "op"])["reason"].nunique()
    rows = []
    for (backend, reason), group in chosen.groupby(["backend", "reason"], sort=True):
        ops = {str(op): int(n) for op, n in group["op"].value_counts().items()}
        alone = [op for op in sorted(ops) if (backend, op) not in blocked and per_op[backend, op] == 1]
        by_size = dict(sorted(ops.items(), key=lambda item: (-item[1], item[0])))
        stages = sorted(set(group["stage"]), key=STAGES.index)
        rows.append(
            {
                "backend": backend,
                "reason": reason,
                "stages": stages,
                "cases": len(group),
                "ops": by_size,
                "alone": alone,
            }
        )
    return sorted(rows, key=lambda row: (row["backend"], -len(row["ops"]), -row["cases"], row["reason"]))


def failures_of_one_backend(verdicts: Frame) -> list[dict[str, Any]]:
    """Return the failures that one backend alone has: another one passes the case, and no other fails it."""
    failed = verdicts["outcome"].isin(FAILING)
    by_case = verdicts.assign(failed=failed, passed=verdicts["outcome"] == PASS).groupby("case_id")
    # eager is what every backend is compared with, so its pass says nothing about another backend
    passed = verdicts[(verdicts["outcome"] == PASS) & (verdicts["backend"] != "eager")].groupby("case_id").size()
    one = by_case["failed"].sum().pipe(lambda n: set(n[n == 1].index)) & set(passed.index)
    chosen = verdicts[failed & verdicts["case_id"].isin(one)]
    rows = [
        {"backend": backend, "op": op, "outcome": outcome, "cases": sorted(group["case_id"])}
        for (backend, op, outcome), group in chosen.groupby(["backend", "op", "outcome"], sort=True)
    ]
    return sorted(rows, key=lambda row: (row["backend"], -len(row["cases"]), row["op"], row["outcome"]))


def first_line(message: str) -> str:
    """Return what stands for a message in a list: its first line that says something."""
    return next((line.strip() for line in message.splitlines() if line.strip()), "no reason given")


def message_pattern(message: str) -> str:
    """Return the message's first line without what differs from case to case: addresses, numbers, paths."""
    line = re.sub(r"0x[0-9a-fA-F]+", "0x…", first_line(message))
    line = re.sub(r"(/[\w.+-]+){2,}", "…", line)
    line = re.sub(r"(?<!\w)[-+]?(\d+\.?\d*([eE][-+]?\d+)?|\binf\b|\bnan\b)(?![\w])", "N", line)
    return re.sub(r"\[N?(, N)*\]|\(N(, N)*,?\)", "[N]", line)

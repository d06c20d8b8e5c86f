"""The HTML page: one file, no network. Passing cases are counted, failing ones listed, so that the page stays small."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import Counter
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from torchstone.conformance.escape import printable_lines
from torchstone.reports.fuzzing import by_op
from torchstone.reports.outcomes import FAILING, LOOKS, ORDER, RANK, SYMBOLS

MAX_CASES = 6000
MAX_GROUPS = 200
MAX_REASONS = 100
MAX_TEXT = 2000
PER_CELL = 50


def render_html(report: dict[str, Any], links: dict[str, str]) -> str:
    """Return the page. ``links`` names the sibling files (label to relative path) that hold the whole of the data."""
    env = jinja2.Environment(
        loader=jinja2.PackageLoader("torchstone.reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: (
            printable_lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value
        ),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters["n"] = lambda value: f"{value:,}"
    env.filters["percent"] = percent
    env.filters["duration"] = duration
    script = _asset("report.js")
    return env.get_template("report.html.j2").render(
        report=report,
        links=links,
        looks=LOOKS,
        symbols=SYMBOLS,
        failing=FAILING,
        groups=group_failures(report["cases"]),
        by_op=by_op,
        findings=failure_summary(report["cases"]),
        max_groups=MAX_GROUPS,
        max_reasons=MAX_REASONS,
        data=payload(report),
        style=Markup(palette() + _asset("report.css")),
        script=Markup(script),
        # only this very script may run: text that slipped into the page as markup could not
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def payload(report: dict[str, Any]) -> dict[str, Any]:
    """Return what the page's script draws the matrix from: names as indices, every distinct text once."""
    backends = {row["backend"]: i for i, row in enumerate(report["backends"])}
    ops = {op: i for i, op in enumerate(report["ops"])}
    dtypes = {dtype: i for i, dtype in enumerate(report["dtypes"])}
    texts: dict[str, int] = {}

    def text(value: str) -> int:
        return texts.setdefault(printable_lines(value), len(texts))

    def place(row: dict[str, Any]) -> list[int]:
        return [backends[row["backend"]], ops[row["op"]], dtypes[row["dtype"]]]

    matrix = [
        place(cell) + [part for outcome, count in cell["outcomes"].items() for part in (RANK[outcome], count)]
        for cell in report["matrix"]
    ]
    shown, hidden = _within_budget(report["cases"])
    cases = []
    for case in shown:
        outcome = [RANK[case["outcome"]], text(case["stage"]), text(case["kind"])]
        evidence = json.dumps(case["evidence"], indent=1, ensure_ascii=False) if case["evidence"] else ""
        words = [case["case_id"], _cut(case["message"]), _cut(evidence), case["replay"]]
        cases.append(place(case) + outcome + [text(word) for word in words])
    reasons = [
        [backends[row["backend"]], ops[op], RANK[outcome], text(_cut(row["reason"], 300)), count]
        for outcome in ("unsupported", "fallback")
        for row in report[outcome]
        for op, count in row["ops"].items()
    ]
    return {
        "outcomes": ORDER,
        "symbols": [SYMBOLS[outcome] for outcome in ORDER],
        "failing": [RANK[outcome] for outcome in FAILING],
        "backends": [*map(printable_lines, backends)],
        "ops": [*map(printable_lines, ops)],
        "dtypes": [*map(printable_lines, dtypes)],
        "matrix": matrix,
        "cases": cases,
        "hidden": [[*place(dict(zip(("backend", "op", "dtype"), key, strict=True))), n] for key, n in hidden.items()],
        "reasons": reasons,
        "untested": [[ops[row["op"]], text(_cut(row["reason"], 300)), row["cases"]] for row in report["untested"]],
        "texts": list(texts),
    }


def _within_budget(cases: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], Counter[tuple[str, str, str]]]:
    """Return the cases the page lists, as many in each cell as fit, and how many each cell hides."""
    limit = PER_CELL
    while True:
        seen: Counter[tuple[str, str, str]] = Counter()
        shown, hidden = [], Counter[tuple[str, str, str]]()
        for case in cases:
            key = (case["backend"], case["op"], case["dtype"])
            seen[key] += 1
            if seen[key] <= limit:
                shown.append(case)
            else:
                hidden[key] += 1
        if len(shown) <= MAX_CASES or limit == 1:
            return shown, hidden
        limit //= 2


def failure_summary(cases: list[dict[str, Any]]) -> str:
    """Return the sentence that says how many of the listed cases fail, and how many only need looking at."""
    failed = sum(case["outcome"] in FAILING for case in cases)
    doubtful = len(cases) - failed
    sentence = f"{failed:,} case{'s' if failed != 1 else ''} failed." if failed else "No case failed."
    if doubtful:
        verb = "is" if doubtful == 1 else "are"
        sentence += f" {doubtful:,} more {verb} no backend's failure: ill-conditioned, or trouble of the harness."
    return sentence


def group_failures(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Group listed cases by what went wrong, the largest group of the worst outcome first."""
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for case in cases:
        key = (case["backend"], case["outcome"], case["kind"], case["stage"], case["signature"])
        found.setdefault(key, []).append(case)
    rows = []
    for (backend, outcome, kind, stage, signature), members in found.items():
        first = members[0]
        rows.append(
            {
                "backend": backend,
                "outcome": outcome,
                "kind": kind,
                "stage": stage,
                "signature": _cut(signature, 300),
                "cases": len(members),
                "ops": sorted({member["op"] for member in members}),
                "case_id": first["case_id"],
                "message": _cut(first["message"]),
                "replay": first["replay"],
            }
        )
    return sorted(rows, key=lambda r: (RANK[r["outcome"]], -r["cases"], r["backend"], r["signature"], r["stage"]))


def palette() -> str:
    """Return the style rules that give each outcome its colours, from the one table of outcomes."""

    def rules(theme: str) -> str:
        lines = []
        for look in LOOKS:
            for name, colour in zip(("bg", "fg", "bar"), getattr(look, theme), strict=True):
                lines.append(f"--{look.outcome}-{name}:{colour};")
        return "".join(lines)

    classes = "".join(
        f".o-{x.outcome}{{background-color:var(--{x.outcome}-bg);color:var(--{x.outcome}-fg);"
        f"--bar:var(--{x.outcome}-bar)}}\n"
        for x in LOOKS
    )
    return (
        f":root{{{rules('light')}}}\n"
        f'@media(prefers-color-scheme:dark){{:root:not([data-theme="light"]){{{rules("dark")}}}}}\n'
        f':root[data-theme="dark"]{{{rules("dark")}}}\n{classes}'
    )


def percent(part: int, whole: int) -> str:
    """Return a share that never rounds up to 100 % nor down to 0 %."""
    if not whole or part in (0, whole):
        return "100 %" if whole and part else "0 %"
    return f"{min(max(100 * part / whole, 0.1), 99.9):.1f} %"


def duration(seconds: float) -> str:
    """Return seconds as a reader says them."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _cut(value: str, limit: int = MAX_TEXT) -> str:
    return value if len(value) <= limit else value[:limit] + " … (cut)"


def _asset(name: str) -> str:
    return (resources.files("torchstone.reports") / "templates" / name).read_text(encoding="utf-8")

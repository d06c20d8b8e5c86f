"""The Markdown summary: counts, stages, failures, reasons and the matrix, in tables that GitHub renders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torchstone.conformance.escape import markdown as text
from torchstone.conformance.escape import markdown_block as block
from torchstone.conformance.escape import markdown_code as code
from torchstone.reports.aggregate import first_line
from torchstone.reports.fuzzing import by_op
from torchstone.reports.html import duration, failure_summary, group_failures, percent
from torchstone.reports.outcomes import LOOKS, SYMBOLS, in_order, worst

MAX_GROUPS = 50
MAX_REASONS = 25
MAX_FINDINGS = 50


def render_markdown(report: dict[str, Any]) -> str:
    """Return the report as Markdown. Text from a backend is quoted so that it cannot become markup."""
    parts = [
        "# torchstone report",
        _runs(report["runs"]),
        "## Summary",
        _summary(report["backends"]),
        "## Stages",
        "Cases that reach each stage; in brackets, what stops there.",
        _stages(report["backends"]),
        *_findings(report["cases"]),
        *_reasons("Unsupported, by reason", report["unsupported"]),
        *_reasons("Fallbacks, by reason", report["fallback"]),
        *_untested(report["untested"]),
        *_fuzzing(report["fuzzing"]),
        *_changes(report["against"]),
        *_matrix(report),
        *_provenance(report["runs"]),
    ]
    return "\n\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    rule = ["---:" if i in right else "---" for i in range(len(head))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))


def _runs(runs: list[dict[str, Any]]) -> str:
    lines = []
    for run in runs:
        state = "" if run["state"] == "finished" else f" **({text(run['state'])}: results are incomplete)**"
        where = f"{text(run['device'])}, {text(run['started'])}"
        lines.append(f"- run {run['run']} on {where}{state}: {text(run['scope'])}")
    return "\n".join(lines)


def _counts(outcomes: dict[str, int], sep: str = ", ") -> str:
    return sep.join(f"{SYMBOLS[outcome]} {count:,} {outcome}" for outcome, count in in_order(outcomes).items())


def _summary(backends: list[dict[str, Any]]) -> str:
    rows = []
    for row in backends:
        tested = row["cases"] - row["outcomes"].get("untested", 0)
        passed = row["outcomes"].get("pass", 0)
        rows.append(
            (
                text(row["backend"]),
                f"{passed:,} ({percent(passed, tested)})",
                f"{row['unproven']:,}",
                f"{row['outcomes'].get('fallback', 0):,}",
                f"{row['failing']:,}",
                f"{row['outcomes'].get('unsupported', 0):,}",
                f"{row['outcomes'].get('untested', 0):,}",
                f"{row['ops']['complete']:,} of {row['ops']['total']:,}",
                duration(row["seconds"]),
                _counts(row["outcomes"]),
            )
        )
    head = (
        "backend", "pass", "of these unproven", "fallback", "failing", "unsupported", "untested",
        "ops passing every sample", "time", "all outcomes",
    )  # fmt: skip
    notes = [
        f"In {row['eager_further']:,} cases eager is further from the float64 result than {text(row['backend'])}."
        for row in backends
        if row["eager_further"]
    ]
    notes += [
        f"Nothing is known of {row['ops']['untested']:,} ops on {text(row['backend'])}: every sample is untested. "
        + _some(row["untested_ops"])
        for row in backends
        if row["untested_ops"]
    ]
    return "\n\n".join([_table(head, rows, right=(1, 2, 3, 4, 5, 6, 7, 8)), *notes])


def _some(ops: list[str], most: int = 20) -> str:
    return ", ".join(map(code, ops[:most])) + (f" and {len(ops) - most:,} more" if len(ops) > most else "")


def _stages(backends: list[dict[str, Any]]) -> str:
    head = ("backend", *(stage["stage"] for stage in backends[0]["stages"]), "pass")
    rows = []
    for row in backends:
        stages = [
            f"{stage['reached']:,}" + (f" ({_counts(stage['stopped'])})" if stage["stopped"] else "")
            for stage in row["stages"]
        ]
        rows.append((text(row["backend"]), *stages, f"{row['outcomes'].get('pass', 0):,}"))
    return _table(head, rows)


def _findings(cases: list[dict[str, Any]]) -> list[str]:
    found = group_failures(cases)
    parts = [f"## Findings\n\n{failure_summary(cases)}" + (f" {len(found):,} distinct." if found else "")]
    for group in found[:MAX_GROUPS]:
        kind = f" ({text(group['kind'])})" if group["kind"] else ""
        what = f"{SYMBOLS[group['outcome']]} {group['outcome']}{kind}"
        ops = ", ".join(code(op) for op in group["ops"][:8]) + (" …" if len(group["ops"]) > 8 else "")
        parts.append(f"### {what} on {text(group['backend'])} at {group['stage']}: {group['cases']:,} cases")
        again = block(group["replay"], len(group["replay"]))  # a command that is cut is another one
        parts.append(f"{ops}\n\n{block(group['message'] or '(no message)')}\n\nReplay one:\n\n{again}")
    if len(found) > MAX_GROUPS:
        parts.append(f"The {MAX_GROUPS} largest are shown; report.json lists every case.")
    return parts


def _reasons(title: str, rows: list[dict[str, Any]]) -> list[str]:
    if not rows:
        return []
    parts = [f"## {title}"]
    for backend in sorted({row["backend"] for row in rows}):
        found = [row for row in rows if row["backend"] == backend]
        head = ("reason", "ops", "ops held by it alone", "cases")
        body = [
            (text(row["reason"]), f"{len(row['ops']):,}", f"{len(row['alone']):,}", f"{row['cases']:,}")
            for row in found[:MAX_REASONS]
        ]
        parts += [f"### {text(backend)}", _table(head, body, right=(1, 2, 3))]
        if len(found) > MAX_REASONS:
            parts.append(f"The first {MAX_REASONS} of {len(found):,}; report.json has all.")
    return parts


def _untested(rows: list[dict[str, Any]]) -> list[str]:
    if not rows:
        return []
    body = [(code(row["op"]), text(row["reason"]), text(", ".join(row["dtypes"])), f"{row['cases']:,}") for row in rows]
    note = "What the suite could not ask, of any backend: a gap of the suite, not of a backend."
    return ["## Untested", note, _table(("op", "reason", "dtypes", "entries"), body, right=(3,))]


def _changes(against: dict[str, Any] | None) -> list[str]:
    if against is None:
        return []
    since = ", ".join(run["run"] for run in against["runs"])
    worse, better = len(against["regressions"]), len(against["fixes"])
    counts = f"{worse:,} regressions, {better:,} fixes, {against['unchanged']:,} cases unchanged."
    parts = [f"## Changes since {since}", counts]
    if against["transitions"]:
        rows = [(row["before"], row["after"], f"{row['cases']:,}") for row in against["transitions"]]
        parts.append(_table(("before", "after", "cases"), rows, right=(2,)))
    for title in ("regressions", "fixes"):
        rows = [
            (text(row["backend"]), code(row["case_id"]), row["before"], row["after"], text(first_line(row["message"])))
            for row in against[title][:100]
        ]
        if rows:
            parts += [f"### {title.capitalize()}", _table(("backend", "case", "before", "after", "message"), rows)]
        if len(against[title]) > 100:
            parts.append(f"The first 100 of {len(against[title]):,}; report.json has all.")
    return parts


def _fuzzing(rows: list[dict[str, Any]]) -> list[str]:
    """What fuzzing campaigns tried, and what they found under the op that it is of."""
    if not rows:
        return []
    head = ("backend", "seed", "programs", "time", "valid", "ops reached", "findings", "outcomes")
    body = [
        (
            text(row["backend"]), f"{row['seed']}", f"{row['programs']:,}", duration(row["seconds"]),
            "" if row["valid"] is None else f"{row['valid']:.0%}", f"{len(row['ops']):,}", f"{len(row['findings']):,}",
            _counts(row["outcomes"]) + ("" if row["state"] == "finished" else f" ({row['state']})"),
        )
        for row in rows
    ]  # fmt: skip
    parts = ["## Fuzzing", "Random programs, beside the cases above.", _table(head, body, right=(1, 2, 3, 4, 5, 6))]
    for row in rows:
        found = [
            (code(op), _linked(finding), f"{finding['programs']:,}", text(finding["cause"]),
             text(first_line(finding["message"])))
            for op, findings in by_op(row)
            for finding in findings[:MAX_FINDINGS]
        ]  # fmt: skip
        if found:
            parts.append(f"### Findings on {text(row['backend'])} with seed {row['seed']}")
            parts.append(_table(("op", "finding", "programs", "cause", "message"), found, right=(2,)))
    return parts


def _linked(finding: dict[str, Any]) -> str:
    return f"[{text(finding['name'])}]({finding['link']})" if finding["link"] else text(finding["name"])


def _matrix(report: dict[str, Any]) -> list[str]:
    """One table a backend: ops down, dtypes across. A cell is its worst outcome's symbol and its passing share."""
    cells = {(c["backend"], c["op"], c["dtype"]): c["outcomes"] for c in report["matrix"]}
    legend = ", ".join(f"{look.symbol} {look.outcome}" for look in reversed(LOOKS))
    parts = ["## Matrix", f"Each cell: its worst outcome, and how many of its cases pass. {legend}; empty: no sample."]
    for row in report["backends"]:
        backend = row["backend"]
        dtypes = [d for d in report["dtypes"] if any((backend, op, d) in cells for op in report["ops"])]
        ops = [op for op in report["ops"] if any((backend, op, d) in cells for d in dtypes)]
        body = [(code(op), *(_cell(cells.get((backend, op, dtype))) for dtype in dtypes)) for op in ops]
        table = _table(("op", *map(text, dtypes)), body)
        parts.append(f"<details><summary>{text(backend)}: {len(ops):,} ops</summary>\n\n{table}\n\n</details>")
    return parts


def _cell(outcomes: dict[str, int] | None) -> str:
    if outcomes is None:
        return ""
    total, passed = sum(outcomes.values()), outcomes.get("pass", 0)
    share = f"{passed:,}/{total:,}" if passed and len(outcomes) > 1 else f"{total:,}"
    return f"{SYMBOLS[worst(outcomes)]} {share}"


def _provenance(runs: list[dict[str, Any]]) -> list[str]:
    parts = ["## Provenance"]
    for run in runs:
        rows = [("state", run["state"]), ("command", run["command"]), ("started", run["started"])]
        rows += [("finished", run["finished"] or "not finished"), ("device", run["device"]), ("seed", run["seed"])]
        rows += sorted(run["versions"].items())
        parts += [f"### run {run['run']}", _table(("", ""), [(text(name), text(value)) for name, value in rows])]
    return parts

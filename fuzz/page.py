"""What a campaign on one op says at its end: a page of Markdown. What the op takes, and what was wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from torchstone.conformance.custom import registration, source
from torchstone.conformance.custom.checks import Complaint
from torchstone.conformance.custom.registration import CustomOp
from torchstone.conformance.escape import (
    markdown,
    markdown_block,
    markdown_code,
    one_line,
    printable_lines,
    shell_command,
)
from torchstone.fuzz.alone import OpReport
from torchstone.fuzz.campaign import CampaignOptions, Tally
from torchstone.fuzz.causes import needs
from torchstone.fuzz.findings import FuzzFinding
from torchstone.reducers.write import CASE

MOST_REASONS = 6
"""Reasons of a refusal that are shown."""
SHOWN = 8
"""Elements of a tensor whose numbers are shown."""


def page(report: OpReport, plan: CampaignOptions) -> str:
    """The page of an op on a backend."""
    lines = [
        f"# {markdown(report.op)} on {markdown(plan.backend)}",
        "",
        *_summary(report),
        "",
        "## What it takes",
        "",
        *_takes(report),
    ]
    lines += ["", "## What was wrong", "", *_wrong(report)]
    lines += ["", "## What was asked", "", *_asked(report)]
    return printable_lines("\n".join(lines)) + "\n"


def _summary(report: OpReport) -> Iterator[str]:
    tally = report.tally
    outcomes = ", ".join(f"{name} {count}" for name, count in tally.outcomes.most_common())
    yield f"{tally.tried} cases in {report.seconds:.0f} s: {outcomes or 'nothing tried'}."
    broken = sum(complaint.blame for complaint in report.complaints)
    if isinstance(report.among, Tally):
        yield f"{report.among.tried} programs that call it among others in {report.among.seconds:.0f} s."
    yield f"Wrong on the backend: {len(report.findings)}. Promises that the op itself breaks: {broken}."


def _takes(report: OpReport) -> Iterator[str]:
    if report.source == source.SOURCE:
        op = source.op_of(report.op)
        yield markdown_code(op.schema or op.target)
        yield ""
        yield _origin(op)
        yield ""
    yield from _table(
        ("dtype", "samples", "ranks of its tensors", "dtypes of its tensors"),
        [
            (dtype, facts["samples"], _span(facts["ranks"]), ", ".join(facts["inputs"]))
            for dtype, facts in report.dtypes.items()
        ],
    )
    reasons: dict[str, list[str]] = {}
    for dtype, why in report.refused.items():
        reasons.setdefault(why, []).append(dtype)
    if reasons:
        yield ""
        yield "Eager refuses:"
        yield ""
        for why, dtypes in sorted(reasons.items(), key=lambda item: -len(item[1]))[:MOST_REASONS]:
            yield f"- {', '.join(dtypes)}: {markdown(why)}"


def _origin(op: CustomOp) -> str:
    if op.sample is not None:
        return "Arguments come from its sample function."
    calls = len(source.domain_of(op).calls)
    return (
        f"It has no sample function: {calls} calls were learned, and are kept in {source.domain_file(op)} to be edited."
    )


def _span(ranks: list[int]) -> str:
    if ranks == list(range(ranks[0], ranks[-1] + 1)) and len(ranks) > 2:
        return f"{ranks[0]} to {ranks[-1]}"
    return ", ".join(map(str, ranks))


def _wrong(report: OpReport) -> Iterator[str]:
    findings = report.findings
    if not findings and not report.complaints:
        yield "Nothing was found."
    for number, finding in enumerate(findings, 1):
        yield from _finding(number, finding)
    blamed = [complaint for complaint in report.complaints if complaint.blame]
    noted = [complaint for complaint in report.complaints if not complaint.blame]
    if blamed:
        yield from ("### The op itself", "")
        yield from (_complaint(complaint) for complaint in blamed)
        yield ""
    if noted:
        yield from ("### Worth knowing", "")
        yield from (_complaint(complaint) for complaint in noted)


def _complaint(complaint: Complaint) -> str:
    return f"- {markdown(complaint.check)}: {markdown(complaint.message, 500)} ({markdown_code(complaint.case)})"


def _finding(number: int, finding: FuzzFinding) -> Iterator[str]:
    verdict = finding.reduction.verdict if finding.reduction else finding.verdict
    kind = f" ({markdown(verdict.kind)})" if verdict.kind else ""
    needed = ", ".join(sorted(needs(finding))) or "plain numbers"
    yield f"### {number}. {verdict.outcome}{kind}: {needed}"
    yield ""
    yield f"Verdict: {markdown(one_line(verdict.message))}"  # in front of it, nothing in it begins a line
    yield ""
    inputs = [f"{name}: {_tensor(tensor)}" for name, tensor in finding.best.inputs.items()]
    yield markdown_block("\n".join([*inputs, str(finding.best.program)]))
    yield ""
    state = "" if finding.reduction is None or finding.reduction.confirmed else ", not confirmed in a fresh worker"
    yield f"Seen {len(finding.seen)} times, first in {markdown_code(finding.seen[0])}{state}. Again:"
    yield ""
    words = ["torchstone", "replay", str(finding.folder and finding.folder / CASE)]
    words += ["--backend", finding.reduction.backend if finding.reduction else finding.verdict.backend]
    words += [word for spec in registration.modules() for word in ("--ops-from", spec)]
    yield f"    {shell_command(words)}"
    yield ""


def _tensor(tensor: Tensor) -> str:
    strides = "" if tensor.is_contiguous() else f" with strides {tuple(tensor.stride())}"
    numbers = f" = {tensor.tolist()}" if tensor.numel() <= SHOWN and not strides else ""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}{strides}{numbers}"


def _asked(report: OpReport) -> Iterator[str]:
    yield from _variants(report)
    if isinstance(report.among, Tally):
        outcomes = ", ".join(f"{name} {count}" for name, count in report.among.outcomes.most_common())
        yield from ("", f"Programs of {len(report.among.reached.ops)} ops: {outcomes or 'none'}.")
    elif report.among:
        yield from ("", f"It was not asked among others: {markdown(report.among)}.")


def _variants(report: OpReport) -> Iterator[str]:
    outcomes = sorted({name for counts in report.variants.values() for name in counts})
    rows = [
        (variant, *(counts.get(name, "") for name in outcomes)) for variant, counts in sorted(report.variants.items())
    ]
    yield from _table(("variant", *outcomes), rows)
    if report.unsupported:
        yield from ("", "The backend declines:", "")
        yield from (f"- {count}: {markdown(why)}" for why, count in report.unsupported.most_common(MOST_REASONS))


def _table(head: tuple[Any, ...], rows: list[tuple[Any, ...]]) -> Iterator[str]:
    yield "| " + " | ".join(map(str, head)) + " |"
    yield "| " + " | ".join("---" for _ in head) + " |"
    for row in rows:
        yield "| " + " | ".join(map(str, row)) + " |"

"""Ops asked alone, one after the other, each with a page at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torchstone.conformance.custom import registration, source
from torchstone.conformance.escape import file_name
from torchstone.conformance.sources import opinfo
from torchstone.fuzz.alone import OpReport, run_alone
from torchstone.fuzz.campaign import CampaignOptions, Tally
from torchstone.fuzz.page import page

PAGE = "page.md"


@dataclass(frozen=True)
class Asked:
    """What became of an op: the report, and the page of it, which is in a file too."""

    report: OpReport
    page: str
    path: Path


def ask_alone(plan: CampaignOptions, names: Sequence[str], progress: Callable[[Tally], None]) -> Iterator[Asked]:
    """Ask each op alone, an equal part of the time each, until one is interrupted.

    Several ops have a folder each in ``plan.out``. Raises InputError for what is no op of PyTorch's database nor of the
    user's, and as ``run_alone``.
    """
    asked = [_place(name) for name in names]
    for where, op in asked:
        out = plan.out if len(asked) == 1 else plan.out / file_name(op)
        its_own = replace(plan, seconds=plan.seconds / len(asked), out=out)
        report = run_alone(its_own, op, where, progress)
        text = page(report, its_own)
        (out / PAGE).write_text(text, encoding="utf-8")
        yield Asked(report, text, out / PAGE)
        if report.tally.interrupted:
            return


def _place(name: str) -> tuple[str, str]:
    """The source that has an op, and what it is called there."""
    if registration.is_custom(name):
        return source.SOURCE, registration.ask(name).name
    opinfo.info_of(name)
    return opinfo.SOURCE, name

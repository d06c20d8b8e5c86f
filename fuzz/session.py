"""Ops asked alone and then among others, one after the other, each with a page at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torchstone.conformance.custom import registration, source
from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.escape import file_name
from torchstone.conformance.sources import load
from torchstone.conformance.sources.names import ASKED_ALONE
from torchstone.fuzz.alone import OpReport, run_alone
from torchstone.fuzz.campaign import CampaignOptions, Tally, run_campaign
from torchstone.fuzz.generator.catalog import select_rules
from torchstone.fuzz.generator.families.samples import rule_of_custom
from torchstone.fuzz.generator.generate import NothingGenerated, nth_program
from torchstone.fuzz.generator.rules import OpRule
from torchstone.fuzz.page import page

PAGE, PROGRAMS = "page.md", "programs"
ALONE_SHARE = 0.7
"""Of the time, how much an op is asked alone, if there are cases for so long."""


@dataclass(frozen=True)
class Asked:
    """What became of an op: the report, and the page of it, which is in a file too."""

    report: OpReport
    page: str
    path: Path


def ask_alone(plan: CampaignOptions, names: Sequence[str], progress: Callable[[Tally], None]) -> Iterator[Asked]:
    """Ask each op alone and then in programs, an equal part of the time each, until one is interrupted.

    Several ops have a folder each in ``plan.out``. Raises InputError for what is neither in ``ASKED_ALONE`` nor the
    user's, and as ``run_alone``.
    """
    asked = [_place(name) for name in names]
    for where, op in asked:
        out = plan.out if len(asked) == 1 else plan.out / file_name(op)
        seconds = plan.seconds / len(asked)
        its_own = replace(plan, seconds=seconds, out=out)
        report = run_alone(replace(its_own, seconds=its_own.seconds * ALONE_SHARE), op, where, progress)
        if not report.tally.interrupted:
            report.among = _among_others(its_own, report, progress)
        text = page(report, its_own)
        (out / PAGE).write_text(text, encoding="utf-8")
        yield Asked(report, text, out / PAGE)
        if report.tally.interrupted:
            return


def _among_others(plan: CampaignOptions, report: OpReport, progress: Callable[[Tally], None]) -> Tally | str:
    """A campaign of programs that call the op among others, in the time that is left; or why there is none."""
    try:
        rules = rules_of(report)
    except InputError:
        return "the generator of programs does not know it"
    try:
        nth_program(plan.seed, 0, plan.pool, plan.max_ops, rules, plan.specials)
    except NothingGenerated as error:
        return f"no program could be made that calls it and runs on fake tensors: {error}"
    seconds = plan.seconds - report.seconds
    return run_campaign(replace(plan, seconds=max(seconds, 1.0), out=plan.out / PROGRAMS, must=rules), progress)


def rules_of(report: OpReport) -> tuple[OpRule, ...]:
    """The rules of the generator for the op of a report. Raises InputError where it has none."""
    if report.source != source.SOURCE:
        return select_rules([report.op])
    return (rule_of_custom(source.op_of(report.op)),)


def _place(name: str) -> tuple[str, str]:
    """The source that has an op, and what it is called there."""
    if registration.is_custom(name):
        return source.SOURCE, registration.ask(name).name
    names = {where: load(where).op_names() for where in ASKED_ALONE}
    for where, known in names.items():
        if name in known:
            return where, name
    raise UnknownName("op", name, [op for known in names.values() for op in known])

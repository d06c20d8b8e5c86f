"""The pytest plugin: the suite's cases, and a project's own (``@torchstone.case``), as pytest items.

pytest imports this module at every start of a project that has torchstone installed, so it imports nothing heavy: torch
and the harness come with the first item.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from types import FunctionType
from typing import Any

import pytest

from torchstone.conformance.pytest_plugin.keys import OUTCOME, SELECTION, SUITE
from torchstone.conformance.pytest_plugin.user_cases import ATTRIBUTE

_MARKS = (
    "torchstone(backend, source, op, dtype, variant): a case that torchstone runs through a backend.",
    "source_own: a case that this project declares with @torchstone.case.",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("torchstone", "PyTorch compilers on trial")

    def several(name: str, help: str) -> None:
        group.addoption(f"--torchstone-{name}", action="append", default=[], metavar=name.upper(), help=help)

    several("backend", "Backend to try: collects the suite, and runs own cases on it; repeatable.")
    several("source", "Where cases come from: opinfo (default), modules, models, errors, or own: no suite; repeatable.")
    several("op", "Op or shell pattern; repeatable (default: all).")
    several("dtype", "Dtype, or all; repeatable (default: float32, own cases: what they declare).")
    several("variant", "How a case is asked, as for `torchstone run`, or all; repeatable (default: default).")
    several("expect", "TOML file of expected outcomes, which are xfails; repeatable.")
    group.addoption("--torchstone-limit", type=int, metavar="N", help="First samples only, per op and dtype.")
    group.addoption("--torchstone-timeout", type=float, default=60.0, metavar="S", help="Seconds for a case (60).")
    group.addoption(
        "--torchstone-isolate",
        dest="torchstone_isolate",
        action="store_true",
        default=True,
        help="Run cases in a worker process (default): one that crashes fails alone.",
    )
    group.addoption(
        "--torchstone-in-process",
        dest="torchstone_isolate",
        action="store_false",
        help="Run cases in pytest's own process, for debuggers: a crash ends it, and there is no time limit.",
    )


def pytest_configure(config: pytest.Config) -> None:
    for line in _MARKS:
        config.addinivalue_line("markers", line)
    picked = _picked(config)
    given = [name for name in vars(config.option) if name.startswith("torchstone_") and name != "torchstone_isolate"]
    if not picked and not any(getattr(config.option, name) not in ([], None, 60.0) for name in given):
        return
    from torchstone.conformance.errors import InputError
    from torchstone.conformance.pytest_plugin.options import read_options

    try:
        chosen = read_options(config.option, picked, quick=hasattr(config, "workerinput"))
    except InputError as error:
        raise pytest.UsageError(f"torchstone: {error}") from error
    config.stash[SELECTION] = chosen
    for line in chosen.marks():
        config.addinivalue_line("markers", line)


def pytest_report_header(config: pytest.Config) -> str | None:
    chosen = config.stash.get(SELECTION, None)
    if chosen is None:
        return None
    where = "in worker processes" if chosen.isolate else "in this process"
    return f"torchstone: {', '.join(chosen.backends)} on {', '.join(chosen.sources) or 'own cases'}, {where}"


def _picked(config: pytest.Config) -> list[tuple[str, str]]:
    """Take the suite's node ids out of what pytest is to collect: they are not paths. Return (backend, case id)s."""
    picked: list[tuple[str, str]] = []
    for arg in list(config.args):
        path, *parts = arg.split("::", 2)
        if len(parts) == 2 and path.replace("\\", "/").rpartition("/")[2] == SUITE:
            picked.append((parts[0], parts[1]))
            config.args.remove(arg)
    return picked


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: Any, name: str, obj: object) -> list[pytest.Item] | None:
    declared = obj.__dict__.get(ATTRIBUTE) if isinstance(obj, FunctionType) else None
    if declared is None:
        return None
    from torchstone.conformance.pytest_plugin.items import own_items

    return own_items(collector, name, declared, collector.config.stash.get(SELECTION, None))


@pytest.hookimpl(tryfirst=True)  # before -k, -m and --deselect have their say
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = config.stash.get(SELECTION, None)
    if chosen is not None and chosen.suite:
        from torchstone.conformance.pytest_plugin.items import Suite

        suite = Suite.from_parent(session, name=SUITE, nodeid=SUITE, path=config.rootpath / SUITE)
        report = config.hook.pytest_make_collect_report(collector=suite)
        config.hook.pytest_collectreport(report=report)
        items.extend(report.result if report.passed else ())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    where = getattr(item, "torchstone_place", None)
    if where is not None and report.skipped and isinstance(report.longrepr, tuple):
        report.longrepr = (*where, report.longrepr[2])  # not the line in torchstone that skipped it
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: Any) -> tuple[str, str, str] | None:
    if report.failed and report.when == "call" and (OUTCOME, "harness-error") in report.user_properties:
        return "error", "E", "ERROR"  # nobody's failure
    return None


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.stash.get(SELECTION, None) is None:
        return
    counts: dict[str, Counter[str]] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            properties = dict(getattr(report, "user_properties", ()))
            if OUTCOME in properties and report.when == "call":
                counts.setdefault(properties["torchstone_backend"], Counter())[properties[OUTCOME]] += 1
    for backend, outcomes in counts.items():
        listed = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
        terminalreporter.write_line(f"torchstone: {backend}: {listed}")


def pytest_unconfigure(config: pytest.Config) -> None:
    import sys

    session = sys.modules.get("torchstone.conformance.pytest_plugin.session")
    if session is not None:
        session.close(config)

"""JUnit XML, as CI servers read it: a suite a backend, a test a case. The schema is the one that Jenkins publishes."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torchstone.conformance.escape import xml
from torchstone.conformance.files import replace_file

MAX_TEXT = 20_000
STATES = {"failed": "failure", "error": "error", "skipped": "skipped"}


@dataclass(frozen=True)
class JunitTest:
    """One test. ``state``: passed, failed, error (trouble of the harness) or skipped; the last three have a message."""

    suite: str
    classname: str
    name: str
    state: str = "passed"
    message: str = ""
    kind: str = ""
    detail: str = ""
    seconds: float = 0.0


def write_junit(
    path: Path, tests: Iterable[JunitTest], *, started: str, host: str = "", properties: Mapping[str, str]
) -> None:
    """Write the tests, suite by suite in the order they first come. Raises InputError when the file cannot be written.

    ``started`` is a time in ISO 8601; ``properties`` (versions, options) go with every suite.
    """
    suites: dict[str, ET.Element] = {}
    totals = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    counts: dict[str, dict[str, int]] = {}
    times: dict[str, float] = {}
    root = ET.Element("testsuites", name="torchstone")
    for test in tests:
        suite = suites.get(test.suite)
        if suite is None:
            suite = suites[test.suite] = ET.SubElement(root, "testsuite", name=_clean(test.suite))
            counts[test.suite], times[test.suite] = dict.fromkeys(totals, 0), 0.0
            known = ET.SubElement(suite, "properties")
            for name, value in properties.items():
                ET.SubElement(known, "property", name=_clean(name), value=_clean(value))
        _add(suite, test)
        times[test.suite] += test.seconds
        for key in ("tests", {"failed": "failures", "error": "errors"}.get(test.state, test.state)):
            if key in totals:
                counts[test.suite][key] += 1
                totals[key] += 1
    for number, (name, suite) in enumerate(suites.items()):
        for key, count in counts[name].items():
            suite.set(key, str(count))
        suite.set("time", f"{times[name]:.3f}")
        suite.set("timestamp", _clean(started[:19]))
        suite.set("hostname", _clean(host or "unknown"))
        suite.set("id", str(number))
    for key in ("tests", "failures", "errors"):
        root.set(key, str(totals[key]))
    root.set("time", f"{sum(times.values()):.3f}")
    ET.indent(root, space=" ")
    with replace_file(path) as file:
        ET.ElementTree(root).write(file, encoding="utf-8", xml_declaration=True)
        file.write(b"\n")


def _add(suite: ET.Element, test: JunitTest) -> None:
    case = ET.SubElement(
        suite, "testcase", name=_clean(test.name), classname=_clean(test.classname), time=f"{test.seconds:.3f}"
    )
    if test.state == "passed":
        return
    element = ET.SubElement(case, STATES[test.state], message=_clean(test.message))
    if test.kind and test.state != "skipped":
        element.set("type", _clean(test.kind))
    if test.detail:
        element.text = _clean(test.detail)


def _clean(text: str) -> str:
    """Return text that an XML parser takes; what is left out of it is counted."""
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}… and {len(text) - MAX_TEXT:,} characters more"
    return xml(text)

"""What came of the settings: kept from one call to the next, and told in a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from xml.etree import ElementTree


@dataclass
class Result:
    """``state``: passed, failed, died (no results at all), or absent (``reason`` says why it was not run)."""

    name: str
    state: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    reason: str = ""
    failures: list[tuple[str, str]] = field(default_factory=list)

    @property
    def well(self) -> bool:
        return self.state in ("passed", "absent")


def from_junit(name: str, path: Path, code: int, seconds: float) -> Result:
    """Read what pytest wrote; without it, or with none of the tests in it, the run died."""
    try:
        cases = list(ElementTree.parse(path).iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return Result(name, "died", seconds=seconds, reason=f"pytest ended with exit code {code} and no results")
    failures = []
    for case in cases:
        for bad in (*case.iter("failure"), *case.iter("error")):
            where = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
            failures.append((where, (bad.get("message") or "").splitlines()[0][:200] if bad.get("message") else ""))
    skipped = sum(case.find("skipped") is not None for case in cases)
    bad = len({where for where, _ in failures})
    state = "failed" if failures else "passed" if code == 0 else "died"
    reason = "" if state != "died" else f"pytest ended with exit code {code}"
    return Result(name, state, len(cases) - skipped - bad, bad, skipped, seconds, reason, failures)


class Journal:
    """Results in a file, of one tree and one selection: what another tree gave is forgotten."""

    def __init__(self, path: Path, key: str, *, fresh: bool = False) -> None:
        self.path, self.key = path, key
        self.results: dict[str, Result] = {}
        try:
            kept = json.loads(path.read_text())
        except (OSError, ValueError):
            return
        if kept.get("key") == key and not fresh:
            self.results = {row["name"]: Result(**row) for row in kept["results"]}

    def add(self, result: Result) -> None:
        self.results[result.name] = result
        self.path.parent.mkdir(parents=True, exist_ok=True)
        kept = {"key": self.key, "results": [asdict(each) for each in self.results.values()]}
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(kept, indent=1))
        new.replace(self.path)


def key_of(root: Path, files: Iterable[str], selection: Sequence[str]) -> str:
    """A digest of the tree as it is, changes that are not committed included, and of what is run of it."""
    digest = sha256(json.dumps(list(selection)).encode())
    for name in files:
        digest.update(name.encode() + b"\0" + ((root / name).read_bytes() if (root / name).is_file() else b""))
    return digest.hexdigest()[:16]


def table(results: Iterable[Result]) -> str:
    """Return the closing table, then what failed under which settings, and what could not be had and why."""
    rows = list(results)
    width = max([len("setting"), *(len(row.name) for row in rows)])
    lines = [f"{'setting':{width}}  {'state':7} {'passed':>7} {'failed':>7} {'skipped':>7} {'seconds':>8}"]
    for row in rows:
        numbers = f"{row.passed:7} {row.failed:7} {row.skipped:7} {row.seconds:8.0f}" if row.state != "absent" else ""
        lines.append(f"{row.name:{width}}  {row.state:7} {numbers}".rstrip())
    where: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for failure in row.failures:
            where.setdefault(tuple(failure), []).append(row.name)
    if where:
        lines += ["", "failures:"]
        lines += [f"  {test}  [{', '.join(names)}]\n    {message}" for (test, message), names in where.items()]
    if reasons := [f"  {row.name}: {row.reason}" for row in rows if row.reason]:
        lines += ["", "not run, or not to the end:", *reasons]
    return "\n".join(lines)

"""The suite under what other machines differ in: ``python tests/machines [SETTING …] [-- PYTEST OPTIONS]``.

Goes on where it was interrupted; a tree that has changed begins anew. Exit code 1 if a setting failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from facts import NONE
from places import PLACES, ROOT, Absent, Place, tree
from results import Journal, Result, from_junit, key_of, table
from table import PLAIN, SETTINGS, Setting, chosen

OUT = ROOT / ".torchstone" / "machines"
TEST_VARIABLES = {variable for setting in SETTINGS for variable in setting.environment} - {"HOME", "LC_ALL", "TZ"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the settings asked for, tell of each as it ends, and of all together."""
    own, _, selection = _split(list(sys.argv[1:] if argv is None else argv))
    parser = argparse.ArgumentParser(prog="python tests/machines", description=__doc__)
    parser.add_argument("settings", nargs="*", help="names, or beginnings of names: aten is aten-default, …  [all]")
    parser.add_argument("--jobs", "-j", default="2", help="processes of pytest")
    parser.add_argument("--again", action="store_true", help="forget what earlier calls found")
    parser.add_argument("--list", action="store_true", help="list the settings")
    asked = parser.parse_args(own)
    settings = chosen(asked.settings)
    if asked.list:
        print("\n".join(f"{s.name}\t{s.environment or s.place}" for s in settings).expandtabs(20))
        return 0
    journal = Journal(OUT / "results.json", key_of(ROOT, tree(), selection), fresh=asked.again)
    seen: dict[str, str] = {}
    results = []
    for setting in settings:
        kept = journal.results.get(setting.name)
        result = kept or _tried(setting, selection, asked.jobs, seen)
        if kept is None:
            journal.add(result)
        results.append(result)
        print(f"{setting.name}: {result.state}{' before' if kept else ''} {result.reason}".rstrip(), flush=True)
    print(f"\n{table(results)}\n\nthe output of each is in {OUT}")
    return 0 if all(result.well for result in results) else 1


def _split(words: list[str]) -> tuple[list[str], str, list[str]]:
    at = words.index("--") if "--" in words else len(words)
    return words[:at], "--", words[at + 1 :]


def environment(setting: Setting, place: Place) -> dict[str, str]:
    """This process's variables but for those that settings set, then the place's and the setting's own."""
    found = {name: value for name, value in os.environ.items() if name not in TEST_VARIABLES}
    found |= {"OMP_NUM_THREADS": "1", "PATH": f"{place.python.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    found |= place.environment
    for name, value in setting.environment.items():
        found.pop(name, None)
        if value is not None:
            found[name] = value
    return found


def facts(setting: Setting, place: Place, *names: str) -> dict[str, str]:
    """Return what a process finds under a setting; Absent where it does not even start."""
    command = [*place.before, str(place.python), str(place.folder / "tests/machines/facts.py"), *names]
    done = subprocess.run(
        command, cwd=place.folder, env=environment(setting, place), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Absent((done.stderr.strip().splitlines() or ["the interpreter does not start"])[-1])
    return json.loads(done.stdout.splitlines()[-1])


@cache
def plain_facts() -> dict[str, str]:
    return facts(PLAIN, PLACES["here"](Path()))


def without_effect(setting: Setting, place: Place) -> str:
    """Say why a setting changes nothing here; nothing if it does."""
    if not setting.fact:
        return ""
    plain, found = plain_facts()[setting.fact], facts(setting, place, setting.fact)[setting.fact]
    if found.startswith(NONE):
        return found.removeprefix(NONE)
    return f"{setting.fact} is {found} here without it too" if found == plain else ""


def _tried(setting: Setting, selection: Sequence[str], jobs: str, seen: dict[str, str]) -> Result:
    with tempfile.TemporaryDirectory(prefix="torchstone-machines-", ignore_cleanup_errors=True) as scratch:
        try:
            place = PLACES[setting.place](Path(scratch))
            if reason := without_effect(setting, place) or _as_another(setting, place, seen):
                raise Absent(reason)
        except Absent as reason:
            return Result(setting.name, "absent", reason=str(reason))
        return _run(setting, place, Path(scratch), selection, jobs)


def _as_another(setting: Setting, place: Place, seen: dict[str, str]) -> str:
    """Say which setting of this call was the same here: MKL takes one branch for several names on some processors."""
    if not setting.fact:
        return ""
    found = json.dumps(facts(setting, place, setting.fact))
    other = seen.setdefault(found, setting.name)
    return f"the same as {other} here: {found}" if other != setting.name else ""


def _run(setting: Setting, place: Place, scratch: Path, selection: Sequence[str], jobs: str) -> Result:
    OUT.mkdir(parents=True, exist_ok=True)
    junit, log = Path(tempfile.mkdtemp(dir=scratch)) / "junit.xml", OUT / f"{setting.name}.log"
    junit.parent.chmod(0o777)
    command = [*place.before, str(place.python), "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={junit}"]
    command += ["-q", "--color=no", *(["-n", jobs, "--dist", "worksteal"] if jobs != "0" else []), *selection]
    begin = time.monotonic()
    with subprocess.Popen(
        command, cwd=place.folder, env=environment(setting, place), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace",
    ) as process, log.open("w") as file:  # fmt: skip
        told = -1
        for line in process.stdout or ():
            file.write(line)
            if (found := re.search(r"\[ *(\d+)%\]$", line)) and int(found[1]) // 10 > told:
                told = int(found[1]) // 10
                print(f"{setting.name}: {found[1]} % after {time.monotonic() - begin:.0f} s", flush=True)
    return from_junit(setting.name, junit, process.returncode, time.monotonic() - begin)


if __name__ == "__main__":
    sys.exit(main())

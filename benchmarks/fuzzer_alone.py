"""What the fuzzer finds by itself: planted bugs, and mutants drawn from the compiler's source, so many seconds each.

A bug is found with the first failure that is reduced, whose script was run, and whose smallest program the same backend
without the bug passes; cases that fail without it, too, are kept beside the journal. Of a mutant, ``bisect`` is asked
for the stage as well, which is held against the file that was mutated. One that is not found may compute the same as
the compiler: ``--suite`` tries these on what the suite asks.
With ``--told`` the fuzzer is told so many ops that come to the bug, which it asks alone and then among others, as
``torchstone fuzz --alone --op`` does for a lowering that is new. With ``--corpus`` it begins with what campaigns on the
compiler without bugs kept. The journal makes it go on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from blame import EFFORT, FOLDER, some_lines, stages_of
from planted_bugs import all_calls, ops_of

from torchstone.conformance.backends import load
from torchstone.conformance.bisection import bisect
from torchstone.conformance.errors import InputError
from torchstone.conformance.execution.line_tracer import functions_of_files
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.mutants.syntactic import BACKEND_NAME, population
from torchstone.conformance.mutants.syntactic.application import LiveCode, NotApplicable, import_all
from torchstone.conformance.mutants.syntactic.mutation import Mutation
from torchstone.conformance.planted import BUGS
from torchstone.conformance.sources import opinfo
from torchstone.fuzz.campaign import CampaignOptions, Tally, run_campaign
from torchstone.fuzz.changes import Changes
from torchstone.fuzz.corpus import Corpus
from torchstone.fuzz.findings import FuzzFinding
from torchstone.fuzz.selftrial.line_map import line_map
from torchstone.fuzz.selftrial.syntactic import SyntacticTrial
from torchstone.fuzz.session import ask_alone

PLANTED = "torchstone.conformance.planted"


def planted(count: int, seed: int, half: str) -> list[str]:
    """Names of planted bugs: a longer draw begins with the shorter ones."""
    halves = {"shown": (False,), "held-out": (True,), "both": (False, True)}[half]
    names = sorted(bug.name for bug in BUGS.values() if bug.held_out in halves)
    random.Random(seed).shuffle(names)
    return names[:count]


@cache
def live() -> LiveCode:
    import_all()
    return LiveCode()


def drawn(count: int, seed: int) -> list[Mutation]:
    """Mutations of what ``linalg`` runs: a longer draw begins with the shorter ones."""
    texts, out = population.sources("linalg"), []
    for mutation in population.draw(texts, seed):
        try:
            live().swaps(mutation, texts[mutation.path])
        except NotApplicable:
            continue
        out.append(mutation)
        if len(out) >= count:
            break
    return out


def passes(finding: FuzzFinding, backend: str) -> bool:
    """Whether the backend without the bug is right."""
    return not run_case(finding.best, load(backend)).failed


def campaign(
    backend: str, without: str, plan: CampaignOptions, ops: list[str], false_alarms: Path
) -> tuple[dict[str, Any], FuzzFinding | None]:
    """What became of a bug: a row of the journal, and what found it. ``ops``: what is asked alone, if anything is.

    Cases that fail without the bug, too, are kept in the folder ``false_alarms``.
    """
    judged: dict[str, bool] = {}

    def found(tally: Tally) -> FuzzFinding | None:
        for finding in tally.findings.ranked():
            if finding.reduction is None or finding.script is None:
                continue
            if finding.name not in judged:
                judged[finding.name] = passes(finding, without)
                if not judged[finding.name]:
                    false_alarms.mkdir(parents=True, exist_ok=True)
                    finding.best.save(false_alarms / f"{finding.name}.safetensors")
            if judged[finding.name]:
                return finding
        return None

    def stop(tally: Tally) -> None:
        if found(tally):
            raise KeyboardInterrupt

    started = time.monotonic()
    if ops:
        reports = [asked.report for asked in ask_alone(plan, ops, stop)]
        tallies = [tally for one in reports for tally in (one.tally, one.among) if isinstance(tally, Tally)]
    else:
        tallies = [run_campaign(plan, stop)]
    finding = next(filter(None, map(found, tallies)), None)
    row: dict[str, Any] = {
        "found": bool(finding), "seconds": round(time.monotonic() - started, 1), "told": ops,
        "tried": sum(tally.tried for tally in tallies),
        "outcomes": dict(sum((tally.outcomes for tally in tallies), Counter[str]())),
        "false": sum(not right for right in judged.values()),
        "unsorted": [
            str(one.signature) for tally in tallies for one in tally.findings.ranked() if one.name not in judged
        ],
    }  # fmt: skip
    if finding and finding.reduction and finding.script:
        row |= {
            "signature": str(finding.signature), "calls": len(finding.best.program.calls),
            "variant": finding.best.variant,
            "program": str(finding.best.program).split("\n"), "script": finding.script.shows,
            "confirmed": finding.reduction.confirmed, "message": finding.reduction.verdict.message.split("\n")[0],
        }  # fmt: skip
    return row, finding


def of_planted(name: str, options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        backend = f"{PLANTED}:{name}"
        plan, ops = _plan(backend, folder, options), told_of_planted(name, options)
        row, _ = campaign(backend, f"{PLANTED}:none", plan, ops, _false_alarms(options))
        return row


def told_of_planted(name: str, options: argparse.Namespace) -> list[str]:
    """The ops of the database nearest to a planted bug."""
    if not options.told:
        return []
    near = ops_of(BUGS[name], all_calls(options.calls), 4 * options.told)
    return [op for op in near if op in opinfo.op_names()][: options.told]


def told_of_mutation(mutation: Mutation, most: int) -> list[str]:
    """Ops of the database whose cases run a mutation's line, those first that run the fewest others."""
    if not most:
        return []
    covering = line_map("linalg", FOLDER).covering(mutation.path, mutation.line, mutation.last)
    found = dict.fromkeys(name.split(":")[1] for name in covering if name.startswith(f"{opinfo.SOURCE}:"))
    return list(found)[:most]


def of_mutation(mutation: Mutation, options: argparse.Namespace) -> dict[str, Any]:
    text = population.sources("linalg")[mutation.path]
    before, after = mutation.diff(text)
    with tempfile.TemporaryDirectory() as folder:
        backend = f"{BACKEND_NAME}+{mutation.fingerprint}"
        ops = told_of_mutation(mutation, options.told)
        row, finding = campaign(backend, "linalg", _plan(backend, folder, options), ops, _false_alarms(options))
        row |= {"path": mutation.path, "line": mutation.line, "before": before, "after": after}
        if finding is not None:
            with live().mutated(mutation, text, lambda: None):
                blame = bisect(finding.best, "linalg", 60.0)
            row |= {"stage": blame.stage, "parts": list(blame.parts), "right": blame.stage in stages_of(mutation.path)}
        return row


def _false_alarms(options: argparse.Namespace) -> Path:
    return options.journal.with_name("false-alarms")


def _plan(backend: str, folder: str, options: argparse.Namespace) -> CampaignOptions:
    corpus = options.corpus and shutil.copytree(options.corpus, Path(folder) / "corpus")  # a campaign changes it
    return CampaignOptions(
        backend, options.seconds, options.seed, Path(folder) / "findings", jobs=options.jobs,
        specials=options.special_values, corpus=corpus,
    )  # fmt: skip


def changed_since(corpus: Path) -> set[str]:
    """Functions of the compiler that are not what they were when the corpus was last asked, or were not there.

    A campaign takes these for what is to be looked at, and asks for them in place of the one that is mutated.
    """
    changes = Changes()
    changes.known = Corpus(corpus).functions()
    changes.meet(functions_of_files(str(load("linalg").sources)))
    return changes.unlike_known() | set(changes.functions) - set(changes.known)


def judge_missed(missed: Iterable[Mutation]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Whether the suite finds what the fuzzer did not; None where nothing of it comes to the mutated line."""
    with SyntacticTrial(some_lines("linalg", 60), "linalg", EFFORT) as trial:
        for mutation in missed:
            result = trial.try_mutation(mutation)
            found = result.killed if result.reached else None
            yield mutation.fingerprint, {"suite": found, "suite_case": result.case, "reached": result.reached}


def read(journal: Path) -> dict[str, dict[str, Any]]:
    """The rows by the name of the bug. Of several of one name the later ones add to the earlier."""
    rows: dict[str, dict[str, Any]] = {}
    for line in journal.read_text().splitlines() if journal.exists() else ():
        row = json.loads(line)
        rows[row["name"]] = rows.get(row["name"], {}) | row
    return rows


def write(journal: Path, row: dict[str, Any]) -> None:
    with journal.open("a") as file:
        file.write(json.dumps(row) + "\n")


def summary(rows: dict[str, dict[str, Any]], hidden: bool) -> Iterator[str]:
    """Found of how many, with what; and what was not found, unless that is ``hidden``."""
    for kind in ("planted", "mutant"):
        asked = [row for row in rows.values() if row["kind"] == kind and row.get("suite") is not False]
        if not asked:
            continue
        found = [row for row in asked if row["found"]]
        false = sum(row["false"] for row in rows.values() if row["kind"] == kind)
        yield f"{kind}: {len(found)} of {len(asked)} found, {false} false alarms"
        if found:
            calls, seconds = (statistics.median(row[what] for row in found) for what in ("calls", "seconds"))
            shown = sum(row["script"] for row in found)
            yield f"  median: {calls:g} calls, {seconds:.0f} s; scripts that show the failure: {shown} of {len(found)}"
        told = [row for row in found if row.get("stage")]
        if told:
            yield f"  bisect names the right stage of {sum(row['right'] for row in told)} of {len(told)}"
        for row in asked:
            wrong = " wrong stage" if row.get("right") is False else ""
            if not row["found"] or wrong or not row.get("script", True):
                name = "(held out)" if hidden else row["name"]
                state = "found," if row["found"] else "not found,"
                where = f" {row['path']}:{row['line']}: {row['before']} -> {row['after']}" if "path" in row else ""
                yield f"  {name}: {state}{wrong} {row['tried']} programs{where}"
    equal = sum(row.get("suite") is False and not row["found"] for row in rows.values())
    if equal:
        yield f"mutants that the suite comes to and does not find either, not counted: {equal}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--planted", type=int, default=0, help="how many planted bugs")
    parser.add_argument("--half", choices=("shown", "held-out", "both"), default="shown")
    parser.add_argument("--mutants", type=int, default=0, help="how many mutants")
    parser.add_argument("--name", action="append", default=[], help="only this bug or fingerprint; repeatable")
    parser.add_argument("--seed", type=int, default=0, help="of the draw and of the programs")
    parser.add_argument("--seconds", type=float, default=120.0, help="for each bug")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--special-values", action="store_true", help="as of torchstone fuzz")
    parser.add_argument("--suite", action="store_true", help="try mutants that were not found on what the suite asks")
    parser.add_argument("--corpus", type=Path, help="what earlier campaigns on linalg kept, which each begins with")
    parser.add_argument("--told", type=int, default=0, help="how many ops the fuzzer is told [all are fuzzed]")
    parser.add_argument("--calls", type=Path, default=Path(".torchstone/planted-calls.json"), help="ATen ops by op")
    parser.add_argument("--journal", type=Path, default=Path(".torchstone/fuzzer-alone.jsonl"))
    options = parser.parse_args()
    if options.corpus and options.mutants and (changed := changed_since(options.corpus)):
        parser.error(
            f"{len(changed)} functions of the compiler have changed since {options.corpus} was asked; to ask it again: "
            f"torchstone fuzz --backend linalg --time 300s --corpus {options.corpus}"
        )
    options.journal.parent.mkdir(parents=True, exist_ok=True)
    rows = read(options.journal)
    bugs = planted(options.planted, options.seed, options.half)
    mutants = {one.fingerprint: one for one in drawn(options.mutants, options.seed)} if options.mutants else {}
    for name in (*bugs, *mutants):
        if (name in rows and "found" in rows[name]) or (options.name and name not in options.name):
            continue
        started = time.monotonic()
        try:
            row = of_mutation(mutants[name], options) if name in mutants else of_planted(name, options)
        except InputError as error:
            print(name, error, file=sys.stderr)
            continue
        rows[name] = {"name": name, "kind": "mutant" if name in mutants else "planted", **row}
        write(options.journal, rows[name])
        told = row.get("message", "") if options.half == "shown" else ""
        said = f"{row['found']} {row['seconds']} s, {row['tried']} programs, {time.monotonic() - started:.0f} s in all"
        print(name if options.half == "shown" else "(held out)", said, told[:100], file=sys.stderr, flush=True)
    if options.suite:
        left = [
            one
            for name, one in mutants.items()
            if name in rows and not rows[name]["found"] and "suite" not in rows[name]
        ]
        for name, found in judge_missed(left):
            rows[name] |= found
            write(options.journal, {"name": name, **found})
    asked = {name: row for name, row in rows.items() if name in {*bugs, *mutants}}
    print("\n".join(summary(asked, options.half != "shown")))


if __name__ == "__main__":
    main()

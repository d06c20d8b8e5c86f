"""Which planted bugs a run finds: by its plan; by float32, other dtypes, refused inputs; by every sample and variant.

Each bug (``torchstone.conformance.planted``) is tried on the ops that call the ATen ops it changes: those of their
names first, then those that show it, then those that call little else. It is found by a verdict that fails where eager
passes the same case, as a backend and under a dispatch mode that changes nothing. A bug in no op is tried on ops drawn
by its name.
Half of the bugs are held out: of these the tables give numbers, and no names.

A case of a bug in an op is only judged if the backend's bits are not eager's: its verdict could not fail otherwise.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import itertools
import json
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import torch

from torchstone.cli.selection_options import DEFAULT_EFFORT, PLANNED_SOURCES
from torchstone.compiler._torch.modes import TorchDispatchMode
from torchstone.compiler._torch.operators import base_name
from torchstone.conformance.backends import load as load_backend
from torchstone.conformance.execution.repeatability import observe
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.undefined_behavior import undefined_behavior
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.equality import same_bits
from torchstone.conformance.oracle.finding import Observed
from torchstone.conformance.oracle.pytree import flatten
from torchstone.conformance.planted import BUGS, PlantedBackend, PlantedBug
from torchstone.conformance.planted import load as load_bug
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.selection.plan import SHARES, plan_cases
from torchstone.conformance.sources import Source, iterate, load_all
from torchstone.conformance.sources import load as load_source
from torchstone.conformance.sources.maker import CaseMaker
from torchstone.conformance.variants.apply import apply
from torchstone.conformance.variants.forked import answers
from torchstone.conformance.variants.registry import DEFAULT, VARIANTS, is_run_as_it_is

COMPUTED = [name for name in PLANNED_SOURCES if name not in ("errors", "programs")]
"""The sources whose ops a bug is tried on."""

LIMIT = 4
SAMPLES = 64
"""Samples of an op that are looked at for the ATen ops they call."""
FIRST, LOOKED_AT = 2, 80
"""Samples of each dtype, and ops, that are looked at for whether they show a bug."""
NEAREST = 40
"""Programs that are asked in variants: those that call most of the ops of a bug."""
DTYPES = ("float32", "bfloat16", "complex64", "int64", "uint8")
"""The dtypes of variants; the stage ``all`` takes the first one that an op has."""

DEFAULT_STAGES = ("float32", "dtypes", "errors")
STAGES = ("plan", *DEFAULT_STAGES, "all", "all-dtypes", "programs")


Calls: TypeAlias = dict[str, dict[str, list[str]]]
"""ATen ops by database op, ``forward`` and ``backward``."""


class RecordedOps(TorchDispatchMode):
    def __init__(self, seen: set[str]) -> None:
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen |= {base_name(func), base_name(func).rstrip("_")}
        return func(*args, **(kwargs or {}))


def op_names() -> list[str]:
    """The ops of the sources whose cases have to be computed, each once."""
    return list(dict.fromkeys(op for name in COMPUTED for op in load_source(name).op_names()))


@functools.cache
def source_of(op: str) -> Source:
    return next(source for name in COMPUTED if op in (source := load_source(name)).op_names())


def calls_of(op: str) -> dict[str, list[str]]:
    """The ATen ops that the samples of an op call, and those that the gradients of the first ones call too."""
    seen: dict[str, set[str]] = {"forward": set(), "backward": set()}
    dtypes = source_of(op).dtypes_of(op)
    chosen = [dtype for dtype in ("float32", "int64", "complex64") if dtype in dtypes] or dtypes[:1]
    cases = [entry for entry in source_of(op).iterate([op], chosen, SAMPLES) if isinstance(entry, Case)]
    turned = [apply(case, "backward") for case in cases[:2]]
    for way, case in [*(("forward", c) for c in cases), *(("backward", c) for c in turned if isinstance(c, Case))]:
        with warnings.catch_warnings(), torch.no_grad(), RecordedOps(seen[way]):
            warnings.simplefilter("ignore")
            try:
                if not undefined_behavior(case):
                    case.program(*case.fresh_args())
            except Exception:  # eager refuses the sample
                continue
    return {way: sorted(names) for way, names in seen.items()}


def all_calls(path: Path) -> Calls:
    """The ATen ops by database op: from the file, or computed and written to it."""
    if not path.exists():
        found = {op: calls_of(op) for op in op_names()}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found))
    return json.loads(path.read_text())


def ops_of(bug: PlantedBug, calls: Calls, most: int) -> list[str]:
    """The ops that a bug is tried on: those first that are named like an ATen op of it, and those that show it, which a
    run that asks all would come to; then those that call least else."""
    if not bug.ops:
        return sorted(calls, key=lambda op: hashlib.sha256(f"{bug.name}:{op}".encode()).digest())[:most]
    wanted = {name.rstrip("_") for name in bug.ops} | set(bug.ops)
    touched = [op for op, ways in calls.items() if wanted & {*ways["forward"], *ways["backward"]}]

    def named(op: str) -> bool:
        words = {*op.split("."), op.replace(".", "_")}
        return any(name in words or name.strip("_") in words for name in wanted)

    def distance(op: str) -> tuple[bool, int, str]:
        return not wanted & set(calls[op]["forward"]), len(calls[op]["forward"]), op

    first = sorted(filter(named, touched), key=distance)
    others = sorted((op for op in touched if not named(op)), key=distance)
    if bug.rule is not None and len(first) < most < len(touched):
        backend, left = load_bug(bug.name), most - len(first)
        for cases_of_op in (first_samples, planned):  # of all plans only where no op shows it at once
            telling = (op for op in others[:LOOKED_AT] if shows(cases_of_op(op), backend))
            if found := list(itertools.islice(telling, left)):
                break
        first += found
    return [*first, *(op for op in others if op not in first)][:most]


def shows(cases: Iterable[Case], backend: PlantedBackend) -> bool:
    """Whether a backend's bits are not eager's in one of some cases. Asked in a fork, which some bugs end."""
    asked = [case for case in cases if case.source != "errors" and is_run_as_it_is(case)]
    return answers([lambda: any(may_fail(case, backend) for case in asked)], 1) == [True]


def first_samples(op: str) -> list[Case]:
    """The first samples of an op in a few dtypes."""
    return [case for dtype in few_dtypes(op) for case in samples(op, dtype, FIRST)]


@functools.lru_cache(maxsize=4000)
def samples(op: str, dtype: str, limit: int | None) -> tuple[Case, ...]:
    return tuple(entry for entry in source_of(op).iterate([op], [dtype], limit) if isinstance(entry, Case))


@functools.lru_cache(maxsize=4000)
def varied(op: str, dtype: str, index: int, variant: str) -> Case | None:
    """A sample in a variant; None where there is none, or where making it ended a process before."""
    name = ":".join((op, dtype, str(index), variant))
    if name in UNMADE:
        return None
    MAKING.write_text(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = apply(samples(op, dtype, None)[index], variant)
    MAKING.write_text("")
    return found if isinstance(found, Case) else None


def in_all_variants(op: str, dtypes: list[str], *, of_an_op: bool) -> Iterator[Case]:
    """Every sample in every variant: the first sample, the next few, then the others.

    Of a bug of an op in those variants first that are compiled and called as they are, which is soon done; of one that
    is in no op in the others, which are other ways to compile and to call.
    """
    for turn, as_it_is in itertools.product((slice(1), slice(1, LIMIT), slice(LIMIT, None)), (of_an_op, not of_an_op)):
        ways = [name for name in VARIANTS.rows if (VARIANTS.load(name).run is None) is as_it_is]
        for dtype in dtypes:
            for index, variant in itertools.product(range(len(samples(op, dtype, None)))[turn], ways):
                if (case := varied(op, dtype, index, variant)) is not None:
                    yield case


@functools.lru_cache(maxsize=1000)
def planned(op: str) -> tuple[Case, ...]:
    """What a run without options asks of an op of any source."""
    ops = {name: [op] for name in PLANNED_SOURCES if op in load_source(name).op_names()}
    return tuple(entry for entry in plan_maker().entries(ops) if isinstance(entry, Case))


@functools.cache
def plan_maker() -> CaseMaker:
    """Makes plans in children: some of what variants ask of eager ends the process."""
    sources = load_all(PLANNED_SOURCES)

    def plan(source: str, op: str) -> Iterator[Case | Untested]:
        return plan_cases({source: [op]}, sources, DEFAULT_EFFORT.budget, list(VARIANTS.rows))

    return CaseMaker(plan)


def near(cases: Iterable[Case], ops: list[str]) -> list[Case]:
    """Programs, those first that call most of some ops."""
    names = {op.rpartition(".")[2] for op in ops}
    return sorted(cases, key=lambda case: -len(names & {call.operator for call in case.program.calls}))


def few_dtypes(op: str) -> list[str]:
    known = source_of(op).dtypes_of(op)
    return [dtype for dtype in DTYPES if dtype in known] or known[:1]


def cases_of(stage: str, ops: list[str], *, of_an_op: bool = True) -> Iterator[Case]:
    """The cases of a stage, in a fixed order; ``of_an_op``: for a bug of an op."""
    if stage == "plan":
        for op in ops:
            yield from planned(op)
        yield from near((case for op in load_source("programs").op_names() for case in planned(op)), ops)
    elif stage == "float32":
        for op in ops:
            yield from samples(op, "float32", LIMIT) if "float32" in source_of(op).dtypes_of(op) else ()
    elif stage == "dtypes":
        for op in ops:
            for dtype in source_of(op).dtypes_of(op):
                yield from samples(op, dtype, LIMIT) if dtype != "float32" else ()
    elif stage == "errors":
        refused = [op for op in ops if op in set(load_source("errors").op_names())]
        yield from (entry for entry in iterate({"errors": refused}, None, LIMIT) if isinstance(entry, Case))
    elif stage in ("all", "all-dtypes"):
        chosen = slice(1) if stage == "all" else slice(1, None)
        turns = itertools.zip_longest(*(in_all_variants(op, few_dtypes(op)[chosen], of_an_op=of_an_op) for op in ops))
        yield from (case for turn in turns for case in turn if case is not None)
    else:
        for variant in sorted(SHARES["programs"].variants or {DEFAULT}):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = [apply(case, variant) for case in near(programs(), ops)[:NEAREST]]
            yield from (case for case in found if isinstance(case, Case))


@functools.cache
def programs() -> tuple[Case, ...]:
    """The programs of two steps, a few of each pair of classes."""
    source = load_source("programs")
    return tuple(entry for entry in source.iterate(None, ["float32"], 4 * LIMIT) if isinstance(entry, Case))


def may_fail(case: Case, backend: PlantedBackend) -> bool:
    """Whether the bug shows in a case: its bits differ from eager's in one of two calls, or one of them raises."""
    if backend.bug is None or backend.bug.rule is None or case.source == "errors" or not is_run_as_it_is(case):
        return True
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            if undefined_behavior(case):
                return False
            expected = observe(case.program, case.fresh_args())
        except Exception:  # eager refuses it: untested
            return False
        try:
            compiled = backend.compile(case.program, case.fresh_args())
            return not all(same_results(expected, observe(compiled, case.fresh_args())) for _ in range(2))
        except Exception:  # the backend refuses it
            return True


def same_results(left: Observed, right: Observed) -> bool:
    """Whether two runs left the same bits everywhere."""
    mine, others = (flatten((run.outputs, run.inputs)) for run in (left, right))
    return len(mine) == len(others) and all(
        same_bits(one, other) if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor) else one == other
        for one, other in zip(mine, others, strict=True)
    )


MARK = Path(f".torchstone/planted-{os.getpid()}.mark")
"""What a process that tries bugs is at: the bug, the stage and, while the backend runs, the case."""


MAKING, UNMADE = MARK.with_suffix(".making"), set[str]()
"""The sample and variant that a process makes a case of, and those that ended one."""


def _mark(bug: str, stage: str, case: str = "") -> None:
    MARK.parent.mkdir(exist_ok=True)
    MARK.write_text(json.dumps([bug, stage, case]))


def try_stage(bug: PlantedBug, stage: str, ops: list[str], seconds: float) -> dict[str, Any]:
    """What became of a bug in one stage: the first case that finds it, and how many cases were asked."""
    next(iter(cases_of(stage, [])), None)  # what all bugs are asked is made in nobody's time
    backend, started, tried = load_bug(bug.name), time.process_time(), 0
    row: dict[str, Any] = {"bug": bug.name, "stage": stage, "ops": len(ops), "found": "", "complete": True}
    for case in cases_of(stage, ops, of_an_op=bool(bug.ops)):
        if time.process_time() - started > seconds:
            row["complete"] = False
            break
        tried += 1
        _mark(bug.name, stage, case.id)
        if not may_fail(case, backend):
            _mark(bug.name, stage)
            continue
        verdict = run_case(case, backend)
        _mark(bug.name, stage)
        row["shown"] = row.get("shown", 0) + 1
        row.setdefault("outcomes", {}).setdefault(str(verdict.outcome), case.id)
        if verdict.failed and all(run_case(case, right).outcome in _RIGHT for right in right_backends()):
            row |= {"found": case.id, "outcome": str(verdict.outcome), "kind": verdict.kind}
            break
    return row | {"tried": tried, "seconds": round(time.process_time() - started, 2)}


_RIGHT = frozenset({Outcome.PASS, Outcome.FALLBACK})


@functools.cache
def right_backends() -> tuple[Any, ...]:
    return load_backend("eager"), load_bug("none")


def read(paths: Iterable[Path]) -> dict[str, dict[str, dict[str, Any]]]:
    """The journals: rows by bug and stage."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for path in paths:
        for line in path.read_text().splitlines() if path.exists() else ():
            row = json.loads(line)
            found.setdefault(row["bug"], {})[row["stage"]] = row
    return found


def measure(bugs: list[PlantedBug], stages: list[str], journal: Path, options: argparse.Namespace) -> None:
    """Try the bugs that the journal lacks, stage by stage: a later one where no earlier one found the bug."""
    calls = all_calls(options.calls)
    torch.set_num_threads(1)
    for stage in stages:
        known = read([journal])
        for bug in bugs:
            before = known.get(bug.name, {})
            earlier = DEFAULT_STAGES if stage in DEFAULT_STAGES else STAGES if stage != "plan" else ()
            if stage in before or any(before[each]["found"] for each in earlier if each in before):
                continue
            row = try_stage(bug, stage, ops_of(bug, calls, options.ops), options.seconds)
            with journal.open("a") as file:
                file.write(json.dumps(row) + "\n")
            name = "(held out)" if bug.held_out else bug.name
            print(name, stage, bool(row["found"]), row["seconds"], file=sys.stderr)


def survived(case_id: str) -> bool:
    """Whether a process comes through a case on eager, in a process of its own."""
    command = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import planted_bugs; "
    command += f"planted_bugs.run_eager({case_id!r})"
    return subprocess.run([sys.executable, "-c", command], capture_output=True, check=False).returncode == 0


def run_eager(case_id: str) -> None:
    source, op, dtype, index, *variant = case_id.split(":")
    case = load_source(source).case(op, dtype, int(index))
    run_case(apply(case, variant[0]) if variant else case, load_backend("eager"))


def supervise(arguments: list[str], journal: Path) -> None:
    """Measure in a process of its own; one that a bug ends is noted as a crash, and the next one goes on."""
    unmade: list[str] = []
    while True:
        child = subprocess.Popen([sys.executable, __file__, *arguments, "--alone", *unmade])
        if child.wait() >= 0:
            return
        making = Path(f".torchstone/planted-{child.pid}.making")
        if name := making.read_text():
            unmade += ["--unmade", name]
            continue
        mark = Path(f".torchstone/planted-{child.pid}.mark")
        bug, stage, case = json.loads(mark.read_text())
        row = {"bug": bug, "stage": stage, "ops": 0, "found": "", "complete": False, "tried": 0, "seconds": 0}
        if case and survived(case):
            row |= {"found": case, "outcome": "crash", "kind": ""}
        with journal.open("a") as file:
            file.write(json.dumps(row) + "\n")


def summary(bugs: Iterable[PlantedBug], rows: dict[str, dict[str, dict[str, Any]]]) -> Counter[str]:
    """How many bugs each stage finds, those of the stages before it among them."""
    counts: Counter[str] = Counter()
    for bug in bugs:
        by = {stage: bool(row["found"]) for stage, row in rows.get(bug.name, {}).items()}
        counts["bugs"] += 1
        default = any(by.get(stage) for stage in DEFAULT_STAGES)
        counts["plan"] += bool(by.get("plan"))
        counts["float32"] += bool(by.get("float32"))
        counts["default"] += default
        counts["all"] += any(by.get(stage) for stage in ("plan", *DEFAULT_STAGES, "all"))
        counts["either"] += default or any(by.values())
        complete = all(by.get(s) or (s in by and rows[bug.name][s]["complete"]) for s in STAGES)
        counts["not asked to the end"] += not default and not complete
    return counts


def show(rows: dict[str, dict[str, dict[str, Any]]]) -> None:
    """The table by class of the half that is looked at, the names of those not found, and the totals of the other."""
    columns = ("bugs", "plan", "float32", "default", "all", "either", "not asked to the end")
    print("| class | " + " | ".join(columns) + " |\n| --- |" + " ---: |" * len(columns))
    shown = [bug for bug in BUGS.values() if not bug.held_out]
    groups = dict.fromkeys(bug.group for bug in shown)

    def line(name: str, counts: Counter[str]) -> str:
        return f"| {name} | " + " | ".join(str(counts[column]) for column in columns) + " |"

    for group in groups:
        print(line(group, summary((bug for bug in shown if bug.group == group), rows)))
    print(line("all", summary(shown, rows)))
    print(line("held out", summary((bug for bug in BUGS.values() if bug.held_out), rows)))
    for stages, title in ((("plan",), "by the plan"), (DEFAULT_STAGES, "by first samples"), (STAGES, "at all")):
        by_bug = {bug.name: rows.get(bug.name, {}) for bug in shown}
        missed = [name for name, by in by_bug.items() if not any(by[s]["found"] for s in stages if s in by)]
        print(f"\nNot found {title}: {', '.join(missed)}")


def main() -> None:
    """Measure and journal, or print the tables of journals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--journal", type=Path, default=Path(".torchstone/planted.jsonl"))
    parser.add_argument("--calls", type=Path, default=Path(".torchstone/planted-calls.json"), help="ATen ops by op")
    parser.add_argument("--stage", action="append", choices=STAGES, help="repeatable [default: all]")
    parser.add_argument("--ops", type=int, default=10, help="ops a bug, at most [10]")
    parser.add_argument("--seconds", type=float, default=8.0, help="processor time a bug and stage, at most [8]")
    parser.add_argument("--half", choices=("shown", "held-out", "both"), default="both")
    parser.add_argument("--unmade", action="append", default=[], help="a sample and variant that ends the process")
    parser.add_argument("--alone", action="store_true", help="in this process, which a bug may end")
    parser.add_argument("--show", action="store_true", help="print the tables and measure nothing")
    options = parser.parse_args()
    if not options.show:
        halves = {"shown": (False,), "held-out": (True,), "both": (False, True)}[options.half]
        bugs = sorted((bug for bug in BUGS.values() if bug.held_out in halves), key=lambda bug: (bug.held_out, bug.ops))
        options.journal.parent.mkdir(parents=True, exist_ok=True)
        if not options.alone:
            supervise(sys.argv[1:], options.journal)
        else:
            MAKING.parent.mkdir(exist_ok=True)
            MAKING.write_text("")
            UNMADE.update(options.unmade)
            measure(bugs, options.stage or list(STAGES), options.journal, options)
            MARK.unlink(missing_ok=True)
            MAKING.unlink()
            return
    show(read([options.journal]))


if __name__ == "__main__":
    main()

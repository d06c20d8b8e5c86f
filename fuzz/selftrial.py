"""The self-trial: each planted bug against the suite and the fuzzer, as a user would run them.

What a bug touches decides what is tried: the samples of its ops in every dtype and in variants, what those ops have to
refuse, and random programs that call them. The first failure ends it, if the compiler without the bug passes
the same case; if that fails too, it is a false alarm.

A worker of a run does no more than ``trial`` with each case. So most bugs are tried right here, which spares the
seconds that workers take to start; those that may end the process, and every one that is asked for ``isolated``, have
workers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import multiprocessing
import signal
import time
import warnings
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from torchstone.conformance.backends import load as load_backend
from torchstone.conformance.errors import HarnessError, InputError, UnknownName
from torchstone.conformance.escape import markdown as escaped
from torchstone.conformance.escape import markdown_code
from torchstone.conformance.execution.run_case import compile_cases, try_case
from torchstone.conformance.execution.verdict import Outcome, Verdict
from torchstone.conformance.mutants import BUGS, NAME, Bug
from torchstone.conformance.program.case import Case
from torchstone.conformance.runner.pool import Pool
from torchstone.conformance.sources import iterate, load
from torchstone.conformance.variants.registry import DEFAULT, VARIANTS, apply, compiled_alone

SEED = 0
MAX_OPS = 3
MOST = 32  # cases compiled together


@dataclass(frozen=True)
class Found:
    """What became of a bug. ``case`` is the id of the first case that failed because of it, empty if none did.

    ``by`` is the source of that case; ``tried`` counts the cases up to it, ``alarms`` are those that the compiler fails
    without the bug, ``seconds`` is wall time.
    """

    bug: str
    group: str
    case: str = ""
    by: str = ""
    outcome: str = ""
    kind: str = ""
    message: str = ""
    tried: int = 0
    seconds: float = 0.0
    alarms: list[str] = field(default_factory=list)

    @property
    def detected(self) -> bool:
        return bool(self.case)


VALUES = ("extremes", "special", "shifted", "long", "small")
"""Variants in which numbers decide: asked in every dtype."""

DTYPES = ("mixed",)
"""Variants in which dtypes decide: asked of all samples, in every dtype."""

BROAD = ("backward", "optional", "constants", "outside", "square", "lazy")
"""Variants in which arguments decide: asked of all samples, of the first dtype."""

KINDS = ("float32", "int64", "complex64", "bool")
"""The dtypes of all other variants, which are about places and sizes."""

POOL = 24
"""Samples of the first dtype of an op that variants are asked of, at most, whatever the limit."""


def cases(bug: Bug, limit: int, programs: int, most: int) -> Iterator[Case]:
    """What is tried, in this order.

    The first ``limit`` samples of each op and dtype; what the ops have to refuse; ``most`` of the samples in variants;
    so many programs of the fuzzer.
    """
    ops = list(bug.ops)
    samples = []
    for entry in iterate({"opinfo": ops}, None, limit):
        if isinstance(entry, Case):
            samples.append(entry)
            yield entry
    refused = sorted(set(ops) & set(load("errors").op_names()))
    yield from (entry for entry in iterate({"errors": refused}, None, limit) if isinstance(entry, Case))
    yield from itertools.islice(_varied(ops, samples), most)
    if programs:
        yield from _programs(ops, programs)


def _varied(ops: Iterable[str], samples: Iterable[Case]) -> Iterator[Case]:
    """The samples in variants: the largest of each op and dtype in all that suit it, then the next one."""
    by_kind: dict[tuple[str, str], list[Case]] = {}
    for case in sorted(samples, key=lambda case: -sum(tensor.numel() for tensor in case.args)):
        by_kind.setdefault((case.op, case.dtype), []).append(case)
    first: dict[str, str] = {}
    for op, dtype in sorted(by_kind, key=lambda kind: kind[1] != "float32"):
        first.setdefault(op, dtype)
    others = [name for name in VARIANTS.rows if name not in (DEFAULT, *VALUES, *DTYPES, *BROAD)]
    for turn, row in enumerate(itertools.zip_longest(*by_kind.values())):
        given = [case for case in row if case is not None]
        yield from _asked(given, VALUES)
        if not turn:
            yield from _asked([case for of_kind in by_kind.values() for case in of_kind], DTYPES)
            for op, dtype in first.items():
                pool = (case for case in iterate({"opinfo": [op]}, [dtype], POOL) if isinstance(case, Case))
                yield from _asked(sorted(pool, key=lambda case: -sum(t.numel() for t in case.args)), BROAD)
        yield from _asked([case for case in given if case.dtype in KINDS or case.dtype == first[case.op]], others)


def _asked(samples: Iterable[Case], names: Iterable[str]) -> Iterator[Case]:
    """The samples in these variants, where that can be asked."""
    samples = list(samples)
    for name in names:
        for case in samples:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                varied = apply(case, name)
            if isinstance(varied, Case):
                yield varied


def _programs(ops: Iterable[str], count: int) -> Iterator[Case]:
    from torchstone.fuzz.generator.generate import nth
    from torchstone.fuzz.generator.rules import select

    known = []
    for op in ops:
        try:
            known += select([op])
        except UnknownName:  # the fuzzer has no rule for it
            continue
    for index in range(count if known else 0):
        yield nth(SEED, index, (), MAX_OPS, known, index % 2 == 1)


class SelfTrial:
    """Tries bugs one after the other; ``pool`` are the options of the workers for those that have some.

    A context manager: Python's threads and torch's are left as they were found.
    """

    def __init__(
        self, *, limit: int = 8, programs: int = 60, most: int = 500, isolated: bool = False, **pool: Any
    ) -> None:
        self.effort, self.isolated = (limit, programs, most), isolated
        self._pool = pool
        self._known: dict[str, Verdict] = {}

    def __enter__(self) -> SelfTrial:
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)  # as in a worker
        return self

    def __exit__(self, *exc: object) -> None:
        torch.set_num_threads(self._threads)

    def try_bug(self, bug: Bug) -> Found:
        """Return what became of a bug. HarnessError when workers cannot start."""
        started = time.perf_counter()
        tried: list[Case] = []
        first: Verdict | None = None
        results = self._results(f"{NAME}+{bug.name}", cases(bug, *self.effort), bug.harmful)
        with contextlib.closing(results):
            for case, verdict in results:
                tried.append(case)
                if _wrong(verdict) and self._right([case])[case.id].outcome is Outcome.PASS:
                    first = verdict
                    break
        alarms = [name for name, verdict in self._right(tried).items() if verdict.failed]
        found = Found(bug.name, bug.group, tried=len(tried), seconds=time.perf_counter() - started, alarms=alarms)
        if first is None:
            return found
        return dataclasses.replace(
            found,
            case=first.case_id,
            by=first.source,
            outcome=str(first.outcome),
            kind=first.kind,
            message=first.message.split("\n", 1)[0][:200],
        )

    def _right(self, tried: Iterable[Case]) -> dict[str, Verdict]:
        """The verdicts on the compiler without the bug, by case id."""
        by_id = {case.id: case for case in tried}
        new = (case for name, case in by_id.items() if name not in self._known)
        self._known |= {case.id: verdict for case, verdict in self._results(NAME, new)}
        return {name: self._known[name] for name in by_id}

    def _results(
        self, backend: str, tried: Iterable[Case], harmful: bool = False
    ) -> Generator[tuple[Case, Verdict], None, None]:
        if not (harmful or self.isolated):
            yield from _here(backend, tried)
            return
        with Pool(backend, jobs=1, **self._pool) as pool:
            for result in pool.results(tried):
                yield result.case, result.verdict


def _wrong(verdict: Verdict) -> bool:
    """Whether the harness says that something is not as it should be: the answer, or whose it is."""
    return verdict.failed or verdict.outcome is Outcome.FALLBACK


def _here(name: str, tried: Iterable[Case]) -> Iterator[tuple[Case, Verdict]]:
    """What a worker makes of the cases, in growing batches: the first failure ends most trials."""
    backend, tried = load_backend(name), iter(tried)
    size = 1
    while batch := list(itertools.islice(tried, size)):
        alone = any(map(compiled_alone, batch))
        compiled = [None] * len(batch) if alone else compile_cases(batch, backend)
        for case, one in zip(batch, compiled, strict=True):
            yield case, try_case(case, backend, one)
        size = min(2 * size, MOST)


def try_bugs(bugs: Iterable[Bug], jobs: int = 1, **options: Any) -> Generator[Found, None, None]:
    """Try bugs, ``jobs`` at a time in processes of their own, each as it is done. ``options`` are ``SelfTrial``'s.

    Raises HarnessError when a process ends before its bug is tried: one that is not known to be harmful ended it.
    """
    bugs = list(bugs)
    if jobs == 1 or len(bugs) < 2:
        with SelfTrial(**options) as trial:
            yield from map(trial.try_bug, bugs)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(bugs)), context, _start, (options,)) as pool:
        tasks = [pool.submit(_try_one, bug.name) for bug in bugs]
        try:
            for task in as_completed(tasks):
                yield task.result()
        except BrokenProcessPool as error:
            raise HarnessError("a bug ended the process that it was tried in; --isolated gives it workers") from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


_trial: SelfTrial


def _start(options: dict[str, Any]) -> None:
    global _trial
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _trial = SelfTrial(**options).__enter__()


def _try_one(name: str) -> Found:
    return _trial.try_bug(BUGS[name])


def read(path: Path) -> dict[str, Found]:
    """What a journal holds, by bug. InputError for a line that is none of its own."""
    if not path.exists():
        return {}
    found: dict[str, Found] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            one = Found(**json.loads(line))
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}:{number}: not a line of a self-trial: {error}") from error
        found[one.bug] = one
    return found


def append(path: Path, found: Found) -> None:
    """Add a line to a journal. InputError when it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(found)) + "\n")
    except OSError as error:
        raise InputError(f"cannot write to {path}: {error.strerror or error}") from error


def by_group(found: Mapping[str, Found]) -> list[dict[str, Any]]:
    """One row a class of bugs, and one for all: how many there are, how many were found, and which were not."""
    groups: dict[str, list[Found]] = {}
    for one in found.values():
        groups.setdefault(one.group, []).append(one)
    groups["all"] = list(found.values())
    return [
        {
            "class": name,
            "bugs": len(members),
            "detected": sum(one.detected for one in members),
            "undetected": [one.bug for one in members if not one.detected] if name != "all" else [],
            "false alarms": len({alarm for one in members for alarm in one.alarms}),
        }
        for name, members in groups.items()
    ]


def markdown(found: Mapping[str, Found]) -> str:
    """The same as a table in Markdown, and below it how those found were found and the false alarms."""
    lines = ["| class | bugs | found | not found |", "| --- | ---: | ---: | --- |"]
    for row in by_group(found):
        missed = ", ".join(map(markdown_code, row["undetected"]))
        lines.append(f"| {escaped(row['class'])} | {row['bugs']} | {row['detected']} | {missed} |")
    ways = Counter(_way(one) for one in found.values() if one.detected)
    lines += ["", "| found by | bugs |", "| --- | ---: |", *(f"| {way} | {n} |" for way, n in ways.most_common())]
    alarms = sorted({alarm for one in found.values() for alarm in one.alarms})
    lines += ["", f"False alarms in {sum(one.tried for one in found.values())} cases: {len(alarms)}."]
    return "\n".join([*lines, *map(markdown_code, alarms)])


def _way(one: Found) -> str:
    variant = one.case.split(":")[4:]
    if one.by == "fuzz":
        return "programs of the fuzzer"
    return f"variant {markdown_code(variant[0])}" if variant else f"source {markdown_code(one.by)}"

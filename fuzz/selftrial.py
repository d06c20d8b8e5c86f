"""The self-trial: each planted bug against the suite and the fuzzer, as a user would run them.

What a bug touches decides what is tried: the samples of its ops in every dtype and every variant, what those ops have
to refuse, and random programs that call them. The first failure ends it, if the compiler without the bug passes
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
import time
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from torchstone.conformance.backends import load as load_backend
from torchstone.conformance.case import Case
from torchstone.conformance.dynamic import BATCH, DYNAMIC
from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.planted import NAME, Bug
from torchstone.conformance.runner import Pool
from torchstone.conformance.sources import iterate, load
from torchstone.conformance.trial import compile_cases, try_case
from torchstone.conformance.variants import VARIANTS, apply
from torchstone.conformance.verdict import Outcome, Verdict

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


def cases(bug: Bug, limit: int, programs: int, most: int) -> Iterator[Case]:
    """What is tried, in this order.

    The first ``limit`` samples of each op and dtype; what the ops have to refuse; so many programs of the fuzzer; the
    samples in every variant, the largest first, ``most`` of them.
    """
    ops = list(bug.ops)
    samples = []
    for entry in iterate({"opinfo": ops}, None, limit):
        if isinstance(entry, Case):
            samples.append(entry)
            yield entry
    refused = sorted(set(ops) & set(load("errors").op_names()))
    yield from (entry for entry in iterate({"errors": refused}, None, limit) if isinstance(entry, Case))
    if programs:
        yield from _programs(ops, programs)
    yield from itertools.islice(_varied(samples), most)


def _varied(samples: Iterable[Case]) -> Iterator[Case]:
    """The samples in every variant: of each op and dtype one in all of them, then another one."""
    by_kind: dict[tuple[str, str], list[Case]] = {}
    for case in sorted(samples, key=lambda case: -sum(tensor.numel() for tensor in case.args)):
        by_kind.setdefault((case.op, case.dtype), []).append(case)
    for row in itertools.zip_longest(*by_kind.values()):
        for name in VARIANTS:
            for case in filter(None, row):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    varied = apply(case, name)
                if isinstance(varied, Case):
                    yield varied


def _programs(ops: Iterable[str], count: int) -> Iterator[Case]:
    from torchstone.fuzz.generate import nth
    from torchstone.fuzz.rules import select

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
        with Pool(backend, **self._pool) as pool:
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
        alone = any(case.variant in (DYNAMIC, BATCH) for case in batch)
        compiled = [None] * len(batch) if alone else compile_cases(batch, backend)
        for case, one in zip(batch, compiled, strict=True):
            yield case, try_case(case, backend, one)
        size = min(2 * size, MOST)


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

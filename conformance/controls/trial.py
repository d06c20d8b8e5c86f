"""All controls on cases of many ops, in every variant: nothing may fail.

What is asked follows from a rule: each control in turn names the next op that it computes otherwise, in an order that
is arbitrary and fixed (by a checksum of the op's name), until there are enough.
"""

from __future__ import annotations

import dataclasses
import json
import time
import warnings
import zlib
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from torchstone.conformance.controls import BACKEND_PREFIX, CONTROLS, Control
from torchstone.conformance.controls.control import REPLACED
from torchstone.conformance.errors import InputError
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.undefined_behavior import undefined_behavior
from torchstone.conformance.execution.verdict import Verdict
from torchstone.conformance.oracle.exactness.steps import EveryStep
from torchstone.conformance.program.case import Case
from torchstone.conformance.sources import iterate, opinfo

OPS = 100
SOURCE = "opinfo"
FIRST_DTYPE = "float32"
SAME = "same as eager"
"""What a verdict counts as where the control did nothing otherwise: it says nothing about the oracle."""


@dataclass(frozen=True)
class OpResult:
    """What became of all controls on one op: how many verdicts of each outcome, by control, and the failures.

    ``asked`` are the options that it was tried with; ``cases`` counts the cases, ``seconds`` is wall time.
    """

    op: str
    asked: dict[str, Any]
    cases: int = 0
    outcomes: dict[str, dict[str, int]] = field(default_factory=dict)
    failures: list[dict[str, str]] = field(default_factory=list)
    seconds: float = 0.0


def operators_of(case: Case) -> frozenset[Any]:
    """The operators that eager runs, as a dispatch mode sees them."""
    seen: set[Any] = set()

    def note(func: Any) -> bool:
        seen.add(func)
        return True

    with torch.no_grad(), warnings.catch_warnings(), torch.random.fork_rng(devices=[]), EveryStep(note):
        warnings.simplefilter("ignore")
        case.program(*case.fresh_args())
    return frozenset(seen)


def choose_ops(count: int = OPS, controls: Mapping[str, Control] = CONTROLS) -> list[str]:
    """The ops that the controls name in turn, sorted. Those that have a say in any program name none."""
    waiting = sorted(opinfo.op_names(), key=lambda op: zlib.crc32(op.encode()))
    names = {op: _first_operators(op) for op in waiting}
    queues = [
        iter([op for op in waiting if control.concerns(names[op])])
        for control in controls.values()
        if not control.concerns(())
    ]
    chosen: dict[str, None] = {}
    while queues and len(chosen) < count:
        queues = [queue for queue in queues if _name_next(queue, chosen, count)]
    return sorted(chosen)


def _name_next(queue: Iterator[str], chosen: dict[str, None], count: int) -> bool:
    """Let a control name an op that nobody has named; whether it had one."""
    op = next((op for op in queue if op not in chosen), None)
    if op is not None and len(chosen) < count:
        chosen[op] = None
    return op is not None


def _first_operators(op: str) -> frozenset[Any]:
    dtypes = opinfo.dtypes_of(op)
    if not dtypes:
        return frozenset()
    try:
        case = next(iter(opinfo.iterate([op], [dtypes[0]], 1)), None)
        return operators_of(case) if isinstance(case, Case) and not undefined_behavior(case) else frozenset()
    except Exception:  # eager refuses the sample
        return frozenset()


def try_case(case: Case, controls: Mapping[str, Control] = CONTROLS) -> Iterator[tuple[str, Verdict]]:
    """The verdict of each control that has a say in the program of a case."""
    if undefined_behavior(case):
        return
    try:
        operators = operators_of(case)
    except Exception:  # eager refuses the inputs
        return
    for name, control in controls.items():
        if control.concerns(operators):
            yield name, run_case(case, control)


def outcome_of(verdict: Verdict) -> str:
    """The outcome, or ``SAME`` for a right answer that eager's own kernels gave."""
    ran = verdict.evidence.get("ran", {}).get(REPLACED)
    return SAME if ran == [] and not verdict.failed else str(verdict.outcome)


def try_op(
    op: str, variants: Sequence[str], dtypes: Sequence[str] | None, limit: int, controls: Mapping[str, Control] = CONTROLS
) -> OpResult:
    """All controls on the first samples of an op, of each dtype, in these variants."""
    started = time.perf_counter()
    counts: dict[str, Counter[str]] = {}
    failures: list[dict[str, str]] = []
    cases = 0
    for case in iterate({SOURCE: [op]}, dtypes, limit, variants):
        if not isinstance(case, Case):
            continue
        cases += 1
        for name, verdict in try_case(case, controls):
            counts.setdefault(name, Counter())[outcome_of(verdict)] += 1
            if verdict.failed:
                failures.append(
                    {
                        "case": case.id,
                        "control": name,
                        "outcome": str(verdict.outcome),
                        "kind": verdict.kind,
                        "message": verdict.message.split("\n", 1)[0][:300],
                    }
                )
    asked = {"variants": list(variants), "dtypes": dtypes and list(dtypes), "limit": limit, "controls": list(controls)}
    return OpResult(op, asked, cases, {k: dict(v) for k, v in counts.items()}, failures, time.perf_counter() - started)


def try_ops(
    ops: Iterable[str],
    variants: Sequence[str],
    dtypes: Sequence[str] | None,
    limit: int,
    controls: Mapping[str, Control] = CONTROLS,
) -> Generator[OpResult, None, None]:
    """One op after the other, with one thread, as in a worker."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for op in ops:
            yield try_op(op, variants, dtypes, limit, controls)
    finally:
        torch.set_num_threads(threads)


def read_journal(path: Path) -> list[OpResult]:
    """What a journal holds. InputError for a line that is none of its own."""
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            found.append(OpResult(**json.loads(line)))
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}:{number}: not a line of a trial of controls: {error}") from error
    return found


def append_to_journal(path: Path, found: OpResult) -> None:
    """Add a line to a journal. InputError when it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(dataclasses.asdict(found)) + "\n")
    except OSError as error:
        raise InputError(f"cannot write to {path}: {error.strerror or error}") from error


def table_rows(found: Iterable[OpResult]) -> list[dict[str, Any]]:
    """One row a control, and one for all: how many verdicts there are of each outcome, and how many failed."""
    found = list(found)
    names = [name for name in CONTROLS if any(name in one.outcomes for one in found)]
    outcomes = {name: sum((Counter(one.outcomes.get(name, {})) for one in found), Counter()) for name in names}
    failed = Counter(failure["control"] for one in found for failure in one.failures)
    outcomes["all"], failed["all"] = sum(outcomes.values(), Counter()), sum(failed.values())
    known = ("pass", "ill-conditioned", "untested", "unsupported")
    return [
        {
            "control": name,
            "verdicts": sum(counts.values()) - counts[SAME],
            **{outcome: counts[outcome] for outcome in known},
            "failed": failed[name],
        }
        for name, counts in outcomes.items()
    ]


def replay_command(failure: Mapping[str, str]) -> str:
    return f"torchstone replay {failure['case']} --backend {BACKEND_PREFIX}{failure['control']}"


def already_tried(journal: Iterable[OpResult], asked: Mapping[str, Any]) -> dict[str, OpResult]:
    """The results of a journal that were asked the same, by op."""
    return {one.op: one for one in journal if one.asked == asked}

"""All controls on cases of many ops, in every variant: nothing may fail.

What is asked follows from a rule: each control in turn names the next op that it computes otherwise, in an order that
is arbitrary and fixed (by a checksum of the op's name), until there are enough.
"""

from __future__ import annotations

import time
import warnings
import zlib
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from torchstone.conformance.controls import CONTROLS, Control
from torchstone.conformance.controls.control import REPLACED
from torchstone.conformance.controls.results import SAME, OpResult
from torchstone.conformance.errors import UnknownName
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.undefined_behavior import undefined_behavior
from torchstone.conformance.execution.verdict import Verdict
from torchstone.conformance.oracle.exactness.steps import EveryStep
from torchstone.conformance.oracle.reference.shared import shared_runs
from torchstone.conformance.program.case import Case
from torchstone.conformance.sources import iterate, opinfo
from torchstone.conformance.variants.registry import VARIANTS

OPS = 100
SOURCE = "opinfo"
FIRST_DTYPE = "float32"


def wanted_variants(names: Sequence[str] | None) -> list[str]:
    """The variants that are meant: all for none, and for ``all``. Raises ``UnknownName``."""
    if names is None or "all" in names:
        return list(VARIANTS.usable())
    for name in names:
        if name not in VARIANTS:
            raise UnknownName("variant", name, VARIANTS)
    return list(names)


def wanted_ops(names: Iterable[str]) -> list[str]:
    """The ops that names and shell patterns mean. Raises ``UnknownName``."""
    return opinfo.select(names)


def question(
    variants: Sequence[str], dtypes: Sequence[str] | None, limit: int, controls: Mapping[str, Control]
) -> dict[str, Any]:
    """What is asked of each op, as JSON: results of the same question need not be found again."""
    return {
        "variants": list(variants),
        "dtypes": dtypes and list(dtypes),
        "limit": limit,
        "controls": list(controls),
    }


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
            backend: Any = control
            yield name, run_case(case, backend)


def outcome_of(verdict: Verdict) -> str:
    """The outcome, or ``SAME`` for a right answer that eager's own kernels gave."""
    ran = verdict.evidence.get("ran", {}).get(REPLACED)
    return SAME if ran == [] and not verdict.failed else str(verdict.outcome)


def try_op(
    op: str,
    variants: Sequence[str],
    dtypes: Sequence[str] | None,
    limit: int,
    controls: Mapping[str, Control] = CONTROLS,
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
        with shared_runs():
            verdicts = list(try_case(case, controls))
        for name, verdict in verdicts:
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
    asked = question(variants, dtypes, limit, controls)
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

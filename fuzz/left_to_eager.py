"""Of programs that were right as one, which a backend left in part to eager.

The verdict on a bundle tells which of PyTorch's kernels ran, and how often. Some backends tell for which programs, too.
Otherwise a program calls for a kernel if eager runs it for that program; for one that eager runs for none, if PyTorch's
own decompositions do. Where all programs together call for a kernel as often as it ran, it ran for each of them that
does.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from torchstone.compiler._torch import decompositions
from torchstone.compiler._torch.modes import ComputingMode
from torchstone.conformance.backends.eager_ops import every_op
from torchstone.conformance.backends.protocol import LEFT_BY
from torchstone.conformance.execution.apart import ask_apart
from torchstone.conformance.execution.provenance import FOREIGN
from torchstone.conformance.execution.verdict import Outcome, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.runner.retry import case_labels

EAGER = "eager"


@dataclasses.dataclass(frozen=True)
class LeftToEager:
    """The kernels that ran for each program for which one did, for sure; ``open`` are those of which it is not known
    for which.
    """

    ran: dict[int, list[str]]
    open: list[str]


def left_to_eager(cases: Sequence[Case], verdict: Verdict) -> LeftToEager | None:
    """What was left to eager of each program of a bundle; None where the verdict does not tell, or tells of more."""
    told = verdict.evidence.get("ran")
    if (
        verdict.outcome is not Outcome.FALLBACK
        or verdict.evidence.get(FOREIGN) != [EAGER]
        or not isinstance(told, dict)
    ):
        return None
    left = _counts(told.get(EAGER, ()))
    found = LeftToEager({}, [])
    eager: list[Counter[str]] = []
    decomposed: list[Counter[str]] = []
    known = verdict.evidence.get(LEFT_BY, {})
    for name, count in left.items():
        callers = known.get(name, ())
        if len(callers) == count:
            for at in set(callers):
                found.ran.setdefault(at, []).append(name)
            continue
        eager = eager or [_calls_for(case, AS_IT_IS) for case in cases]
        calls = [each[name.rstrip("_")] for each in eager]
        if not any(calls):
            decomposed = decomposed or [_calls_for(case, DECOMPOSED) for case in cases]
            calls = [each[name.rstrip("_")] for each in decomposed]
        if sum(calls) != count:
            found.open.append(name)
            continue
        for at, called in enumerate(calls):
            if called:
                found.ran.setdefault(at, []).append(name)
    return found


def verdict_of_one(case: Case, verdict: Verdict, ran: Sequence[str], seconds: float) -> Verdict:
    """The verdict on one program of a bundle that was right, given the kernels of eager that ran for it."""
    told = {executor: ops for executor, ops in verdict.evidence.get("ran", {}).items() if executor != EAGER}
    evidence = {key: value for key, value in verdict.evidence.items() if key not in (FOREIGN, LEFT_BY)}
    outcome, message = Outcome.PASS, ""
    if ran:
        outcome, message = Outcome.FALLBACK, f"eager ran {', '.join(ran)}"
        told, evidence = told | {EAGER: list(ran)}, evidence | {FOREIGN: [EAGER]}
    changes = {"outcome": outcome, "message": message, "evidence": evidence | {"ran": told}, "seconds": seconds}
    return dataclasses.replace(verdict, **case_labels(case), **changes)


def _counts(told: Iterable[str]) -> Counter[str]:
    """The kernels by how often they ran: ``aten::mm x3`` is how an executor tells of three."""
    found: Counter[str] = Counter()
    for entry in told:
        name, _, times = entry.partition(" x")
        found[name] += int(times) if times.isdigit() else 1
    return found


class _Decomposed(ComputingMode):
    """Replaces ops by PyTorch's decompositions of them, as far as these go."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        rule = decompositions.whole_table().get(func)
        if rule is not None:
            with contextlib.suppress(Exception), self:  # one that does not take these arguments: the op itself does
                return rule(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


AS_IT_IS, DECOMPOSED = "as it is", "decomposed"
"""How a program is run to see its kernels."""


def _calls_for(case: Case, how: str) -> Counter[str]:
    """The kernels that run for a program, those that others call in turn included.

    One and its in-place form are one: a compiler may write to memory of its own where the program does not. What does
    not run in this way calls for nothing, as far as is known.
    """
    found = Counter[str]()
    for name, count in (ask_apart(_kernels, case, how) or {}).items():
        found[name.rstrip("_")] += count
    return found


def _kernels(case: Case, how: str) -> dict[str, int]:
    args, mode = case.fresh_args(), _Decomposed() if how == DECOMPOSED else contextlib.nullcontext()
    with torch.no_grad(), torch.random.fork_rng(devices=[]), every_op() as ops, contextlib.suppress(Exception), mode:
        case.program(*args)
    return dict(ops)

"""The part of a script that calls a compiled program several times, where a call after the first is the one that fails.

The calls are those of the trial (``execution.later_calls``), up to the one that failed.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from torchstone.conformance.execution.later_calls import (
    CALLS,
    COMPANION,
    VALUES,
    LaterCall,
    companion_args,
    plan_calls,
)
from torchstone.conformance.execution.repeatability import observe
from torchstone.conformance.execution.undefined_behavior import SEED
from torchstone.conformance.execution.verdict import FAILURES, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.repro import source

FIRST = ("the example", "the example again")
ANOTHER = "another_program"


def calls_to_failure(case: Case, verdict: Verdict | None) -> list[LaterCall]:
    """The calls after the first two up to the one that failed; none where it was one of the first.

    One of optimized code is alone, for that is compiled anew.
    """
    made = verdict.evidence.get(CALLS) if verdict is not None and verdict.outcome in FAILURES else None
    if not made or not isinstance(made, list):
        return []
    with torch.no_grad():
        expected = observe(case.program, case.fresh_args())
        found = list(plan_calls(case, expected))
    upto = next((at for at, call in enumerate(found, 1) if call.name == made[-1]), 0)
    return found[upto - 1 : upto] if upto and found[upto - 1].optimized else found[:upto]


def functions(calls: list[LaterCall]) -> list[str]:
    """Definitions of what the calls are given, and of the other program."""
    lines: list[str] = []
    for call in calls:
        if not call.in_place and not call.after_companion and not call.optimized:
            lines += source.function(_inputs_name(call), (), source.inputs(call.case))
    if any(call.in_place for call in calls):
        lines += source.function(
            "overwritten",
            ("tensors", "values"),
            [
                "for tensor, value in zip(tensors, values, strict=True):",
                "    tensor.untyped_storage().copy_(value.untyped_storage())",
                "return tuple(tensor.detach() if tensor.requires_grad else tensor for tensor in tensors)",
            ],
        )
    if any(call.after_companion for call in calls):
        other = _companion()
        lines += source.function(ANOTHER, COMPANION.inputs, source.body(other.program))
        lines += source.function(f"{ANOTHER}_inputs", (), source.inputs(other))
    return lines


def statements(
    calls: list[LaterCall],
    compiling: list[str],
    eager: list[str],
    check: list[str],
    run_other: str,
    optimized: Callable[[], str],
) -> list[str]:
    """Statements that make the calls of ``compiled``, which is made by ``compiling``.

    ``eager`` computes what the last one should give, from ``expected_inputs``, and ``check`` compares that with what it
    has given, ``got`` from ``given``. ``run_other`` compiles and runs the other program, and ``optimized`` gives
    an expression for the program, optimized.
    """
    seed = f"torch.manual_seed({SEED})"
    first = [line for _ in FIRST for line in ("given = inputs()", "compiled(*given)")]
    lines = [f"compiled = {optimized()}"] if calls[0].optimized else [*compiling, *first]
    for call in calls:
        last = call is calls[-1]
        if call.after_companion:
            lines.append(run_other)
        own = not (call.in_place or call.after_companion or call.optimized)
        made = f"{_inputs_name(call)}()" if own else "inputs()"
        given = f"overwritten(given, {made})" if call.in_place and _follows_values(calls) else made
        lines += [f"given = {given}  # {call.name}", *([seed] if last else [])]
        lines += [f"{'got = ' if last else ''}compiled(*given)"]
    return [*lines, f"expected_inputs = {made}", seed, *eager, *check]


def _follows_values(calls: list[LaterCall]) -> bool:
    return any(call.name == VALUES for call in calls)


def _inputs_name(call: LaterCall) -> str:
    return call.name.replace(" ", "_")


def _companion() -> Case:
    return Case(COMPANION, dict(zip(COMPANION.inputs, companion_args(), strict=True)), "", "", "float32")

"""Return one value instead of all of them, or fewer, and drop the calls that were there for the others."""

from __future__ import annotations

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref, leaves
from torchstone.conformance.program.program import Program
from torchstone.reducers.edit import prune_and_rename, results, tensors_in
from torchstone.reducers.problem import Rewrite


def drop_outputs(case: Case) -> Rewrite[Case]:
    """Try every result of every call as the only output, the earliest first; then leave out one output at a time."""
    values = results(case)
    for call in case.program.calls:
        for path, _ in tensors_in(values[call.result]):
            if (yield prune_and_rename(case, _returning(case, Ref(call.result, path)), case.inputs)):
                return
    at = 0
    while at < len(outputs := list(leaves(case.program.outputs))) and len(outputs) > 1:
        rest = (*outputs[:at], *outputs[at + 1 :])
        candidate = prune_and_rename(case, _returning(case, rest[0] if len(rest) == 1 else rest), case.inputs)
        if (yield candidate):
            case = candidate
        else:
            at += 1


def _returning(case: Case, outputs: object) -> Program:
    return Program(case.program.inputs, case.program.calls, outputs)

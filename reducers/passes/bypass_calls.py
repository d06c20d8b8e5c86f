"""Replace the result of a call by one of its own operands, where shape and dtype agree."""

from __future__ import annotations

from torch import Tensor

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.program.program import Call
from torchstone.reducers.edit import prune_and_rename, results
from torchstone.reducers.problem import Rewrite


def bypass_calls(case: Case) -> Rewrite[Case]:
    """Try each call, last first, with each of its operands in its place."""
    at = len(case.program.calls) - 1
    while at >= 0 and len(case.program.calls) > 1:
        for operand in _alike(case, case.program.calls[at]):
            candidate = _without(case, at, operand)
            if (yield candidate):
                case = candidate
                at = min(at, len(case.program.calls))
                break
        at -= 1


def _alike(case: Case, call: Call) -> list[Ref]:
    values = results(case)
    result = values[call.result]
    if not isinstance(result, Tensor):
        return []
    found = []
    for ref in dict.fromkeys(call.refs()):
        value = values[ref.name]
        for step in ref.path:
            value = value[step]
        if isinstance(value, Tensor) and value.shape == result.shape and value.dtype == result.dtype:
            found.append(ref)
    return found


def _without(case: Case, at: int, operand: Ref) -> Case:
    gone = case.program.calls[at].result

    def replaced(leaf: object) -> object:
        return operand if isinstance(leaf, Ref) and leaf.name == gone else leaf

    program = case.program.rewrite(
        lambda call: None if call.result == gone else call.map_arguments(replaced), outputs=replaced
    )
    return prune_and_rename(case, program, case.inputs)

"""Replace the result of a call by a new input that holds what eager computed: what is left is the op at fault."""

from __future__ import annotations

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref
from torchstone.reducers.edit import prune_and_rename, results, tensors_in, trim
from torchstone.reducers.problem import Rewrite


def cut_to_inputs(case: Case) -> Rewrite[Case]:
    """Try all calls but the last at once, then half of them, a quarter …, at last one after the other, last first: that
    drops what only fed it as well.
    """
    if len(case.program.calls) > 1:
        everything = cut(case, {call.result for call in case.program.calls[:-1]})
        if everything is not None and (yield everything):
            return
    chunk = len(case.program.calls) // 2
    while chunk > 1:
        at = 0
        while calls := case.program.calls[at : at + chunk]:
            candidate = cut(case, {call.result for call in calls})
            if candidate is not None and (yield candidate):
                case = candidate
            else:
                at += chunk
        chunk //= 2
    at = len(case.program.calls) - 1
    while at >= 0:
        candidate = cut(case, {case.program.calls[at].result})
        if candidate is not None and (yield candidate):
            case = candidate
            at = min(at, len(case.program.calls))
        at -= 1


def cut(case: Case, names: set[str]) -> Case | None:
    """Return the case with these calls' results made inputs; None if nothing is left or one of them is no tensor."""
    if names.issuperset(call.result for call in case.program.calls):
        return None
    made: dict[str, dict[tuple, str]] = {}
    inputs = dict(case.inputs)
    for at, call in enumerate(case.program.calls):
        if call.result not in names:
            continue
        # A later in-place call may change the value: take it as it is when the call has just run.
        for path, tensor in tensors_in(results(case, at + 1)[call.result]):
            name = f"cut_{call.result}_{'_'.join(map(str, path))}"
            inputs[name] = trim(tensor)
            made.setdefault(call.result, {})[path] = name

    def replaced(leaf: object) -> object:
        if not isinstance(leaf, Ref) or leaf.name not in names:
            return leaf
        return Ref(made[leaf.name][leaf.path])

    try:
        program = case.program.rewrite(
            lambda call: None if call.result in names else call.map_arguments(replaced),
            outputs=replaced,
            inputs=inputs,
        )
    except KeyError:  # a reference to a whole tuple of tensors, or to a number
        return None
    return prune_and_rename(case, program, inputs)

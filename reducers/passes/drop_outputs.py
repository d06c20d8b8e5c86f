"""Return fewer of the values, or one of those that they were made from, and drop the calls that were for the others."""

from __future__ import annotations

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref, leaves
from torchstone.conformance.program.program import Program
from torchstone.reducers.edit import prune_and_rename, results, tensors_in
from torchstone.reducers.problem import Rewrite, remove_chunks


def drop_outputs(case: Case) -> Rewrite[Case]:
    """Leave out outputs, half of them at once, then a quarter … then each alone. If one is left, it is what fails: try
    every result of every call in its place, the earliest first.
    """
    outputs = list(leaves(case.program.outputs))

    def without(kept: frozenset[int]) -> Case | None:
        return _returning(case, [outputs[at] for at in sorted(kept)]) if kept else None

    kept = yield from remove_chunks(len(outputs), without)
    if len(kept) > 1:  # two that share memory, say: one by itself is right
        return
    left = without(kept) or case
    values = results(left)
    for call in left.program.calls:
        for path, _ in tensors_in(values[call.result]):
            if (yield _returning(left, [Ref(call.result, path)])):
                return


def _returning(case: Case, outputs: list[object]) -> Case:
    returned = outputs[0] if len(outputs) == 1 else tuple(outputs)
    return prune_and_rename(case, Program(case.program.inputs, case.program.calls, returned), case.inputs)

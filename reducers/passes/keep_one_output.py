"""Return one value instead of all of them, and drop the calls it does not depend on."""

from __future__ import annotations

from torchstone.conformance.case import Case
from torchstone.conformance.literals import Ref
from torchstone.reducers.edit import build, results, tensors_in
from torchstone.reducers.problem import Rewrite


def keep_one_output(case: Case) -> Rewrite[Case]:
    """Try every result of every call as the only output, the earliest first: it needs the fewest calls."""
    values = results(case)
    for call in case.program.calls:
        for path, _ in tensors_in(values[call.result]):
            if (yield build(case, case.inputs, case.program.calls, Ref(call.result, path))):
                return

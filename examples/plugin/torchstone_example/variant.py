"""The variant ``reused``: a program is called with other numbers before it is called with its own.

It finds executables that keep something of their first call: a result, a buffer, a decision that values made.
"""

from __future__ import annotations

import contextlib
from typing import Any

from torchstone.conformance.execution.run_case import compare_with_eager
from torchstone.conformance.program.case import Case
from torchstone.conformance.variants import NotApplicable, Variant


def other_numbers(case: Case) -> Case:
    """The case with the elements of its floating-point inputs in the opposite order."""
    inputs = {name: tensor.flip(0) if _flips(tensor) else tensor for name, tensor in case.inputs.items()}
    return case.replace(inputs=inputs)


def _flips(tensor: Any) -> bool:
    return tensor.is_floating_point() and tensor.dim() > 0 and tensor.shape[0] > 1


def make(case: Case) -> Case:
    if not any(map(_flips, case.args)):
        raise NotApplicable("no floating-point input has two rows")
    return case


def run(case: Case, backend: Any, compiled: Any) -> Any:
    """Compile the case, call it with other numbers, and then compare its own results with eager."""
    if compiled is None:  # otherwise it was compiled together with other cases
        try:
            compiled = backend.compile(case.program, case.fresh_args())
        except Exception as error:
            compiled = error  # compare_with_eager turns it into a verdict
    if not isinstance(compiled, Exception):
        with contextlib.suppress(Exception):  # a failure for other numbers is not what this variant asks about
            compiled(*other_numbers(case).fresh_args())
    return compare_with_eager(case, backend, compiled)


REUSED = Variant("Called with other numbers before.", make, run)

"""Whether a compiler can take the bodies of control flow: it is given all of them, not only those that are run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.control_flow import COND, WHILE_LOOP
from torchstone.conformance.program.tensor_storage import copy_tensors
from torchstone.reducers.edit import ignore_warnings


def bodies_agree(case: Case) -> bool:
    """Whether eager runs both branches of each condition, to the same form, and each loop's body keeps the form of what
    it carries. Only bodies of calls that are reached count, not those within bodies."""
    calls = case.program.calls
    if not any(call.bodies() for call in calls):
        return True
    agree = True

    def perform(index: int, function: Callable[..., Any], given: Any, named: Any) -> Any:
        nonlocal agree
        if calls[index].target == COND:
            pred, then, otherwise, operands = given
            ways = [function(way, then, otherwise, copy_tensors(operands)) for way in (pred, ~pred)]
            agree &= _form(ways[0]) == _form(ways[1])
        elif calls[index].target == WHILE_LOOP:
            agree &= _form(given[1](*copy_tensors(given[2]))) == _form(given[2])
        return function(*given, **named)

    try:
        with ignore_warnings():
            case.program.run(case.fresh_args(), perform)
    except Exception:  # and then it is no case
        return False
    return agree


def _form(results: Any) -> list[Any]:
    listed = results if isinstance(results, tuple | list) else [results]
    return [(leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else type(leaf) for leaf in listed]

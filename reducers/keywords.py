"""Keyword arguments that a failure hangs on: they are found on the case as it was, before anything else has changed.

Later, on other numbers or shapes, the program may fail without one of them too: that is another failure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref, leaves
from torchstone.conformance.program.program import Call
from torchstone.reducers.asking import Asking
from torchstone.reducers.edit import prune_and_rename

Keywords: TypeAlias = Mapping[tuple[str, str], frozenset[str]]
"""For a call's target and a keyword, the values that it may have as source; none where any value will do."""


def essential_keywords(case: Case, may_go: Callable[[Sequence[Case]], Asking[list[bool]]]) -> Asking[Keywords]:
    """Return the keywords that the case does not fail without.

    ``may_go``: of each case without one, whether it still fails, or eager refuses it. A number may become a smaller
    one; of a flag or a name there is no smaller one that is not another argument.
    """
    given = [
        (call, key, value)
        for call in case.program.calls
        for key, value in call.kwargs.items()
        if not any(isinstance(leaf, Ref) for leaf in leaves(value))
    ]
    gone = yield from may_go([_without(case, call, key) for call, key, _ in given])
    found: dict[tuple[str, str], frozenset[str]] = {}
    for (call, key, value), may in zip(given, gone, strict=True):
        if not may:
            fixed = frozenset({repr(value)}) if isinstance(value, bool | str) else frozenset()
            known = found.get((call.target, key), fixed)
            found[call.target, key] = known | fixed if known and fixed else frozenset()
    return found


def _without(case: Case, call: Call, key: str) -> Case:
    rest = {name: given for name, given in call.kwargs.items() if name != key}
    changed = dataclasses.replace(call, kwargs=rest)
    program = case.program.rewrite(lambda one: changed if one is call else one)
    return prune_and_rename(case, program, case.inputs)


def kept(keywords: Keywords, case: Case) -> bool:
    """Whether a call that is left has each keyword that the failure hangs on, where its operator is called at all."""
    for (target, key), values in keywords.items():
        calls = [call.kwargs for call in case.program.calls if call.target == target]
        if calls and not any(key in given and (not values or repr(given[key]) in values) for given in calls):
            return False
    return True

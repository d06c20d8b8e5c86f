"""Drop dims of length one, in all inputs that broadcasting lines up, from the front of all, or in one of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import leaves
from torchstone.reducers.edit import map_arguments, trim, with_inputs
from torchstone.reducers.problem import Rewrite


def drop_dims(case: Case) -> Rewrite[Case]:
    """Try each group of dims, with the integers in the program unchanged, counted down, zeroed, or left out."""
    moved = True
    while moved:
        moved = False
        for group in _groups(case):
            dropped = with_inputs(case, {name: trim(case.inputs[name].squeeze(dim)) for name, dim in group.items()})
            for candidate in (dropped, *_counted_down(dropped), map_arguments(dropped, _zeroed), _shorter(dropped)):
                if (yield candidate):
                    case, moved = candidate, True
                    break
            if moved:
                break


def _groups(case: Case) -> Iterator[dict[str, int]]:
    ones = {name: [d for d, n in enumerate(t.shape) if n == 1] for name, t in case.inputs.items()}
    rank = {name: tensor.dim() for name, tensor in case.inputs.items()}
    seen: list[dict[str, int]] = []
    highest = max(rank.values(), default=0)
    aligned = [{n: rank[n] - back for n in ones if rank[n] - back in ones[n]} for back in range(1, highest + 1)]
    fronts = [{n: dim for n in ones if dim in ones[n]} for dim in range(highest)]
    singles = [{name: dim} for name, dims in ones.items() for dim in dims]
    for group in (*reversed(aligned), *fronts, *singles):
        if group and group not in seen:
            seen.append(group)
            yield group


def _counted_down(case: Case) -> Iterator[Case]:
    """Yield the case with every positive integer in its calls one less, then with one of them at a time."""
    found = [leaf for call in case.program.calls for leaf in leaves((call.args, call.kwargs))]
    places = [at for at, leaf in enumerate(found) if type(leaf) is int and leaf > 0]
    for chosen in (places, *([at] for at in places)) if len(places) > 1 else (places,):
        count = itertools.count()

        def change(leaf: object, chosen: list[int] = chosen, count: Iterator[int] = count) -> object:
            return leaf - 1 if next(count) in chosen and isinstance(leaf, int) else leaf

        if chosen:
            yield map_arguments(case, change)


def _zeroed(leaf: object) -> object:
    return 0 if type(leaf) is int else leaf


def _shorter(case: Case) -> Case:
    """Return the case with a one less in each list of integers that has one, as in a shape or an order of dims."""
    calls = tuple(
        type(call)(call.target, _without_one(call.args), _without_one(call.kwargs), call.result)
        for call in case.program.calls
    )
    return case.replace(program=type(case.program)(case.program.inputs, calls, case.program.outputs))


def _without_one(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_one(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and value and all(type(item) is int for item in value):
        if 1 in value:
            at = value.index(1)
            return type(value)([*value[:at], *value[at + 1 :]])
        return value
    if isinstance(value, list | tuple):
        return type(value)([_without_one(item) for item in value])
    return value

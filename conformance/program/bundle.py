"""Several cases as one: a program that does what each of theirs does, on the inputs of all, and its way back.

A variant that calls a program in ways of its own asks each of the ``members`` what it would ask it alone, and compiles
all of them once. What a case was called is kept in a tag of the bundle.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from torchstone.conformance.program.case import MAX_LABEL, Case, CaseError
from torchstone.conformance.program.fx import keeps_graph
from torchstone.conformance.program.literals import Ref, map_leaves
from torchstone.conformance.program.member_names import OF_ALL, prefix
from torchstone.conformance.program.program import GRADIENTS, Call, Program

_MEMBER = "member:"


def may_be_member(case: Case) -> bool:
    """Whether a bundle can hold the case: what it is called has to fit into a tag."""
    return len(_tag(case)) <= MAX_LABEL and not any(tag.startswith(_MEMBER) for tag in case.tags)


def bundle(cases: Sequence[Case]) -> Case:
    """Return one case that does what each does and gives a list of what each gives; a single one is itself.

    Gradients are taken once all of the forward parts are done, and at once where each takes them once: a compiler may
    then reuse what the forward part kept, as it may in each alone.
    """
    if len(cases) == 1:
        return cases[0]
    inputs: dict[str, Tensor] = {}
    forward: list[Call] = []
    rest: list[Call] = []
    outputs = []
    for number, case in enumerate(cases):
        program = case.program.rename({name: f"{prefix(number)}{name}" for name in _names(case.program)})
        inputs |= dict(zip(program.inputs, case.inputs.values(), strict=True))
        calls = list(program.calls)
        first = next((at for at, call in enumerate(calls) if call.target == GRADIENTS), len(calls))
        forward += calls[:first]
        rest += calls[first:]
        outputs.append(program.outputs)
    if not any(keeps_graph(case.program) for case in cases):
        rest, outputs = _taken_at_once(rest, outputs)
    tags = (*dict.fromkeys(itertools.chain.from_iterable(case.tags for case in cases)), *map(_tag, cases))
    program = Program(tuple(inputs), (*forward, *rest), outputs)
    return cases[0].replace(program=program, inputs=inputs, op=f"{len(cases)}-programs", tags=tags)


def _taken_at_once(calls: list[Call], outputs: list[Any]) -> tuple[list[Call], list[Any]]:
    """The calls and outputs of a bundle with one call for the gradients of all members."""
    taken = [call for call in calls if call.target == GRADIENTS]
    if len(taken) < 2 or any(set(call.kwargs) != {"allow_unused"} or len(call.args) != 3 for call in taken):
        return calls, outputs
    ends = [0, *itertools.accumulate(len(call.args[1]) for call in taken)]
    first = {call.result: (at, len(call.args[1])) for call, at in zip(taken, ends, strict=False)}

    def moved(leaf: Any) -> Any:
        if not isinstance(leaf, Ref) or leaf.name not in first:
            return leaf
        at, count = first[leaf.name]
        if leaf.path:
            return Ref(OF_ALL, (at + int(leaf.path[0]), *leaf.path[1:]))
        return tuple(Ref(OF_ALL, (at + place,)) for place in range(count))

    args = tuple([ref for call in taken for ref in call.args[at]] for at in range(3))
    whole = Call(GRADIENTS, args, {"allow_unused": True}, OF_ALL)
    others = [call.map_arguments(moved) for call in calls if call.target != GRADIENTS]
    return [whole, *others], [map_leaves(output, moved) for output in outputs]


def members(case: Case) -> list[Case]:
    """Return the cases that a bundle is of; of any other case, itself. Raises CaseError for a damaged tag."""
    tags = [tag for tag in case.tags if tag.startswith(_MEMBER)]
    if not tags:
        return [case]
    plain = tuple(tag for tag in case.tags if tag not in tags)
    found = []
    try:
        for number, tag in enumerate(tags):
            source, op, dtype, index = json.loads(tag.removeprefix(_MEMBER))
            program = _member(case.program, number)
            inputs = {name: case.inputs[f"{prefix(number)}{name}"] for name in program.inputs}
            fields = {"source": source, "op": op, "dtype": dtype, "index": index, "tags": plain}
            found.append(case.replace(program=program, inputs=inputs, **fields))
    except (LookupError, TypeError, ValueError) as error:
        raise CaseError(f"damaged bundle: {error}") from error
    return found


def _member(whole: Program, number: int) -> Program:
    """The program of one member, by the names that it had."""
    front = prefix(number)
    own = f"{front}{OF_ALL}"
    calls, first = [], 0
    for call in whole.calls:
        if call.result == OF_ALL:
            mine = [ref.name.startswith(front) for ref in call.args[1]]
            first = mine.index(True)
            args = tuple([ref for ref in refs if ref.name.startswith(front)] for refs in call.args)
            calls.append(replace(call, args=args, result=own))
        elif call.result.startswith(front):
            calls.append(call)

    def back(leaf: Any) -> Any:
        return Ref(own, (int(leaf.path[0]) - first, *leaf.path[1:])) if leaf.name == OF_ALL else leaf

    inputs = tuple(name for name in whole.inputs if name.startswith(front))
    program = Program(inputs, tuple(calls), map_leaves(whole.outputs[number], back))
    return program.rename({name: name.removeprefix(front) for name in _names(program)})


def with_inputs(whole: Case, given: Mapping[int, Mapping[str, Tensor]]) -> Case:
    """Return a bundle with other inputs for those members whose number is given."""
    changed = {f"{prefix(number)}{name}": tensor for number, own in given.items() for name, tensor in own.items()}
    return whole.replace(inputs={**whole.inputs, **changed})


def _names(program: Program) -> list[str]:
    return [*program.inputs, *(call.result for call in program.calls)]


def _tag(case: Case) -> str:
    return _MEMBER + json.dumps([case.source, case.op, case.dtype, case.index])

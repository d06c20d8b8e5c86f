"""Simplify control flow: one of its bodies in its place, fewer results and operands, fewer calls in a body."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.control_flow import COND
from torchstone.conformance.program.literals import ProgramError, Ref, leaves, map_leaves
from torchstone.conformance.program.program import Call, Program
from torchstone.reducers.edit import prune_and_rename
from torchstone.reducers.problem import Rewrite


def simplify_bodies(case: Case) -> Rewrite[Case]:
    """Try each call of control flow, until nothing more can be taken from it."""
    at = 0
    while at < len(case.program.calls):
        for candidate in _simpler(case, case.program.calls[at]):
            if (yield candidate):
                case = candidate
                break
        else:
            at += 1


Change = Callable[[], Program]


def _simpler(case: Case, call: Call) -> Iterator[Case]:
    for change in _changes(case.program, call) if call.bodies() else ():
        try:
            candidate = prune_and_rename(case, change(), case.inputs)
        except ProgramError:  # what was taken away is used
            continue
        yield candidate


def _changes(program: Program, call: Call) -> Iterator[Change]:
    bodies = call.bodies()
    loops = call.target != COND
    for body in bodies[loops:]:
        yield partial(_inlined, program, call, body)
    for gone in reversed(range(len(_operands(call)))):
        yield partial(_without_operand, program, call, gone)
    for gone in reversed(range(len(bodies[-1].outputs))):
        if not loops:
            yield partial(_without_result, program, call, gone)
    for place, body in enumerate(bodies):
        for inner in reversed(body.calls):
            for ref in dict.fromkeys(inner.refs()):
                yield partial(_bypassed, program, call, place, inner, ref)


def _inlined(program: Program, call: Call, body: Program) -> Program:
    """A branch, or one iteration, in the place of the call."""
    names = {inner.result: f"{call.result}_{inner.result}" for inner in body.calls}
    outside = _outside(dict(zip(body.inputs, _operands(call), strict=True)), names)
    calls = [replace(inner.map_arguments(outside), result=names[inner.result]) for inner in body.calls]
    results = [outside(ref) for ref in body.outputs]
    return _with(program, call, calls, lambda at: results[at])


def _without_operand(program: Program, call: Call, gone: int) -> Program:
    """Without an operand, and what a loop makes of it."""
    bodies, number = call.bodies(), None
    if call.target != COND:
        bodies[1], number = _without(bodies[1], output=gone), _renumbered(call, gone)
    return _with(program, call, [_rebuilt(call, [_without(body, input=gone) for body in bodies], gone)], number)


def _without_result(program: Program, call: Call, gone: int) -> Program:
    bodies = [_without(body, output=gone) for body in call.bodies()]
    return _with(program, call, [_rebuilt(call, bodies)], _renumbered(call, gone))


def _bypassed(program: Program, call: Call, place: int, gone: Call, ref: Ref) -> Program:
    """With an operand in the place of a call in a body."""

    def replaced(leaf: Any) -> Any:
        return ref if isinstance(leaf, Ref) and leaf.name == gone.result else leaf

    bodies = call.bodies()
    bodies[place] = bodies[place].rewrite(
        lambda inner: None if inner is gone else inner.map_arguments(replaced), outputs=replaced
    )
    return _with(program, call, [_rebuilt(call, bodies)], None)


def _operands(call: Call) -> Sequence[Any]:
    return call.args[-1]


def _outside(known: dict[str, Any], names: dict[str, str]) -> Callable[[Any], Any]:
    """What a leaf of a body is outside of it."""

    def outside(leaf: Any) -> Any:
        if not isinstance(leaf, Ref):
            return leaf
        if leaf.name in names:
            return Ref(names[leaf.name], leaf.path)
        return Ref(known[leaf.name].name, (*known[leaf.name].path, *leaf.path))

    return outside


def _with(program: Program, call: Call, calls: Sequence[Call], result: Callable[[int], Ref] | None) -> Program:
    """The program with other calls in the place of one, and ``result`` of a number in the place of its results."""

    def changed(leaf: Any) -> Any:
        if result is None or not isinstance(leaf, Ref) or leaf.name != call.result:
            return leaf
        if not leaf.path:
            raise ProgramError("all results are used as one")
        found = result(int(leaf.path[0]))
        return Ref(found.name, (*found.path, *leaf.path[1:]))

    made = [new for one in program.calls for new in (calls if one is call else [one.map_arguments(changed)])]
    return Program(program.inputs, tuple(made), map_leaves(program.outputs, changed))


def _renumbered(call: Call, gone: int) -> Callable[[int], Ref]:
    def ref(at: int) -> Ref:
        if at == gone:
            raise ProgramError("the result is used")
        return Ref(call.result, (at - (at > gone),))

    return ref


def _rebuilt(call: Call, bodies: Sequence[Program], gone: int | None = None) -> Call:
    """The call with other bodies, and without an operand."""
    left = iter(bodies)
    args = [_without(next(left)) if isinstance(arg, Program) else arg for arg in call.args[:-1]]
    operands = tuple(ref for at, ref in enumerate(_operands(call)) if at != gone)
    return replace(call, args=(*args, operands))


def _without(body: Program, input: int | None = None, output: int | None = None) -> Program:
    """The body without an input or a result, and without the calls that nothing in it needs."""
    outputs = body.outputs
    if output is not None:
        outputs = tuple(ref for at, ref in enumerate(outputs) if at != output)
    results = list(leaves(outputs))
    needed = {ref.name for ref in results}
    if needed & set(body.inputs) or len(set(results)) < len(results):
        raise ProgramError("PyTorch wants results of a body in memory of their own")
    kept: list[Call] = []
    for inner in reversed(body.calls):
        if inner.result in needed or inner.target.endswith("_"):
            kept.append(inner)
            needed |= {ref.name for ref in inner.refs()}
    return Program(tuple(name for at, name in enumerate(body.inputs) if at != input), tuple(reversed(kept)), outputs)

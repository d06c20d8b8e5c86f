"""``torch.cond`` and ``torch.while_loop``, whose branches and bodies are programs of the generator's.

A body sees its operands and nothing else, writes to none of them, and gives results of its own memory, as PyTorch asks.
What decides a branch, or ends a loop, is exact: else a last bit would decide which of two programs is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from torchstone.compiler._torch.tensors import storage_key
from torchstone.conformance.program.control_flow import COND, WHILE_LOOP
from torchstone.conformance.program.literals import Ref
from torchstone.conformance.program.program import Call, Program
from torchstone.fuzz.generator.draft import Arguments, CallRejected, Draft, DraftValue, is_plain, rounds
from torchstone.fuzz.generator.rules import OpRule

MOST_CALLS = 3
"""Calls in a body, but for those that bring its results into form."""
MOST_ITERATIONS = 4


def rules() -> Iterator[OpRule]:
    """Yield the rules of both."""
    for op, target, draw in (("cond", COND, _cond), ("while_loop", WHILE_LOOP, _while_loop)):
        yield OpRule(op, target, draw, frozenset(), jumps=False, exact=False, cuts=False, takes_bodies=True)


def _cond(draft: Draft) -> Arguments:
    pred = _predicate(draft)
    operands = _operands(draft, 3, lambda value: not is_lazy(value.tensor))
    then = _drawn(draft, operands)
    operands += _inputs_of_its_own(draft, then, operands)
    results = _separate(then, _last_results(then)[: draft.choices.integer(1, 2)])
    otherwise = _drawn(draft, operands)
    others = _separate(otherwise, _alike(otherwise, results))
    operands += _inputs_of_its_own(draft, otherwise, operands)
    names = tuple(otherwise.inputs)
    branches = (_program(then, results, names), _program(otherwise, others, names))
    exact = tuple(one.exact and other.exact for one, other in zip(results, others, strict=True))
    return Arguments((pred, *branches, tuple(operands)), exact=exact)


def _while_loop(draft: Draft) -> Arguments:
    number = draft.given(torch.tensor(draft.choices.integer(0, 1)))
    most: Any = draft.choices.integer(1, MOST_ITERATIONS)
    limit = [draft.given(torch.tensor(most))] if draft.choices.chance(50) else []
    operands = _operands(draft, 2, lambda value: is_plain(value.tensor))
    # After one iteration they are results of the body, which rounds.
    blurred = [replace(value, exact=not rounds(value.tensor)) for value in operands]
    body = _drawn(draft, [number, *limit, *blurred])
    counted = len(limit) + 1
    carried = body.values[counted : counted + len(operands)]
    more = _inputs_of_its_own(draft, body, [number, *limit, *operands])
    own = [value for value in body.values if value.ref.name in body.inputs]
    following = _alike(body, carried)
    body.call("torch.add", Arguments((body.values[0], 1)), exact=True, cuts=False)
    results = [body.values[-1], *own[1:counted], *following, *own[counted + len(operands) :]]
    results = _separate(body, results)
    last: Any = Ref("x1") if limit else most
    condition = Program(tuple(body.inputs), (Call("torch.lt", (Ref("x0"), last), {}, "v0"),), Ref("v0"))
    exact = tuple(not rounds(value.tensor) for value in results)
    return Arguments((condition, _program(body, results), (number, *limit, *operands, *more)), exact=exact)


def _predicate(draft: Draft) -> DraftValue:
    """A bool of no dims: one at hand, a new input, or whether an exact value has anything but zeros."""
    draft.needs_exact = True
    if len(draft.calls) + 1 < draft.most and draft.choices.chance(60):
        draft.call("torch.any", Arguments((draft.tensor(),)), exact=True, cuts=False)
        pred = draft.values[-1]
    else:
        pred = draft.tensor(ranks=[0], dtype=torch.bool)
    draft.needs_exact = False
    return pred


def _operands(draft: Draft, most: int, fits: Callable[[DraftValue], bool]) -> list[DraftValue]:
    """Operands that fit, of those at hand or as new inputs, none in the memory of another: PyTorch refuses these."""
    found = [draft.tensor(where=fits) for _ in range(draft.choices.integer(1, most))]
    if not all(map(fits, found)):
        raise CallRejected("a new input that PyTorch takes for no operand of control flow")
    return list({storage_key(value.tensor): value for value in found}.values())


def _drawn(draft: Draft, operands: Sequence[DraftValue]) -> Draft:
    """A body with calls; raises CallRejected where none can be drawn, or they draw random numbers."""
    body = draft.body(operands)
    before = torch.default_generator.get_state()
    for _ in range(draft.choices.integer(1, MOST_CALLS)):
        body.grow(body)
    if not _last_results(body) or not torch.equal(before, torch.default_generator.get_state()):
        raise CallRejected("a body without results, or of random numbers")
    draft.features |= body.features
    return body


def _inputs_of_its_own(draft: Draft, body: Draft, operands: Sequence[DraftValue]) -> list[DraftValue]:
    return [draft.given(tensor) for tensor in list(body.inputs.values())[len(operands) :]]


def _last_results(body: Draft) -> list[DraftValue]:
    """The results of calls, those first that no other call takes."""
    results = [value for value in reversed(body.values) if value.ref.name not in body.inputs]
    return sorted(results, key=lambda value: value.ref.name in body.used)


def _alike(body: Draft, wanted: Sequence[DraftValue]) -> list[DraftValue]:
    """Values that calls of the body give, of the shapes and dtypes that are wanted."""
    found: list[DraftValue] = []
    for like in wanted:
        fitting = [v for v in _last_results(body) if (v.shape, v.dtype) == (like.shape, like.dtype)]
        left = [value for value in fitting if not any(value is taken for taken in found)]
        found.append((left or fitting or [_converted(body, like)])[0])
    return found


def _converted(body: Draft, like: DraftValue) -> DraftValue:
    """A result of the body brought to a shape and a dtype; a constant where none can be without a jump."""

    def call(target: str, *args: Any) -> DraftValue:
        body.call(target, Arguments(args), exact=False, cuts=True)
        return body.values[-1]

    results = [value for value in _last_results(body) if torch.can_cast(value.dtype, like.dtype)]
    if not results:
        return _constant(body, like)
    value = body.choices.pick(results)
    if value.shape != like.shape:
        value = call("torch.sum", value) if value.dim else value
        value = call("torch.broadcast_to", value, list(like.shape))
    return value if value.dtype == like.dtype else call("torch.Tensor.to", value, like.dtype)


def _constant(body: Draft, like: DraftValue) -> DraftValue:
    filled = Arguments((list(like.shape), body.scalar(like.dtype)), {"dtype": like.dtype})
    body.call("torch.full", filled, exact=True, cuts=False)
    return body.values[-1]


def _separate(body: Draft, results: Sequence[DraftValue]) -> list[DraftValue]:
    """The results, each in memory of its own and row after row."""
    taken = {storage_key(value.tensor) for value in body.values if value.ref.name in body.inputs}
    found = []
    for value in results:
        if storage_key(value.tensor) in taken or not is_plain(value.tensor):
            options = {"memory_format": torch.contiguous_format}
            body.call("torch.clone", Arguments((value,), options), exact=True, cuts=False)
            value = body.values[-1]
        if is_lazy(value.tensor):
            raise CallRejected("a body's result that is lazily conjugated or negated")
        taken.add(storage_key(value.tensor))
        found.append(value)
    return found


def is_lazy(tensor: torch.Tensor) -> bool:
    return tensor.is_conj() or tensor.is_neg()


def _program(body: Draft, results: Sequence[DraftValue], inputs: Sequence[str] = ()) -> Program:
    return Program(tuple(inputs or body.inputs), tuple(body.calls), tuple(value.ref for value in results))

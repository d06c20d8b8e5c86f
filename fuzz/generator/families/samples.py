"""Calls that are lifted out of the op database's own samples: all of what no family draws, and some of what one does.

A sample is taken as it is or in one of the suite's variants: with other numbers, sizes, layouts, operands or arguments.
Its literals are kept. Each of its tensors is replaced by a value of the program that has the same shape and dtype, if
there is one, and becomes a new input otherwise.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import torch

from torchstone.conformance.custom import source as custom
from torchstone.conformance.custom.registration import CustomOp
from torchstone.conformance.oracle.op_traits.right_answers import MANY_RIGHT_ANSWERS
from torchstone.conformance.oracle.op_traits.undetermined import DRAWS_RANDOM_NUMBERS, UNINITIALIZED
from torchstone.conformance.program.call_targets import lookup, name_of
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import DTYPES, Ref, dtype_name, leaves, map_leaves
from torchstone.conformance.program.program import Call
from torchstone.conformance.sources import functions, opinfo
from torchstone.conformance.variants.registry import BUNDLES, VARIANTS
from torchstone.fuzz.generator.draft import Arguments, CallRejected, Draft, DraftValue
from torchstone.fuzz.generator.in_a_variant import in_a_variant
from torchstone.fuzz.generator.rules import OpRule, op_database, rules_for
from torchstone.fuzz.generator.values import NUMEL

SAMPLES = 64
"""Samples an op and dtype to choose from: the first ones, as drawing them costs time."""
LIFTED = 20
"""Of a hundred calls of an op that a family draws, how many are lifted: they have arguments that it does not know.

A lifted call seldom takes a result of the program, so that more would leave fewer chains.
"""
VARIED = 40
"""Of a hundred calls, how many are of a sample in a variant."""
_UNKNOWN: dict[str, Any] = {"jumps": True, "exact": False, "cuts": True}
"""Of an op of which nothing is known: it may jump, and round."""
WAYS = tuple(way for ways in BUNDLES.values() for way in ways)
"""The variants that change one call. Other arguments each call may have (``other_arguments``)."""

_NOT_COMPARED = DRAWS_RANDOM_NUMBERS.ops.keys() | UNINITIALIZED.ops.keys() | MANY_RIGHT_ANSWERS.ops.keys()
"""Ops that give other results each time, or have many that are right: comparing element by element is no test."""


def rules(taken: Collection[str]) -> Iterator[OpRule]:
    """Yield a rule for every op that has samples of calls by a public name and is not in ``taken``.

    Of one that PyTorch's database lacks no more is known than of a user's own.
    """
    for op, info in op_database().items():
        if op in taken or {op, info.name} & _NOT_COMPARED or _writes(info.name) or "sparse" in op:
            continue
        target = _public_name(info) or _sampled_name(op)
        for rule in rules_for(op, _lifted(op, target, _source(op)), target) if target else ():
            yield rule if _source(op) is opinfo else replace(rule, **_UNKNOWN)


def _writes(name: str) -> bool:
    """Whether an op is named for writing in place, as ``zero_`` and ``__iand__`` are."""
    if name.startswith("__"):
        return name.startswith("__i") and hasattr(operator, f"__{name[3:]}")
    return name.endswith("_")


def also_lifted(rule: OpRule) -> OpRule:
    """The rule of a family that takes some of its calls from samples, if there are any of the op.

    Those of an elementwise op have no more arguments.
    """
    info = op_database().get(rule.op)
    if info is None or rule.elementwise or {rule.op, info.name} & _NOT_COMPARED:
        return rule
    lifted = _lifted(rule.op, rule.target, _source(rule.op))

    @functools.wraps(rule.draw)
    def draw(draft: Draft) -> Arguments:
        if draft.choices.chance(LIFTED):
            with suppress(CallRejected):  # none calls the op by this name
                return lifted(draft)
        return rule.draw(draft)

    return replace(rule, draw=draw)


def rule_of_custom(op: CustomOp) -> OpRule:
    """The rule of an op of the user's own."""
    dtypes = frozenset(DTYPES[dtype] for dtype in custom.dtypes_of(op.name))
    return OpRule(op.name, op.target, _lifted(op.name, op.target, custom), dtypes, **_UNKNOWN)


def _public_name(info: Any) -> str | None:
    """Return the name under which a program calls exactly what the database calls."""
    for candidate in (f"torch.{info.name}", f"torch.Tensor.{info.name}"):
        if lookup(candidate) is info.op:
            return candidate
    return name_of(info.op)


def _source(op: str) -> Any:
    return functions if op in functions.DATABASE.infos else opinfo


def _sampled_name(op: str) -> str | None:
    """Return the name that an op's samples call, where the database has a function of its own around it."""
    dtypes = _source(op).dtypes_of(op)
    samples = _samples(_source(op), op, dtypes[0]) if dtypes else ()
    return samples[0].program.calls[0].target if samples else None


def _lifted(op: str, target: str, source: Any) -> Callable[[Draft], Arguments]:
    def draw(draft: Draft) -> Arguments:
        samples = _samples(source, op, dtype_name(draft.dtype()))
        if not samples:
            raise CallRejected(f"no sample of {op}")
        sample = draft.choices.pick(samples)
        if draft.choices.chance(VARIED):
            sample = _varied(sample, draft.choices.pick(WAYS))
        call = draft.choices.pick(_calls_of_inputs(sample))
        if call.target != target:
            raise CallRejected(f"{op} is sampled as {call.target}")
        values: dict[Ref, DraftValue] = {}

        def value(leaf: object) -> object:
            if not isinstance(leaf, Ref):
                return leaf
            if leaf not in values:
                values[leaf] = _stand_in(draft, sample.inputs[leaf.name])
            return values[leaf]

        args, kwargs = map_leaves((call.args, call.kwargs), value)
        return Arguments(args, kwargs)

    return draw


def _varied(sample: Case, way: str) -> Case:
    """The sample in a variant, itself where that does not apply."""
    if not VARIANTS.load(way).try_eager:  # nobody knows whether eager takes it
        return sample
    changed = in_a_variant(sample, way)
    return changed if changed is not None and _calls_of_inputs(changed) else sample


def _calls_of_inputs(sample: Case) -> list[Call]:
    """The calls that take nothing of other calls."""
    return [
        call
        for call in sample.program.calls
        if all(leaf.name in sample.inputs for leaf in leaves((call.args, call.kwargs)) if isinstance(leaf, Ref))
    ]


def _stand_in(draft: Draft, tensor: torch.Tensor) -> DraftValue:
    if tensor.numel() > NUMEL:
        raise CallRejected(f"a sample of {tensor.numel()} elements")
    # Integers are mostly indices, sizes or classes: the sample's own are the valid ones.
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        fitting = [
            value
            for value in draft.values
            if not value.last
            and value.shape == tuple(tensor.shape)
            and value.dtype == tensor.dtype
            and (value.exact or not draft.needs_exact)
        ]
        if fitting and draft.choices.chance(75):
            return draft.choices.pick(draft.unpaired(fitting) or fitting)
    return draft.given(tensor)


@functools.cache
def _samples(source: Any, op: str, dtype: str) -> tuple[Case, ...]:
    found = source.iterate([op], [dtype], SAMPLES)
    return tuple(case for case in found if isinstance(case, Case) and len(case.program.calls) == 1)

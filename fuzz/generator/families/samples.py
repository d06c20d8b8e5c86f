"""Every op no family draws by itself: a call is lifted out of the op database's own samples.

The literals of a sample are kept. Each of its tensors is replaced by a value of the program that has the same shape and
dtype, where there is one, and becomes a new input otherwise.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch

from torchstone.conformance.program.call_targets import lookup, name_of
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref, dtype_name, map_leaves
from torchstone.conformance.sources import opinfo
from torchstone.fuzz.generator.draft import NUMEL, Arguments, CallRejected, Draft, DraftValue
from torchstone.fuzz.generator.rounding import names
from torchstone.fuzz.generator.rules import OpRule, op_database, rules_for

SAMPLES = 16
"""Samples an op and dtype to choose from: the first ones, as drawing them costs time."""

RANDOM = names(
    """
    bernoulli cauchy exponential geometric log_normal multinomial normal uniform rand_like randint randint_like
    randn randn_like native_dropout_backward nn.functional.alpha_dropout nn.functional.dropout
    nn.functional.dropout2d nn.functional.dropout3d nn.functional.feature_alpha_dropout nn.functional.rrelu
    nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d
    nn.functional.multi_head_attention_forward svd_lowrank pca_lowrank empty empty_like empty_permuted empty_strided
    new_empty new_empty_strided hash_tensor
    """
)
"""Ops that draw random numbers, or return whatever memory held."""

AMBIGUOUS = names(
    """
    linalg.eig linalg.eigh linalg.svd svd linalg.qr qr geqrf linalg.householder_product ormqr linalg.lu lu
    linalg.lu_factor linalg.lu_factor_ex linalg.ldl_factor linalg.ldl_factor_ex linalg.lstsq linalg.pinv pinverse
    linalg.matrix_rank linalg.cond unique unique_consecutive mode msort histogram histc
    """
)
"""Ops with more than one right answer, or one that hangs on a threshold: comparing element by element is no test."""


def rules(taken: Collection[str]) -> Iterator[OpRule]:
    """Yield a rule for every op of the database that has a public name and is not in ``taken``."""
    for op, info in op_database().items():
        if op in taken or {op, info.name} & (RANDOM | AMBIGUOUS) or info.name.endswith("_") or "sparse" in op:
            continue
        target = _public_name(info)
        if target is not None:
            yield from rules_for(op, _lifted(op, target), target)


def _public_name(info: Any) -> str | None:
    """Return the name under which a program calls exactly what the database calls."""
    for candidate in (f"torch.{info.name}", f"torch.Tensor.{info.name}"):
        if lookup(candidate) is info.op:
            return candidate
    return name_of(info.op)


def _lifted(op: str, target: str) -> Callable[[Draft], Arguments]:
    def draw(draft: Draft) -> Arguments:
        samples = _samples(op, dtype_name(draft.dtype()))
        if not samples:
            raise CallRejected(f"no sample of {op}")
        sample = draft.choices.pick(samples)
        (call,) = sample.program.calls
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


def _stand_in(draft: Draft, tensor: torch.Tensor) -> DraftValue:
    if tensor.numel() > NUMEL:
        raise CallRejected(f"a sample of {tensor.numel()} elements")
    # Integers are mostly indices, sizes or classes: the sample's own are the valid ones.
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        fitting = [
            value
            for value in draft.values
            if value.shape == tuple(tensor.shape)
            and value.dtype == tensor.dtype
            and (value.exact or not draft.needs_exact)
        ]
        if fitting and draft.choices.chance(75):
            return draft.choices.pick(fitting)
    return draft.given(tensor)


@functools.cache
def _samples(op: str, dtype: str) -> tuple[Case, ...]:
    found = opinfo.iterate([op], [dtype], SAMPLES)
    return tuple(case for case in found if isinstance(case, Case) and len(case.program.calls) == 1)

"""Sums in other orders: what adds up, by a rule of its own for the order of the terms."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.controls.contractions import contractions
from torchstone.conformance.controls.control import Control, Kernel, replacing
from torchstone.conformance.controls.operands import (
    MAX_TERMS,
    accumulator,
    as_terms,
    dims_of,
    fused_multiply_add,
    inexact,
    kept,
    two_sum,
)

Combine = Callable[[Tensor, Tensor], Tensor]
Fold = Callable[[Tensor, Combine], Tensor]
"""From terms ``[n, ...]``, one or more, and what combines two of them, to all of them combined: ``[...]``."""

BLOCK = 7
SEED = 7


def forwards(terms: Tensor, combine: Combine) -> Tensor:
    return functools.reduce(combine, terms.unbind(0))


def backwards(terms: Tensor, combine: Combine) -> Tensor:
    return forwards(terms.flip(0), combine)


def in_pairs(terms: Tensor, combine: Combine) -> Tensor:
    while len(terms) > 1:
        even = len(terms) // 2 * 2
        terms = torch.cat([combine(terms[0:even:2], terms[1:even:2]), terms[even:]])
    return terms[0]


def in_blocks(terms: Tensor, combine: Combine) -> Tensor:
    return forwards(torch.stack([forwards(block, combine) for block in terms.split(BLOCK)]), combine)


def shuffled(terms: Tensor, combine: Combine) -> Tensor:
    order = torch.randperm(len(terms), generator=torch.Generator().manual_seed(SEED))
    return forwards(terms[order], combine)


def compensated(terms: Tensor) -> Tensor:
    """The sum of terms, and of what each addition lost (Kahan, 1965; Neumaier, 1974)."""
    total, lost = terms[0], torch.zeros_like(terms[0])
    for term in terms[1:]:
        total, rest = two_sum(total, term)
        lost = lost + rest
    return torch.where(torch.isfinite(total), total + lost, total)


def reduction(
    combine: Callable[[Tensor], Tensor], empty: float, *, prepare: Any = None, average: bool = False
) -> Kernel:
    """The kernel of a sum or a product over dims."""

    def kernel(x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Any:
        x = x if dtype is None else x.to(dtype)
        dims = dims_of(x, dim)
        terms = as_terms(x, dims) if inexact(x) else x
        if not inexact(x) or len(terms) > MAX_TERMS:
            return NotImplemented
        terms = terms.to(accumulator(x.dtype))
        terms = terms if prepare is None else prepare(terms)
        out = combine(terms) if len(terms) else terms.new_full(terms.shape[1:], empty)
        out = out / len(terms) if average and len(terms) else torch.full_like(out, torch.nan) if average else out
        return kept(out, x, dims, keepdim).to(x.dtype)

    return kernel


def _without_nan(terms: Tensor) -> Tensor:
    return torch.where(torch.isnan(terms), 0.0, terms)


def sums(add_up: Callable[[Tensor], Tensor]) -> dict[str, Kernel]:
    """Kernels of all that adds up, given how terms ``[n, ...]`` are."""
    total, mean = reduction(add_up, 0.0), reduction(add_up, 0.0, average=True)
    return {
        "sum": total,
        "sum.dim_IntList": total,
        "mean": mean,
        "mean.dim": mean,
        "nansum": reduction(add_up, 0.0, prepare=_without_nan),
        **contractions(lambda a, b: add_up(a.movedim(-1, 0).unsqueeze(-1) * b.movedim(-2, 0).unsqueeze(-2))),
    }


def products(fold: Fold) -> dict[str, Kernel]:
    kernel = reduction(lambda terms: fold(terms, torch.mul), 1.0)
    return {"prod": kernel, "prod.dim_int": kernel}


def _fused(a: Tensor, b: Tensor) -> Tensor:
    """A matrix product, one fused multiply-add after the other."""
    total = a.new_zeros((*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]))
    for column, row in zip(a.movedim(-1, 0), b.movedim(-2, 0), strict=True):
        total = fused_multiply_add(column.unsqueeze(-1), row.unsqueeze(-2), total)
    return total


def fused_contractions() -> Mapping[str, Kernel]:
    """Matrix products that round once a term, not twice. Of complex numbers four such products are no other order."""
    return contractions(_fused, complex_numbers=False)


_ORDERS: dict[str, tuple[Fold, str]] = {
    "sequential_sums": (forwards, "from the first term to the last"),
    "reversed_sums": (backwards, "from the last term to the first"),
    "pairwise_sums": (in_pairs, "in pairs, these in pairs again"),
    "blocked_sums": (in_blocks, f"in blocks of {BLOCK}, then the blocks"),
    "shuffled_sums": (shuffled, "in a random order that is always the same"),
}

CONTROLS: tuple[Control, ...] = (
    *(
        replacing(
            name,
            f"Sums and products of terms, contractions among them, {order}. Steps that round get the room of a "
            "rounding model, which stands for any order of additions; 16-bit numbers are added in float32.",
            {**sums(lambda terms, fold=fold: fold(terms, torch.add)), **products(fold)},
        )
        for name, (fold, order) in _ORDERS.items()
    ),
    replacing(
        "compensated_sums",
        "Sums that add up what each addition loses, too (Kahan). As close to float64 as eager is, or closer.",
        sums(compensated),
    ),
)

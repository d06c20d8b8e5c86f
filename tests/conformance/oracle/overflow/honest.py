"""Honest ways to compute what programs near the end of the range compute: other orders, groupings and formulas.

All are written out in steps of the dtype that a compiler would compute in (float32 for 16-bit numbers), so that they
overflow where their own steps do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

Fold = Callable[[Tensor, Tensor], Tensor]
Total = Callable[[Tensor], Tensor]
"""From terms, in the last dim, to what they add up to."""


def calculation_dtype(dtype: torch.dtype) -> torch.dtype:
    """What a compiler computes in."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _fold(terms: Tensor, step: Fold) -> Tensor:
    total = terms[..., 0]
    for k in range(1, terms.shape[-1]):
        total = step(total, terms[..., k])
    return total


def _by_halves(terms: Tensor, step: Fold) -> Tensor:
    while terms.shape[-1] > 1:
        odd = terms[..., -1:] if terms.shape[-1] % 2 else terms[..., :0]
        terms = torch.cat([step(terms[..., :-1:2], terms[..., 1::2]), odd], -1)
    return terms[..., 0]


def orders(rng: random.Random, step: Fold = torch.add) -> Iterator[tuple[str, Total]]:
    """Ways to fold terms: in turn, from the end, by halves, shuffled, from the largest, from the smallest."""
    seed = rng.randrange(1 << 30)

    def shuffled(terms: Tensor) -> Tensor:
        return terms[..., torch.randperm(terms.shape[-1], generator=torch.Generator().manual_seed(seed))]

    def sizes(terms: Tensor, descending: bool) -> Tensor:
        return terms.gather(-1, terms.abs().sort(-1, descending=descending).indices)

    def ranked(terms: Tensor) -> Tensor:
        return terms.gather(-1, (terms.real if terms.is_complex() else terms).sort(-1).indices)

    yield "in turn", lambda terms: _fold(terms, step)
    yield "from the end", lambda terms: _fold(terms.flip(-1), step)
    yield "by halves", lambda terms: _by_halves(terms, step)
    yield "shuffled", lambda terms: _fold(shuffled(terms), step)
    yield "the largest first", lambda terms: _fold(sizes(terms, True), step)
    yield "the smallest first", lambda terms: _fold(sizes(terms, False), step)
    yield "the positive apart", lambda terms: _fold(ranked(terms), step)


def welford(x: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and the sum of squares around it of the last dim, in one pass."""
    mean, squares = torch.zeros_like(x[..., 0]), torch.zeros_like(x[..., 0])
    for k in range(x.shape[-1]):
        apart = x[..., k] - mean
        mean = mean + apart / (k + 1)
        squares = squares + apart * (x[..., k] - mean)
    return mean, squares


def two_passes(x: Tensor) -> tuple[Tensor, Tensor]:
    """The same by two sums."""
    mean = x.sum(-1) / x.shape[-1]
    return mean, (x - mean[..., None]).square().sum(-1)


def scaled_mean(x: Tensor) -> tuple[Tensor, Tensor]:
    """The same, terms divided before they are added up."""
    mean = (x / x.shape[-1]).sum(-1)
    return mean, (x - mean[..., None]).square().sum(-1)


MOMENTS = {"Welford": welford, "two passes": two_passes, "divided first": scaled_mean}


def transform_by_matrix(x: Tensor, forward: bool, scale: float, first: bool) -> Tensor:
    """A complex transform of the last dim by its matrix, in real arithmetic, normalized before or after."""
    n = x.shape[-1]
    turns = (torch.outer(torch.arange(n), torch.arange(n)) % n).double() * (2 * torch.pi / n)
    cos, sin = (part.to(x.real.dtype) for part in (torch.cos(turns), torch.sin(turns) * (-1 if forward else 1)))
    re, im = (part * scale if first else part for part in (x.real, x.imag))
    real, imaginary = re @ cos - im @ sin, re @ sin + im @ cos
    return torch.complex(*(part if first else part * scale for part in (real, imaginary)))

"""A wrong twin of a control is found: what holds of the controls does not hold because nothing is looked at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from torchstone.conformance.controls import ambiguity, functions, matrices, statistics, summation
from torchstone.conformance.controls.contractions import contractions
from torchstone.conformance.controls.control import Kernel, replacing
from torchstone.conformance.controls.operands import elementwise
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.program.case import Case

from .examples import BANKS, case, convolutions, normal, product, rows, symmetric


def without_the_last(terms: Tensor) -> Tensor:
    return summation.backwards(terms[:-1] if len(terms) > 1 else terms, torch.add)


def halves_of_16_bits(terms: Tensor) -> Tensor:
    """Each addition rounded to bfloat16."""
    return summation.forwards(terms.bfloat16(), torch.add)


def online_without_rescaling(terms: Tensor) -> tuple[Tensor, Tensor]:
    top, total = torch.full_like(terms[0], -torch.inf), torch.zeros_like(terms[0])
    for block in terms.split(statistics.BLOCK):
        top = torch.maximum(top, block.amax(0))
        total = total + torch.exp(block - top).sum(0)
    return top, total


def wrong_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    top, total = online_without_rescaling(x.movedim(dim, 0))
    return (torch.exp(x.movedim(dim, 0) - top) / total).movedim(0, dim)


def in_one_naive_pass(terms: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of the squares less the square of the mean, which cancel far from 0."""
    mean = terms.mean(0)
    return mean, ((terms * terms).mean(0) - mean * mean) * len(terms)


def one_vector_turned(a: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: Any = None) -> Any:
    u, s, vh = torch.ops.aten._linalg_svd(a, full_matrices, compute_uv, driver=driver)
    return u * ambiguity.phases(u.shape[-1], u.dtype), s, vh


def never_stable(x: Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False) -> Any:
    return ambiguity.last_of_ties(x, dim, descending)


def strassen_with_a_wrong_sign(a: Tensor, b: Tensor) -> Tensor:
    out = a @ b
    out[..., 0, 0] -= 2.0 * a[..., 0, -1] * b[..., -1, 0]
    return out


def winograd_in_float32(x: Tensor, weight: Tensor, *rest: Any) -> Any:
    """What Winograd's algorithm gives at the precision of its operands, beside one that is much larger."""
    return matrices.winograd(x.double(), weight.double(), *rest).float().bfloat16().float()


def expm1_by_subtraction(x: Tensor) -> Tensor:
    return functions.exp_by_exp2(x.double()).float() - 1.0


GRADED = rows("torch.var", 1)[0].replace(inputs={"x0": normal(32, 101) + 3000.0})

TWINS: dict[str, tuple[Callable[[], Mapping[str, Kernel]], Callable[[], Case]]] = {
    "last term left out": (lambda: summation.sums(without_the_last), product),
    "sums of 16 bits": (
        lambda: summation.sums(halves_of_16_bits),
        lambda: case(("torch.sum", "x0"), inputs=(torch.ones(1024, dtype=torch.bfloat16),)),
    ),
    "softmax not rescaled": (lambda: {"_softmax": wrong_softmax}, lambda: rows("torch.softmax", 1)[0]),
    "variance by naive sums": (lambda: statistics.variances(in_one_naive_pass), lambda: GRADED),
    "one factor's signs": (
        lambda: {"_linalg_svd": one_vector_turned},
        lambda: case(("torch.linalg.svd", "x0"), inputs=(normal(5, 3),)),
    ),
    "stable sort that is not": (
        lambda: {"sort.stable": never_stable},
        lambda: case(("torch.sort", "x0"), inputs=(BANKS,), stable=True),
    ),
    "a wrong product in Strassen": (lambda: contractions(strassen_with_a_wrong_sign), product),
    "Winograd in 16 bits": (lambda: matrices.convolution(winograd_in_float32), lambda: convolutions()[0]),
    "expm1 that cancels": (
        lambda: {"expm1": elementwise(expm1_by_subtraction)},
        lambda: case(("torch.expm1", "x0"), inputs=(torch.linspace(-0.01, 0.01, 999),)),
    ),
    "eigenvectors exchanged": (
        lambda: {"_linalg_eigh": lambda a, *rest: _exchanged(*torch.ops.aten._linalg_eigh(a, *rest))},
        lambda: case(("torch.linalg.eigh", "x0"), inputs=(symmetric(),)),
    ),
}


def _exchanged(values: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    return values, vectors.flip(-1)


@pytest.mark.few(1)
@pytest.mark.parametrize("what", TWINS)
def test_a_wrong_twin_is_found(what: str) -> None:
    table, example = TWINS[what]
    verdict = run_case(example(), replacing("twin", "None.", table()))
    assert verdict.outcome == "mismatch", verdict.outcome
    assert verdict.evidence["ran"]["control"]

"""Eager with the pivots that the backend shows, where another row is as large: factors and gradients follow from them.

A factorization by pivots takes the largest of the rows that are left. Of several that are as large, or are so but for
rounding, any may be taken: eager is run again with the order of the rows that a result of the backend tells. Results
that do not tell it, such as a gradient alone, stay as they are.

    lu_factor([[1, 0], [-1, 2]]):    pivots [1, 2] in eager, and [2, 2] is right
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.conformance.oracle.ambiguity.otherwise import otherwise_if_made
from torchstone.conformance.oracle.op_traits.right_answers import PIVOTS
from torchstone.conformance.oracle.op_traits.trait import Implementations
from torchstone.conformance.oracle.pytree import dense, flatten

if TYPE_CHECKING:
    from torchstone.conformance.oracle.reference.runs import Referee

_ROUNDED = 64
"""How many ULPs below the largest a pivot may be."""
MOST_WORK = 2**24
"""Multiplications of an elimination, at most: others stay as they are, as it is run many times."""


class _Rule(NamedTuple):
    """Which of the results tells the order of the rows, that order as a matrix (None for what is none), and the results
    by such a one, its matrix, and both factors in one."""

    place: int
    order: Callable[[Tensor, int], Tensor | None]
    results: Callable[[Tensor, Tensor, Tensor], Any]


_RULES: Implementations[_Rule] = Implementations(PIVOTS)


def _of_pivots(pivots: Tensor, rows: int) -> Tensor | None:
    if not bool(((pivots >= 1) & (pivots <= rows)).all()):
        return None
    nothing = torch.zeros(*pivots.shape[:-1], rows, pivots.shape[-1], dtype=torch.float64)
    return torch.lu_unpack(nothing, pivots, unpack_data=False)[0]


def _of_matrix(matrix: Tensor, rows: int) -> Tensor | None:
    wide = matrix.real.double()
    moves = bool(((wide == 0) | (wide == 1)).all()) and bool((wide.sum(-1) == 1).all() & (wide.sum(-2) == 1).all())
    return wide if moves else None


def _with_pivots(shown: Tensor, order: Tensor, factors: Tensor) -> Any:
    zero = torch.diagonal(factors, dim1=-2, dim2=-1) == 0
    return factors, shown, torch.where(zero.any(-1), zero.int().argmax(-1) + 1, 0).to(torch.int32)


def _with_matrix(shown: Tensor, order: Tensor, factors: Tensor) -> Any:
    pivots = torch.zeros(factors.shape[:-1], dtype=torch.int32)
    return order, *torch.lu_unpack(factors, pivots, unpack_pivots=False)[1:]


_RULES.register("linalg_lu_factor_ex")(_Rule(1, _of_pivots, _with_pivots))
_RULES.register("linalg_lu")(_Rule(0, _of_matrix, _with_matrix))


class ShownPivots(ComputingMode):
    """Runs eager with the order of rows that one of the ``shown`` results tells, if its pivots are as large as any.

    ``made``: whether there was another than eager's.
    """

    def __init__(self, shown: Sequence[Any]) -> None:
        super().__init__()
        self._shown = [dense(leaf) for leaf in shown if isinstance(leaf, Tensor) and leaf.layout is torch.strided]
        self.made = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        rule = _RULES.of(func)
        if rule is None or not out[rule.place].numel():
            return out
        matrix, own = args[0], out[rule.place]
        if matrix.numel() * min(matrix.shape[-2:]) > MOST_WORK:
            return out
        for leaf in self._shown:
            if leaf.shape != own.shape or (leaf.dtype == torch.int32) != (own.dtype == torch.int32):
                continue
            order = rule.order(leaf, matrix.shape[-2])
            if order is None or torch.equal(leaf.to(own.dtype), own):
                continue
            factors = _eliminated(order.mT.to(matrix.dtype) @ matrix)
            below = factors.tril(-1)[..., : min(factors.shape[-2:])]
            if float(below.abs().amax()) <= self._largest(matrix):
                self.made = True
                return rule.results(leaf, order.to(matrix.dtype), factors)
        return out

    @staticmethod
    def _largest(matrix: Tensor) -> float:
        """What elements below the diagonal may be: of a complex pivot LAPACK takes the sum of the parts."""
        eps = torch.finfo(torch.float32).eps  # the float64 run has the pivots of float32, too
        return (2**0.5 if matrix.is_complex() else 1.0) * (1 + _ROUNDED * eps)


def _eliminated(matrix: Tensor) -> Tensor:
    """Both factors in one, the rows in the order that they have."""
    a = matrix.clone()
    for k in range(min(a.shape[-2:])):
        pivot = a[..., k : k + 1, k : k + 1]
        below = torch.where(pivot == 0, a[..., k + 1 :, k : k + 1], a[..., k + 1 :, k : k + 1] / pivot)
        a[..., k + 1 :, k : k + 1] = below
        a[..., k + 1 :, k + 1 :] -= torch.where(pivot == 0, 0.0, below) * a[..., k : k + 1, k + 1 :]
    return a


def pivot_ambiguity(referee: Referee, expected: Any, actual: Any) -> Iterator[tuple[Referee, Any, Any]]:
    """Eager with the backend's pivots, if the program has such: the referee, eager's run and the backend's."""
    shown = [*flatten(actual.outputs), *actual.inputs]
    return otherwise_if_made(partial(ShownPivots, shown), referee, expected, actual)

"""Signs and phases of singular vectors and eigenvectors, which a factorization leaves open.

``U diag(S) Vh`` stays what it is when a column of U takes a phase and its row of Vh the opposite one, and LAPACK's
choice turns with the last bit of the input. What a program computes from the vectors turns with it, gradients most of
all: a float64 run with another choice is no reference. So eager's factors are recorded, and each float64 factorization
takes the phases that bring it nearest to them. That is a right factorization still, to the last bit where the phase is
a sign.

Eigenvalues of a matrix that is not symmetric come in no particular order, and the vectors in theirs: they are aligned
in the same way.

A backend makes a choice of its own. Where columns of its results differ from eager's by phases, or eigenvalues by
their order, they show the choice: eager and the float64 runs are computed again with it, and the backend is compared
with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.conformance.oracle.op_traits.right_answers import FREE_PHASES
from torchstone.conformance.oracle.op_traits.trait import Implementations
from torchstone.conformance.oracle.pytree import flatten

if TYPE_CHECKING:
    from torchstone.conformance.oracle.reference.runs import Referee


class RecordFactors(ComputingMode):
    """Records the results of the factorizations whose vectors have a free phase, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[Any, tuple[Tensor, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if FREE_PHASES.holds(func):
            self.found.append((func, tuple(part.clone() for part in out)))
        return out


class AlignPhases(ComputingMode):
    """Gives each factorization the phases of the one recorded in its place."""

    def __init__(self, recorded: list[tuple[Any, tuple[Tensor, ...]]]) -> None:
        super().__init__()
        self._recorded = iter(recorded)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not FREE_PHASES.holds(func):
            return out
        recorded, parts = next(self._recorded, (None, ()))
        if recorded is not func or any(a.shape != b.shape for a, b in zip(out, parts, strict=True)):
            return out
        rule = _rule(func)
        out = rule.order(out, parts)
        mine, its = rule.vectors(out), rule.vectors(parts)
        turned = rule.turn(out, _phase(mine, its.to(mine.dtype))) if mine.numel() else out
        rests = zip(rule.rest(turned), rule.rest(parts), strict=True)
        return rule.with_rest(turned, [_nearest(columns, wanted.to(mine.dtype)) for columns, wanted in rests])


def _phase(mine: Tensor, recorded: Tensor) -> Tensor:
    """What brings each column nearest to the recorded one when multiplied by it: [..., 1, columns]; 1 for any."""
    # Conjugated in memory: below a dispatch mode nobody looks at the conjugate bit.
    towards = (mine.conj_physical() * recorded).sum(-2, keepdim=True)
    return torch.where((towards.abs() > 0) & torch.isfinite(towards.abs()), torch.sgn(towards), 1.0)


def phase_choices(recorded: list[Any], expected: list[Any], actual: list[Any]) -> Iterator[list[Any]]:
    """Eager's factorizations with the phases that a backend's results have beside eager's, by each of the results.

    Of several factorizations all take them, or the last alone, whose vectors a result is made of: what undoes the
    phases of those before it (U of ``svd(Q^H A)`` in ``Q U``) mixes them, and leaves others than were asked for.
    """
    for mine, given in zip(expected, actual, strict=True) if recorded else ():
        if not (_columns(mine) and _columns(given)) or mine.shape != given.shape or mine.dtype != given.dtype:
            continue
        phase = _phase(mine.resolve_conj(), given.resolve_conj())
        turned = [(func, _turned(func, parts, phase)) for func, parts in recorded]
        fitting = [at for at, (one, other) in enumerate(zip(turned, recorded, strict=True)) if one[1] is not other[1]]
        if fitting and bool((phase != 1).any()):
            yield turned
            if len(fitting) > 1:
                yield [turned[at] if at == fitting[-1] else recorded[at] for at in range(len(recorded))]
        for columns in ((mine, given), (mine.mH, given.mH)):
            turned = [(func, _beyond(func, parts, *map(torch.resolve_conj, columns))) for func, parts in recorded]
            if any(one[1] is not other[1] for one, other in zip(turned, recorded, strict=True)):
                yield turned


def _columns(value: Any) -> bool:
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.dim() < 2:
        return False
    return value.is_floating_point() or value.is_complex()


def _turned(func: Any, parts: tuple[Tensor, ...], phase: Tensor) -> tuple[Tensor, ...]:
    """A factorization with other phases; itself if they are not of as many vectors, or of another dtype."""
    rule = _rule(func)
    mine = rule.vectors(parts)
    if mine.dtype != phase.dtype or not mine.numel() or (*mine.shape[:-2], 1, mine.shape[-1]) != phase.shape:
        return parts
    return rule.turn(parts, phase)


def _beyond(func: Any, parts: tuple[Tensor, ...], mine: Tensor, given: Tensor) -> tuple[Tensor, ...]:
    """A factorization with the phases of given columns, and with those beyond them that are nearest to the given ones;
    itself where it has none beyond, or not as many."""
    rule = _rule(func)
    vectors, rest = rule.vectors(parts), rule.rest(parts)
    count, beyond = vectors.shape[-1], mine.shape[-1] - vectors.shape[-1]
    fits = vectors.dtype == mine.dtype and vectors.shape[:-2] == mine.shape[:-2]
    if not fits or beyond not in {columns.shape[-1] for columns in rest if columns.numel()}:
        return parts
    turn = _turn_between(mine[..., count:], given[..., count:])
    turned = [columns @ turn if columns.shape[-1] == beyond else columns for columns in rest]
    phase = _phase(mine, given)[..., :count]
    return rule.with_rest(rule.turn(parts, phase) if count else parts, turned)


def _nearest(columns: Tensor, wanted: Tensor) -> Tensor:
    """Columns that span what these do, and are nearest to others."""
    return columns @ _turn_between(columns, wanted) if columns.numel() else columns


def _turn_between(columns: Tensor, wanted: Tensor) -> Tensor:
    """The unitary matrix that takes columns nearest to others; 1 where these are no numbers."""
    between = columns.conj_physical().mT @ wanted
    if not bool(torch.isfinite(torch.view_as_real(between) if between.is_complex() else between).all()):
        return torch.eye(between.shape[-1], dtype=between.dtype)
    left, _, right = torch.linalg.svd(between)
    return left @ right


class OtherFactors(ComputingMode):
    """Gives each factorization other vectors that are as right: with other signs, and others that belong to nothing.

    ``met`` says whether there was one. Its random numbers are its own: with an odd number they are those of the even
    one before it, of the other sign, so that of the two each vector has the other one in one.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.met = False
        self._sign = -1 if number % 2 else 1
        self._generator = torch.Generator().manual_seed(number // 2)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if not FREE_PHASES.holds(func):
            return out
        self.met = True
        rule = _rule(func)
        vectors = rule.vectors(out)
        if vectors.numel():
            signs = torch.randint(0, 2, (vectors.shape[-1],), generator=self._generator) * 2 - 1
            signs *= self._sign
            out = rule.turn(out, signs.to(vectors.dtype).expand(*vectors.shape[:-2], 1, -1))
        return rule.with_rest(out, [self._orthogonal(columns) for columns in rule.rest(out)])

    def _orthogonal(self, columns: Tensor) -> Tensor:
        """Other columns that span what these do."""
        size = columns.shape[-1]
        if not size:
            return columns
        q, r = torch.linalg.qr(torch.randn(size, size, generator=self._generator, dtype=torch.float64))
        return columns @ (self._sign * q * r.diagonal().sgn()).to(columns.dtype)


@dataclass(frozen=True)
class PhaseRule:
    """``vectors`` gives the columns with free phases of a factorization's results, ``turn`` the factorization with
    these columns multiplied by given phases. ``rest`` gives columns of which nothing but their span counts, in groups,
    and ``with_rest`` the factorization with others in their place. ``order`` gives the one whose values lie nearest to
    those of another."""

    vectors: Callable[[tuple[Tensor, ...]], Tensor]
    turn: Callable[[tuple[Tensor, ...], Tensor], tuple[Tensor, ...]]
    rest: Callable[[tuple[Tensor, ...]], list[Tensor]] = lambda parts: []
    with_rest: Callable[[tuple[Tensor, ...], list[Tensor]], tuple[Tensor, ...]] = lambda parts, rest: parts
    order: Callable[[tuple[Tensor, ...], tuple[Tensor, ...]], tuple[Tensor, ...]] = lambda parts, wanted: parts


def _singular_vectors(parts: tuple[Tensor, ...]) -> Tensor:
    """Those on the left that have one on the right."""
    left, singular, _ = parts
    return left[..., : singular.shape[-1]] if left.dim() > 1 else left


def _turn_svd(parts: tuple[Tensor, ...], phase: Tensor) -> tuple[Tensor, ...]:
    left, singular, right = parts
    count = singular.shape[-1]
    left, right = left.clone(), right.clone()
    left[..., :count] *= phase
    right[..., :count, :] *= phase.conj_physical().mT
    return left, singular, right


def _beyond_the_values(parts: tuple[Tensor, ...]) -> list[Tensor]:
    """Singular vectors that no value belongs to; where values alone were asked for there are none."""
    left, singular, right = parts
    count = singular.shape[-1]
    return [left[..., count:], right[..., count:, :].conj_physical().mT] if left.dim() > 1 else []


def _svd_with_rest(parts: tuple[Tensor, ...], rest: list[Tensor]) -> tuple[Tensor, ...]:
    left, singular, right = parts
    if not rest:
        return parts
    count = singular.shape[-1]
    of_left = torch.cat([left[..., :count], rest[0]], -1)
    return of_left, singular, torch.cat([right[..., :count, :], rest[1].conj_physical().mT], -2)


def _rest_of_q(parts: tuple[Tensor, ...]) -> list[Tensor]:
    """Columns of Q whose rows of R are 0."""
    q, r = parts
    return [q[..., min(r.shape[-2:]) :]] if q.dim() > 1 else []


def _qr_with_rest(parts: tuple[Tensor, ...], rest: list[Tensor]) -> tuple[Tensor, ...]:
    q, r = parts
    return (torch.cat([q[..., : min(r.shape[-2:])], *rest], -1) if rest else q), r


def _columns_of_q(parts: tuple[Tensor, ...]) -> Tensor:
    """The columns of Q that R has a row for: none where only R was asked for, its Q is empty."""
    q, r = parts
    return q[..., : min(r.shape[-2:])] if q.dim() >= 2 else q


def _turn_qr(parts: tuple[Tensor, ...], phase: Tensor) -> tuple[Tensor, ...]:
    q, r = (part.clone() for part in parts)
    count = phase.shape[-1]
    q[..., :count] *= phase
    r[..., :count, :] *= phase.conj_physical().mT
    return q, r


def _ordered(parts: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Eigenvalues and vectors in the order in which the values lie nearest to others, all together."""
    values, vectors = parts
    if not values.numel():
        return parts
    mine, its = (part.reshape(-1, part.shape[-1]) for part in (values, wanted[0]))
    if not all(bool(torch.isfinite(torch.view_as_real(part)).all()) for part in (mine, its)):
        return parts
    distance = (its.unsqueeze(-1).to(torch.complex128) - mine.unsqueeze(-2)).abs().numpy()
    rows = [torch.from_numpy(linear_sum_assignment(each)[1]) for each in distance]
    order = torch.stack(rows).reshape(values.shape)
    return values.gather(-1, order), vectors.gather(-1, order.unsqueeze(-2).expand_as(vectors))


def _turn_eigenvectors(parts: tuple[Tensor, ...], phase: Tensor) -> tuple[Tensor, ...]:
    values, vectors = parts
    return values, vectors * phase


_RULES: Implementations[PhaseRule] = Implementations(FREE_PHASES)
_RULES.register("_linalg_svd.default")(PhaseRule(_singular_vectors, _turn_svd, _beyond_the_values, _svd_with_rest))
_RULES.register("_linalg_eigh.default")(PhaseRule(lambda parts: parts[1], _turn_eigenvectors))
_RULES.register("linalg_eig.default")(PhaseRule(lambda parts: parts[1], _turn_eigenvectors, order=_ordered))
_RULES.register("linalg_qr.default")(PhaseRule(_columns_of_q, _turn_qr, _rest_of_q, _qr_with_rest))


def _rule(func: Any) -> PhaseRule:
    rule = _RULES.of(func)
    assert rule is not None, f"{func} has no rule for its phases"
    return rule


def _order_choices(recorded: list[Any], actual: list[Any]) -> Iterator[list[Any]]:
    """Eager's factorizations with their values in the order of a backend's results, by each of the results."""
    for given in actual:
        if not isinstance(given, Tensor) or not given.is_complex():
            continue
        turned = [(func, _in_order_of(func, parts, given)) for func, parts in recorded]
        if any(bool((one[1][0] != other[1][0]).any()) for one, other in zip(turned, recorded, strict=True)):
            yield turned


def _in_order_of(func: Any, parts: tuple[Tensor, ...], values: Tensor) -> tuple[Tensor, ...]:
    fits = parts[0].shape == values.shape and parts[0].dtype == values.dtype
    return _rule(func).order(parts, (values.resolve_conj(),)) if fits else parts


def phase_ambiguity(referee: Referee, expected: Any, actual: Any) -> Iterator[tuple[Referee, Any, Any]]:
    """For each choice of order and phases that the backend's results show: the referee, eager's run and the backend's,
    as flat lists. Eager is run again with its own factors turned so, and the float64 runs with it."""
    given = flatten(actual.outputs)

    def runs_with(factors: list[Any]) -> Iterator[tuple[Referee, Any, Any]]:
        turned = referee.inside(partial(AlignPhases, factors))
        leaves = turned.eager.leaves
        if leaves:
            wanted = replace(expected, outputs=leaves[: len(given)], inputs=tuple(leaves[len(given) :]))
            yield turned, wanted, replace(actual, outputs=given)

    starts = [(referee.factorizations, flatten(expected.outputs))]
    for factors in _order_choices(referee.factorizations, given):
        for choice in runs_with(factors):
            yield choice
            starts.append((factors, choice[1].outputs))
    for factors, outputs in starts:
        for turned in phase_choices(factors, outputs, given):
            yield from runs_with(turned)

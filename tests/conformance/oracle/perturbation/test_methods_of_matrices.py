"""Another method for a matrix is as right as LAPACK's, and no method excuses a wrong number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.compare import judge
from torchstone.conformance.oracle.finding import Observed
from torchstone.conformance.program.program import Call, Program, Ref


def verdict(target: str, inputs: tuple[Tensor, ...], given: Any) -> Outcome:
    names = tuple(f"x{k}" for k in range(len(inputs)))
    program = Program(names, (Call(target, tuple(map(Ref, names)), {}, "r"),), Ref("r"))
    return judge(program, inputs, Observed(program(*inputs), inputs), Observed(given, inputs)).outcome


def _inverse_by_gauss_and_jordan(a: Tensor) -> Tensor:
    n = a.shape[-1]
    rows = torch.cat([a.clone(), torch.eye(n, dtype=a.dtype)], -1)
    for k in range(n):
        largest = int(rows[k:, k].abs().argmax()) + k
        rows[[k, largest]] = rows[[largest, k]]
        rows[k] /= rows[k, k].clone()
        others = torch.arange(n) != k
        rows[others] -= rows[others, k : k + 1] * rows[k]
    return rows[:, n:]


def _solved_by_reflections(a: Tensor, b: Tensor) -> Tensor:
    q, r = torch.linalg.qr(a)
    return torch.linalg.solve_triangular(r, q.mT @ b, upper=True)


def _inverse_by_reflections(a: Tensor) -> Tensor:
    return _solved_by_reflections(a, torch.eye(a.shape[-1], dtype=a.dtype))


def _determinant_by_reflections(a: Tensor) -> Tensor:
    q, r = torch.linalg.qr(a)
    return r.diagonal().prod() * torch.linalg.det(q).sign()


def _pseudoinverse_by_rotations(a: Tensor) -> Tensor:
    """Jacobi's one-sided rotations make the columns orthogonal."""
    u, v = a.clone(), torch.eye(a.shape[1], dtype=a.dtype)
    for _ in range(30):
        for p in range(a.shape[1]):
            for q in range(p + 1, a.shape[1]):
                between = u[:, p] @ u[:, q]
                if between == 0:
                    continue
                z = (u[:, q] @ u[:, q] - u[:, p] @ u[:, p]) / (2 * between)
                t = torch.copysign(1 / (z.abs() + torch.hypot(torch.ones(()), z)), z)
                c = 1 / torch.hypot(torch.ones(()), t)
                turn = torch.stack([torch.stack([c, c * t]), torch.stack([-c * t, c])])
                u[:, [p, q]], v[:, [p, q]] = u[:, [p, q]] @ turn, v[:, [p, q]] @ turn
    values = u.norm(dim=0)
    kept = values > values.max() * max(a.shape) * torch.finfo(a.dtype).eps
    return (v[:, kept] / values[kept]) @ (u[:, kept] / values[kept]).mT


def _matrices() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(5)
    scales = torch.diag(10.0 ** torch.arange(-3.0, 3.0))
    ties = [torch.randint(-1, 2, (5, 5), generator=draw).float() for _ in range(12)]
    found = {f"ties {k}": one for k, one in enumerate(ties) if torch.linalg.matrix_rank(one) == 5}
    for k in range(3):
        found[f"normal {k}"] = torch.randn(6, 6, generator=draw)
        found[f"rows of many sizes {k}"] = scales @ torch.randn(6, 6, generator=draw)
        found[f"columns of many sizes {k}"] = torch.randn(6, 6, generator=draw) @ scales
        found[f"far from 0 {k}"] = 4096 + torch.rand(5, 5, generator=draw)
        two = torch.randn(6, 2, generator=draw)
        found[f"nearly of rank 2 {k}"] = two @ two.mT + 1e-4 * torch.randn(6, 6, generator=draw)
    return found


MATRICES = _matrices()
METHODS: list[tuple[str, Callable[[Tensor], Tensor]]] = [
    ("torch.linalg.inv", _inverse_by_gauss_and_jordan),
    ("torch.linalg.inv", _inverse_by_reflections),
    ("torch.linalg.det", _determinant_by_reflections),
    ("torch.linalg.pinv", _pseudoinverse_by_rotations),
    ("torch.linalg.pinv", lambda a: torch.linalg.pinv(a.mT.contiguous()).mT),
]


@pytest.mark.few(2)
@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("target, method", METHODS)
def test_another_method_is_no_failure(target: str, method: Callable[[Tensor], Tensor], name: str) -> None:
    a = MATRICES[name]
    assert verdict(target, (a,), method(a)) in (Outcome.PASS, Outcome.ILL_CONDITIONED)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", MATRICES)
def test_another_method_for_equations(name: str) -> None:
    a = MATRICES[name]
    b = torch.randn(a.shape[0], 2, generator=torch.Generator().manual_seed(7))
    assert verdict("torch.linalg.solve", (a, b), _solved_by_reflections(a, b)) in (
        Outcome.PASS,
        Outcome.ILL_CONDITIONED,
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("target", ["torch.linalg.inv", "torch.linalg.pinv"])
@pytest.mark.parametrize("name", [name for name, a in MATRICES.items() if torch.linalg.cond(a) < 1e3])
def test_a_wrong_number_is_one(target: str, name: str) -> None:
    a = MATRICES[name]
    wrong = torch.linalg.inv(a)
    wrong[2, 1] += 0.01 * wrong.abs().max()
    assert verdict(target, (a,), wrong) is Outcome.MISMATCH
    assert verdict(target, (a,), torch.linalg.inv(a).mT.contiguous()) is Outcome.MISMATCH

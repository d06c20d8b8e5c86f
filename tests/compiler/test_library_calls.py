"""Library calls: what no target hand-writes is LibTorch's, marked as such, and off when the user says so."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

import torchstone
from torchstone.compiler.diagnostics import GuardError, Unsupported
from torchstone.compiler.library import FAMILIES, LIBRARY
from torchstone.compiler.lowering.registry import find_target

TARGETS = ("evaluator", "linalg")


def spd(n: int = 4) -> torch.Tensor:
    x = torch.randn(n, n, dtype=torch.float64)
    return x @ x.mT + n * torch.eye(n, dtype=torch.float64)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "svd": lambda x: torch.linalg.svd(x + 1)[1] * 2,
    "eigh": lambda x: torch.linalg.eigh(x).eigenvalues.exp(),
    "eigvals": lambda x: torch.linalg.eigvals(x).abs().sum(),
    "qr": lambda x: torch.linalg.qr(x).R.abs(),
    "inv": lambda x: torch.linalg.inv(x) @ x,
    "solve": lambda x: torch.linalg.solve(x, x[0]) + x,
    "cholesky": lambda x: torch.linalg.cholesky(x).sum(),
    "det": lambda x: torch.linalg.det(x) + torch.linalg.slogdet(x).logabsdet,
    "lu": lambda x: torch.linalg.lu(x),
    "lstsq": lambda x: torch.linalg.lstsq(x, x[:, :2] * 3).solution,
    "pinv": lambda x: torch.linalg.pinv(x),
    "matrix_exp": lambda x: torch.matrix_exp(x / 8) + 1,
    "triangular": lambda x: torch.linalg.solve_triangular(x.tril(), x, upper=False),
}


@pytest.mark.parametrize(("name", "target"), [*itertools.product(PROGRAMS, TARGETS)])
def test_agrees_with_eager(name: str, target: str) -> None:
    exe = torchstone.compile(PROGRAMS[name], (spd(),), target)
    assert exe.library_calls
    for _ in range(2):
        x = spd()
        torch.testing.assert_close(exe(x), PROGRAMS[name](x))
        torch.testing.assert_close(exe(x.mT), PROGRAMS[name](x.mT))


@pytest.mark.parametrize("target", TARGETS)
def test_a_factorization_that_fails_raises_what_eager_raises(target: str) -> None:
    exe = torchstone.compile(torch.linalg.inv, (spd(),), target)
    with pytest.raises(torch.linalg.LinAlgError, match=r"linalg.inv: The diagonal element 1 is zero"):
        exe(torch.zeros(4, 4, dtype=torch.float64))


def test_the_error_is_kept_when_the_result_is_not_used() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        torch.linalg.inv(x)
        return x + 1

    with pytest.raises(torch.linalg.LinAlgError):
        torchstone.compile(program, (torch.eye(2),))(torch.zeros(2, 2))


RANDOM: dict[str, Callable[..., Any]] = {
    "rand": lambda x: torch.rand(3) + torch.rand_like(x),
    "unused draw": lambda x: (torch.randn(7), torch.randn(4))[1] + x,
    "order": lambda x: (torch.randn(4) - torch.rand(4) * x, torch.randint(0, 9, (5,)), torch.randperm(6)),
    "bernoulli": lambda x: torch.bernoulli(torch.sigmoid(x)),
    "normal": lambda x: torch.normal(x, 2.0) + torch.normal(0.0, 1.0, (4,)),
    "dropout": lambda x: torch.nn.functional.dropout(x + 1, 0.5, True),
    "in place": lambda x: x.clone().exponential_() + torch.empty(4).uniform_(2, 3).log(),
    "multinomial": lambda x: torch.multinomial(torch.softmax(x, 0), 3),
    "seeded": lambda x: (torch.rand(4) * x, torch.manual_seed(7) and torch.rand(4), torch.rand(2)),
    "seeded twice": lambda x: (torch.manual_seed(7) and torch.rand(4), torch.manual_seed(7) and torch.rand(4) + x),
    "seeded last": lambda x: (torch.rand(4) + x, torch.manual_seed(9))[0],
    "rrelu": lambda x: torch.nn.functional.rrelu(x, training=True),
}


@pytest.mark.parametrize(("name", "target"), [*itertools.product(RANDOM, TARGETS)])
def test_random_numbers_are_eagers(name: str, target: str) -> None:
    program = RANDOM[name] if name != "rand" else lambda x: RANDOM[name](x[:3])
    exe = torchstone.compile(program, (torch.randn(4),), target)
    x = torch.randn(4)
    for seed in (0, 1):
        torch.manual_seed(seed)
        expected = program(x)
        state = torch.get_rng_state()
        torch.manual_seed(seed)
        torch.testing.assert_close(exe(x), expected)
        assert torch.equal(torch.get_rng_state(), state)


def test_capturing_draws_nothing() -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    torchstone.compile(lambda x: torch.rand(3) + x, (torch.ones(3),))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_state_set_by_the_program_is_refused() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.random.fork_rng():
            torch.rand(2)
        return x + torch.rand(3)

    with pytest.raises(Unsupported, match="sets the state of the random generator"):
        torchstone.compile(program, (torch.ones(3),))


@pytest.mark.parametrize(
    "options", [{"library_calls": False}, {"target": replace(find_target("tosa"), schedules=False)}]
)
def test_refused_by_name_where_calls_are_not_made(options: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match=r"aten.linalg_qr.default is a call into LibTorch \(LAPACK") as caught:
        torchstone.compile(lambda x: torch.linalg.qr(x).Q + 1, (torch.eye(3),), **options)
    assert caught.value.op == "aten.linalg_qr.default"


def test_compiled_code_makes_no_calls() -> None:
    assert torchstone.compile(torch.exp, (torch.ones(3),)).library_calls == ()
    assert "schedule" not in torchstone.compile(torch.exp, (torch.ones(3),)).ir


def test_outputs_belong_to_the_caller() -> None:
    exe = torchstone.compile(lambda x: (x, torch.linalg.qr(x).R, x), (torch.eye(3),), alias_results=False)
    x = torch.eye(3)
    first, r, second = exe(x)
    for tensor in (r, first, second):
        tensor.add_(1)
    assert torch.equal(x, torch.eye(3))


def test_sizes_of_the_program_reach_calls_and_kernels() -> None:
    n = torch.export.Dim("n", min=2)
    program = lambda x: torch.linalg.inv(x.mT @ x + torch.eye(x.shape[1])).sum(0) + torch.ones(x.shape[1])  # noqa: E731
    exe = torchstone.compile(program, (torch.randn(9, 4),), "linalg", ({1: n},))
    for size in (2, 3, 6):
        x = torch.randn(9, size)
        torch.testing.assert_close(exe(x), program(x))


def test_a_result_of_another_shape_is_refused() -> None:
    """The residuals of lstsq are there or not, as the rank of the matrix has it."""
    exe = torchstone.compile(lambda a, b: torch.linalg.lstsq(a, b, driver="gelsd").residuals, (_tall(3), _tall(2)))
    assert exe(_tall(3), _tall(2)).shape == (2,)
    with pytest.raises(GuardError, match=r"linalg_lstsq.default was compiled to give f32\[2\], and gives float32\[0\]"):
        exe(torch.zeros(5, 3), _tall(2))


def _tall(columns: int) -> torch.Tensor:
    return torch.randn(5, columns)


def test_the_table_names_ops_of_pytorch_that_write_nothing_and_alias_nothing() -> None:
    assert len(LIBRARY) == sum(len(family.ops) for family in FAMILIES)
    for name in LIBRARY:
        packet = getattr(torch.ops.aten, name.removeprefix("aten."))
        schemas = [getattr(packet, overload)._schema for overload in packet.overloads()]
        functional = [schema for schema in schemas if not schema.is_mutable]
        assert functional
        assert not any(a.alias_info for s in functional for a in (*s.arguments, *s.returns)), name


@pytest.mark.parametrize(("vectors", "asked"), [(False, "false, false, none"), (True, "false, true, none")])
def test_singular_values_alone_are_computed_without_vectors(vectors: bool, asked: str) -> None:
    """As in eager: LAPACK's algorithm for the vectors is another one, and gives up where the first does not."""
    program = lambda x: torch.linalg.svd(x, False)[0 if vectors else 1].abs()  # noqa: E731
    exe = torchstone.compile(program, (_tall(3),))
    assert f"aten._linalg_svd.default(%x0, {asked})" in exe.ir["contract"]
    x = _tall(3)
    torch.testing.assert_close(exe(x), program(x))

"""The oracle on what follows from singular vectors and eigenvectors, whose signs PyTorch leaves open."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.sampling import covering
from torchstone.conformance.oracle import compare as judgement
from torchstone.conformance.oracle.ambiguity.phases import AlignPhases, RecordFactors
from torchstone.conformance.oracle.compare import judge
from torchstone.conformance.oracle.finding import Observed
from torchstone.conformance.oracle.perturbation import search
from torchstone.conformance.oracle.reference.leaf import Effort
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.program.tensor_storage import copy_tensors

FACTORED: dict[str, Callable[[Tensor], tuple[Tensor, ...]]] = {
    "svd": lambda x: torch.linalg.svd(x, full_matrices=False),
    "full svd": torch.linalg.svd,
    "eigh": lambda x: torch.linalg.eigh(x @ x.mH),
    "eig": lambda x: torch.linalg.eig(x @ x.mH),
    "qr": torch.linalg.qr,
    "full qr": lambda x: torch.linalg.qr(x, mode="complete"),
    "r of qr": lambda x: torch.linalg.qr(x, mode="r"),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("name", FACTORED)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31), shape=st.sampled_from([(3, 3), (2, 4, 3), (3, 5), (1, 1), (0, 3), (2, 0)]))
def test_a_factorization_takes_noted_phases_and_stays_one(
    name: str, dtype: torch.dtype, seed: int, shape: tuple[int, ...]
) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator, dtype=dtype)
    with RecordFactors() as factors:
        plain = FACTORED[name](x)
    turned = []
    for func, (*before, last) in factors.found:  # other phases of the same vectors
        count = min(last.shape[-2:]) if "qr" in name else before[-1].shape[-1]
        phase = torch.sgn(torch.randn(count, generator=generator, dtype=dtype))
        if name == "r of qr":
            turned.append((func, (*before, last)))
        elif name in ("eig", "eigh"):
            turned.append((func, (*before, last * phase)))
        else:
            left = before[0].clone()
            left[..., :count] *= phase
            last = last.clone()
            last[..., :count, :] *= phase.conj()[:, None]
            turned.append((func, (left, *before[1:], last)))
    with AlignPhases(turned):
        found = FACTORED[name](x)
    for mine, noted in zip(found, turned[0][1], strict=True):
        torch.testing.assert_close(mine, noted)
    if name == "svd":
        torch.testing.assert_close((found[0] * found[1].unsqueeze(-2)) @ found[2], x)
    elif name in ("qr", "full qr"):
        torch.testing.assert_close(found[0] @ found[1], x)
    assert all(mine.shape == other.shape for mine, other in zip(found, plain, strict=True))


def gradient(target: str) -> Program:
    """The gradient of the vectors by the matrix."""
    calls = (
        Call("torch.Tensor.detach", (Ref("x"),), {}, "data"),
        Call("torch.Tensor.requires_grad_", (Ref("data"),), {}, "leaf"),
        Call(target, (Ref("leaf"),), {}, "r"),
        Call("torch.autograd.grad", ([Ref("r", (i,)) for i in (0, 2)], [Ref("leaf")], [Ref("g"), Ref("h")]), {}, "y"),
    )
    return Program(("x", "g", "h"), calls, Ref("y"))


@pytest.mark.parametrize("wrong", [False, pytest.param(True, marks=pytest.mark.torture)])
def test_a_gradient_of_other_signs_in_float64_is_judged_by_eagers(wrong: bool) -> None:
    """Of matrices whose float64 vectors have other signs than the float32 ones have."""
    program = gradient("torch.svd")
    seen = 0
    for seed in range(40):
        generator = torch.Generator().manual_seed(seed)
        args = tuple(torch.randn(5, 5, generator=generator) for _ in range(3))
        if seed % 2:  # nearly of rank 4: the sign of the last vector is a matter of rounding
            args = (args[0].index_copy(0, torch.tensor([4]), args[0][:1] * (1 + 2e-7)), *args[1:])
        signs = torch.svd(args[0])[2][0].sign() * torch.svd(args[0].double())[2][0].sign()
        if bool((signs > 0).all()):
            continue
        seen += 1
        given_args, outputs = copy_tensors(args), program(*copy_tensors(args))
        off = outputs[0] * (1 + (0.05 if wrong else 2e-7))
        finding = judge(program, args, Observed(outputs, given_args), Observed((off,), given_args))
        assert (finding.outcome == "mismatch") == wrong or finding.outcome == "ill-conditioned", (seed, finding)
        if seen == 3:
            return
    raise AssertionError(f"only {seen} matrices have vectors of other signs in float64")


FACTORIZATIONS = ("torch.linalg.svd", "torch.linalg.eigh", "torch.linalg.eig")
# Each factorization is asked right, and each way of being wrong of one of them.
ASKED = {*((name, torch.complex64, "") for name in FACTORIZATIONS)} | {
    ("torch.linalg.eigh", torch.complex64, "one part"),
    ("torch.linalg.eig", torch.complex64, "a number"),
}


@pytest.mark.torture
@pytest.mark.parametrize(
    ("target", "dtype", "wrong"),
    [
        pytest.param(*row, marks=() if row in ASKED else pytest.mark.torture)
        for row in itertools.product(FACTORIZATIONS, (torch.float32, torch.complex64), ("", "one part", "a number"))
    ],
)
def test_a_backend_may_turn_vectors_in_every_result_alike(target: str, dtype: torch.dtype, wrong: str) -> None:
    """Of a program of which nobody knows what its results have to satisfy: left vectors times 3, right ones times 2."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(5, 5, generator=generator, dtype=dtype)
    x = x @ x.mH if target.endswith("eigh") else x
    first, last = (0, 2) if target.endswith("svd") else (1, 1)
    calls = (
        Call(target, (Ref("x"),), {}, "r"),
        Call("torch.mul", (Ref("r", (first,)), 3), {}, "a"),
        Call("torch.mul", (Ref("r", (last,)), 2), {}, "b"),
    )
    program = Program(("x",), calls, (Ref("a"), Ref("b")))
    phase = torch.sgn(torch.randn(5, generator=generator, dtype=dtype))
    args = (x,)
    a, b = program(*copy_tensors(args))
    turned = (a * phase, b * (phase.conj()[:, None] if target.endswith("svd") else phase))
    if wrong == "one part":
        turned = (turned[0], b)
    elif wrong == "a number":
        turned[1][2, 3] *= 1.001
    finding = judge(program, args, Observed((a, b), copy_tensors(args)), Observed(turned, copy_tensors(args)))
    assert finding.outcome == ("mismatch" if wrong else "pass"), finding


@pytest.mark.torture
@pytest.mark.parametrize(
    ("kind", "wrong"),
    covering([(torch.float32, 3), (torch.complex64, 5)], ["", "their length", "their span"], strength=1),
)
def test_vectors_that_no_value_belongs_to_may_be_any_that_span_the_same(
    kind: tuple[torch.dtype, int], wrong: str
) -> None:
    """Of two rows: one vector beyond, whose sign is free, or three, which may be turned among each other."""
    dtype, size = kind
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(2, size, generator=generator, dtype=dtype)
    calls = (
        Call("torch.linalg.svd", (Ref("x"),), {"full_matrices": True}, "r"),
        Call("torch.mul", (Ref("r", (0,)), 3), {}, "a"),
        Call("torch.mul", (Ref("r", (2,)), 2), {}, "b"),
    )
    program, args = Program(("x",), calls, (Ref("a"), Ref("b"))), (x,)
    a, b = program(*copy_tensors(args))
    turn = -torch.linalg.qr(torch.randn(size - 2, size - 2, generator=generator, dtype=dtype))[0]
    given = torch.cat([b[:2], turn @ b[2:]])
    if wrong == "their length":
        given[2:] *= 1.001
    elif wrong == "their span":
        given[2] = (given[2] + given[0]) / 2**0.5
    finding = judge(program, args, Observed((a, b), copy_tensors(args)), Observed((a, given), copy_tensors(args)))
    assert finding.outcome == ("mismatch" if wrong else "pass"), finding


@pytest.mark.torture
@pytest.mark.parametrize("length", [1.0, 3.0])
def test_what_rounding_decides_beside_other_signs_is_ill_conditioned(
    length: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second vector of a matrix of rank one is any that is orthogonal to the first, and of either sign."""
    monkeypatch.setattr(search, "DENSITIES", ((256, 16.0),))  # more runs say the same, in half a minute
    x = (
        torch.tensor([[-4.826985, -7.582430]], dtype=torch.float64).expand(4, 2).contiguous()
        @ torch.tensor([[-4.150805, 7.380839]] * 3, dtype=torch.float64).mT
    )
    start = torch.tensor([[0.3, -1.1], [0.9, 0.2], [-0.4, 0.7]], dtype=torch.float64)
    calls = (
        Call("torch.matmul", (Ref("x"), Ref("y")), {}, "r0"),
        Call("torch.linalg.qr", (Ref("r0"),), {}, "r1"),
        Call("torch.Tensor.mT", (Ref("r1", (0,)),), {}, "r2"),
        Call("torch.matmul", (Ref("r2"), Ref("x")), {}, "r3"),
        Call("torch.linalg.svd", (Ref("r3"),), {"full_matrices": False}, "r4"),
        Call("torch.matmul", (Ref("r1", (0,)), Ref("r4", (0,))), {}, "r5"),
    )
    program = Program(("x", "y"), calls, (Ref("r5"), Ref("r4", (2,))))
    args = (x, start)
    left, right = program(*copy_tensors(args))
    other = torch.tensor([-0.5, 5 / 6, -1 / 6, -1 / 6], dtype=torch.float64)
    other = other if other @ left[:, 1] < 0 else -other
    given = (torch.stack([left[:, 0], length * other], 1), right)
    finding = judge(program, args, Observed((left, right), copy_tensors(args)), Observed(given, copy_tensors(args)))
    assert finding.outcome == ("ill-conditioned" if length == 1 else "mismatch"), finding


@pytest.mark.parametrize("wrong", [False, pytest.param(True, marks=pytest.mark.torture)])
def test_a_backend_may_turn_the_last_of_two_factorizations(wrong: bool) -> None:
    """As libraries do by as little as rounding moves a phase: far from a sign, and the vectors before it stay."""
    calls = (
        Call("torch.linalg.qr", (Ref("x"),), {}, "q"),
        Call("torch.Tensor.mH", (Ref("q", (0,)),), {}, "qh"),
        Call("torch.matmul", (Ref("qh"), Ref("y")), {}, "small"),
        Call("torch.linalg.svd", (Ref("small"),), {"full_matrices": False}, "r"),
        Call("torch.matmul", (Ref("q", (0,)), Ref("r", (0,))), {}, "left"),
    )
    program = Program(("x", "y"), calls, (Ref("left"), Ref("r", (2,))))
    generator = torch.Generator().manual_seed(3)
    args = torch.randn(3, 2, generator=generator, dtype=torch.complex64), torch.randn(3, 3, generator=generator) + 0j
    left, right = program(*copy_tensors(args))
    phase = torch.polar(torch.ones(2), torch.tensor([0.3, 1.6e-3]))
    given = (left * phase, right * (phase.conj() if not wrong else phase)[:, None])
    finding = judge(program, args, Observed((left, right), copy_tensors(args)), Observed(given, copy_tensors(args)))
    assert finding.outcome == ("mismatch" if wrong else "pass"), finding


@pytest.mark.few(1)
@pytest.mark.parametrize("wrong", [False, True])
@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_vectors_of_a_matrix_without_elements_may_have_any_sign(shape: tuple[int, int], wrong: bool) -> None:
    calls = (Call("torch.linalg.svd", (Ref("x"),), {}, "r"), Call("torch.add", (Ref("r", (1,)), 1.0), {}, "more"))
    program = Program(("x",), calls, (Ref("r", (0,)), Ref("r", (2,)), Ref("more")))
    x = torch.rand(shape)
    expected = program(x)
    turn = torch.tensor([1.0, -1.0, -1.0 if not wrong else -2.0])
    given = tuple(part * turn if part.numel() else part for part in expected)
    finding = judge(program, (x,), Observed(expected, (x,)), Observed(given, (x,)))
    assert finding.outcome == ("mismatch" if wrong else "pass"), finding


@pytest.mark.torture
def test_few_runs_are_made_beside_each_choice_before_many_beside_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search finds no number right: what would only tell that is asked no more."""
    monkeypatch.setattr(search, "DENSITIES", ((32, 0.25), (64, 16.0)))
    asked: list[tuple[str, Effort]] = []

    def noted(name: str, at: int) -> None:
        function = getattr(judgement, name)

        def note(*args: Any) -> Any:
            asked.append((name, args[at]))
            return function(*args)

        monkeypatch.setattr(judgement, name, note)

    noted("_judge", 3)
    noted("_right_by_factors", 5)
    x = torch.randn(3, 3, generator=torch.Generator().manual_seed(1))
    program = Program(("x",), (Call("torch.linalg.svd", (Ref("x"),), {}, "r"),), Ref("r", (0,)))
    left = program(x)
    given = -left
    given[0, 0] *= 1.001
    assert judge(program, (x,), Observed(left, (x,)), Observed(given, (x,))).outcome == "mismatch"
    rounds = [effort for name, effort in asked if name == "_judge"]
    assert rounds == sorted(rounds) and rounds[-2:] == [Effort.LONG_SEARCH] * 2
    assert {effort for name, effort in asked if name == "_right_by_factors"} == {Effort.FEW_RUNS, Effort.ALL_RUNS}

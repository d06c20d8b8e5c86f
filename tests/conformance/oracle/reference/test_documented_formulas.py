"""The oracle where eager's kernels lose a NaN: the documented formula's NaN is no fault, any other one is caught."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.conformance.oracle.test_compare import X, Y, compare, one, torch_rand
from tests.sampling import covering
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.program.program import Call, Program, Ref

NAN = math.nan
POLYNOMIALS = ("chebyshev_polynomial_u", "shifted_chebyshev_polynomial_t", "laguerre_polynomial_l")
ATTENTION = Program(
    ("x0", "x1"),
    (Call("torch.nn.functional.scaled_dot_product_attention", (X, Y, Y), {}, "r0"),),
    Ref("r0"),
)
QUERY, KEY = torch_rand(1, 1, 3, 8), torch_rand(1, 1, 6, 8, seed=1)


def formula(query: Tensor, key: Tensor) -> Tensor:
    return torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ key


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials_of_nan(name: str) -> None:
    program = one(f"special.{name}", X, Y)
    x, n = torch.tensor([0.5, NAN, 0.5, NAN, NAN, NAN]), torch.tensor([3.0, 2.0, 4.0, 0.0, 3.4e38, 1000.0])

    def put(*values: tuple[int, float]) -> Outcome:
        def polynomial(x: Tensor, n: Tensor) -> Tensor:
            out = program(x, n)
            for at, value in values:
                out[at] = value
            return out

        return compare(program, polynomial, x, n).outcome

    assert put((1, NAN), (5, NAN)) is not Outcome.MISMATCH
    assert put((1, NAN), (2, NAN), (5, NAN)) is Outcome.MISMATCH
    # Of degree 0 it is 1. What a degree becomes that int64 does not hold is open.
    assert put((1, NAN), (3, NAN), (5, NAN)) is Outcome.MISMATCH
    assert put((1, NAN), (4, NAN), (5, NAN)) is not Outcome.MISMATCH


@pytest.mark.few(1)
@pytest.mark.parametrize("size", [2, 13])
def test_products_times_an_alpha_of_nan(size: int) -> None:
    """Eager's library adds a product of 13 by 13 as it is. By the formula all is NaN; else NaN is wrong."""
    args = torch_rand(size, size), torch_rand(size, size, seed=1), torch_rand(size, size, seed=2)
    for alpha, outcome in ((NAN, True), (2.0, False)):
        calls = (Call("torch.addmm", tuple(Ref(f"x{i}") for i in range(3)), {"alpha": alpha}, "y"),)
        finding = compare(Program(("x0", "x1", "x2"), calls, Ref("y")), lambda x, *_: torch.full_like(x, NAN), *args)
        assert (finding.outcome is not Outcome.MISMATCH) is outcome, finding


@pytest.mark.parametrize("length", [6, 64])
def test_attention_of_nan(length: int) -> None:
    query, key = QUERY.clone(), torch_rand(1, 1, length, 8, seed=1)
    query[..., 0, 0] = NAN
    finding = compare(ATTENTION, formula, query, key)
    assert finding.outcome is not Outcome.MISMATCH, finding


def test_attention_that_spreads_nan_is_caught() -> None:
    query = QUERY.clone()
    query[..., 0, 0] = NAN
    spread = compare(ATTENTION, lambda q, k: torch.full_like(q, NAN), query, KEY)
    assert spread.outcome is Outcome.MISMATCH, spread
    invented = compare(ATTENTION, lambda q, k: formula(q, k) * torch.tensor([1.0] * 7 + [NAN]), QUERY, KEY)
    assert invented.outcome is Outcome.MISMATCH, invented


def test_attention_that_loses_nan_is_caught() -> None:
    key = KEY.clone()
    key[..., 2, 1] = NAN
    finding = compare(ATTENTION, lambda q, k: formula(q, k).nan_to_num(0.0), torch_rand(1, 1, 3, 8), key)
    assert finding.outcome is Outcome.MISMATCH, finding


@pytest.mark.torture
@pytest.mark.parametrize(("scale", "masked"), covering([0.0, -0.5], [False, True], strength=1))
def test_attention_that_makes_a_nan_of_its_causal_mask(scale: float, masked: bool) -> None:
    """Eager's kernel multiplies the mask by the scale. What the formula gives is right, and nothing else is."""
    options = {"is_causal": True, "scale": scale} | ({"attn_mask": Ref("x2")} if masked else {})
    names, mask = ("x0", "x1", "x2")[: 2 + masked], (torch_rand(3, 6, seed=2),) * masked
    call = Call("torch.nn.functional.scaled_dot_product_attention", (X, Y, Y), options, "r0")
    program = Program(names, (call,), Ref("r0"))
    assert bool(program(QUERY, KEY, *mask).isnan().any())

    def right(query: Tensor, key: Tensor, *mask: Tensor) -> Tensor:
        weights = query @ key.mT * scale + sum(mask)
        earlier = torch.ones(3, 6, dtype=torch.bool).tril()
        return torch.softmax(weights.where(earlier, -torch.inf), -1) @ key

    assert compare(program, right, QUERY, KEY, *mask).outcome is Outcome.ILL_CONDITIONED
    off = compare(program, lambda *args: right(*args) + 0.01, QUERY, KEY, *mask)
    assert off.outcome is Outcome.MISMATCH


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("program", "shape"),
    [
        (one("native_layer_norm", X, [2, 0], None, None, 1e-5), (2, 2, 0)),
        (one("native_group_norm", X, None, None, 2, 4, 0, 2, 1e-5), (2, 4, 0)),
    ],
)
def test_the_mean_of_no_elements_is_zero_or_nan(program: Program, shape: tuple[int, ...]) -> None:
    nothing = torch.zeros(shape)
    out, mean, rstd = program(nothing)
    assert (mean == 0).all()

    def with_mean(value: float) -> Outcome:
        return compare(program, lambda _: (out.clone(), torch.full_like(mean, value), rstd.clone()), nothing).outcome

    assert with_mean(0.0) is Outcome.PASS
    assert with_mean(NAN) is Outcome.ILL_CONDITIONED
    assert with_mean(1.0) is Outcome.MISMATCH


def test_a_mean_of_elements_that_is_nan_is_caught() -> None:
    program, x = one("native_layer_norm", X, [2], None, None, 1e-5), torch_rand(3, 2)

    def lost(x: Tensor) -> tuple[Tensor, ...]:
        out, mean, rstd = program(x)
        return out, mean * NAN, rstd

    assert compare(program, lost, x).outcome is Outcome.MISMATCH


@pytest.mark.parametrize("name", ["multilabel_margin_loss", "multi_margin_loss"])
def test_a_margin_loss_of_nan(name: str) -> None:
    target = torch.tensor([[1, -1, 0], [0, 2, -1]]) if name.startswith("multilabel") else torch.tensor([1, 0])
    program = one(f"nn.functional.{name}", X, Y, reduction="none")
    x = torch.tensor([[NAN, 1.0, 2.0], [0.5, 1.0, 3.0]])
    right = program(x, target)
    assert torch.isfinite(right).all()

    def put(*values: float) -> Outcome:
        return compare(program, lambda x, y: torch.tensor(values), x, target).outcome

    first, second = right.tolist()
    assert put(NAN, second) is not Outcome.MISMATCH
    assert put(NAN, NAN) is Outcome.MISMATCH
    assert put(first + 1, second) is Outcome.MISMATCH

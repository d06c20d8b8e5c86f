"""What every kernel of a control keeps: dtypes, writes, NaN and infinities, no elements, memory of its own."""

from __future__ import annotations

from fractions import Fraction
from operator import add, mul
from typing import Any

import pytest
import torch
from torch import Tensor

from torchstone.conformance.backends import BackendUnsupported
from torchstone.conformance.controls import CONTROLS
from torchstone.conformance.controls.control import functional_form, operator
from torchstone.conformance.controls.matrices import by_transform, im2col, winograd
from torchstone.conformance.controls.operands import fused_multiply_add, two_product, two_sum

from .examples import normal

INF, NAN = float("inf"), float("nan")
SUMS = ("sequential_sums", "reversed_sums", "pairwise_sums", "blocked_sums", "shuffled_sums", "compensated_sums")


def run(name: str, fn: Any, *tensors: Tensor) -> tuple[Any, list[str]]:
    """What a control makes of a function, and the kernels of its own that it took."""
    compiled = CONTROLS[name].compile(fn, tensors)
    with torch.no_grad():
        out = compiled(*tensors)
    return out, compiled.evidence["ran"]["control"]


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize(
    ("terms", "total"),
    [([], 0.0), ([INF, 1.0], INF), ([INF, -INF], NAN), ([1.0, NAN], NAN), ([3e38, 3e38], INF), ([-0.0, -0.0], -0.0)],
)
def test_sums_of_special_terms(name: str, terms: list[float], total: float) -> None:
    out, ran = run(name, torch.sum, torch.tensor(terms))
    assert ran == ["sum"]
    torch.testing.assert_close(out, torch.tensor(total), equal_nan=True)


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_16_bits_are_added_in_float32_and_integers_are_eagers(name: str) -> None:
    ones = torch.ones(1000, dtype=torch.bfloat16)
    assert float(run(name, torch.sum, ones)[0]) == 1000.0
    whole = torch.full((3,), 2**62)
    out, ran = run(name, torch.sum, whole)
    assert ran == [] and torch.equal(out, whole.sum())


def test_what_is_written_is_what_the_kernel_gives() -> None:
    x = normal(50)
    expected, _ = run("exp_by_exp2", torch.exp, x)
    inside, out = x.clone(), torch.empty(0)
    given, ran = run("exp_by_exp2", torch.Tensor.exp_, inside)
    assert given is inside and torch.equal(inside, expected) and ran == ["exp_"]
    run("exp_by_exp2", lambda t: torch.exp(t, out=out), x)
    assert torch.equal(out, expected)


@pytest.mark.parametrize(
    ("written", "form"),
    [("exp_", "exp"), ("exp.out", "exp"), ("sum.IntList_out", "sum.dim_IntList"), ("sort.values", "sort")],
)
def test_the_functional_form_of_what_writes(written: str, form: str) -> None:
    assert functional_form(operator(written)) is functional_form(operator(form)) is operator(form)


def test_views_have_no_functional_form() -> None:
    assert functional_form(operator("view")) is None and functional_form(operator("transpose.int")) is None


def test_lazily_conjugated_operands_are_what_they_stand_for() -> None:
    a, b = normal(4, 3, dtype=torch.complex64), normal(4, 5, dtype=torch.complex64, seed=1) * 1j
    for name in ("reversed_sums", "contractions_split_in_two"):
        out, ran = run(name, lambda x, y: x.mH @ y, a, b)
        assert ran == ["mm"]
        torch.testing.assert_close(out, a.conj().mT.resolve_conj() @ b)


def test_results_have_memory_of_their_own() -> None:
    x = torch.ones(1, 4)
    out, ran = run("reversed_sums", lambda t: torch.sum(t, 0), x)
    assert ran == ["sum"] and out.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


def test_products_and_sums_without_error() -> None:
    x, y = normal(200, dtype=torch.float64), normal(200, dtype=torch.float64, seed=1) * 1e9
    for pair, combine in ((two_product(x, y), mul), (two_sum(x, y), add)):
        for a, b, high, low in zip(*(each.tolist() for each in (x, y, *pair)), strict=True):
            assert Fraction(high) + Fraction(low) == combine(Fraction(a), Fraction(b))


def test_a_fused_multiply_add_rounds_once() -> None:
    third = torch.tensor(1.0) / 3.0
    assert float(third * 3.0 - 1.0) == 0.0
    assert float(fused_multiply_add(third, torch.tensor(3.0), torch.tensor(-1.0))) == 2.0**-25
    wide = torch.tensor(1.0 / 3.0, dtype=torch.float64)
    got = fused_multiply_add(wide, torch.tensor(3.0, dtype=torch.float64), torch.tensor(-1.0, dtype=torch.float64))
    assert float(got) == -(2.0**-54)


@pytest.mark.parametrize("convolve", [im2col, winograd, by_transform])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("sizes", [(9,), (7, 8), (5, 6, 7)])
def test_convolutions_by_other_algorithms(convolve: Any, groups: int, sizes: tuple[int, ...]) -> None:
    steps = [1] * len(sizes)
    x = normal(2, 4, *sizes, dtype=torch.float64)
    weight = normal(6, 4 // groups, *[3] * len(sizes), dtype=torch.float64, seed=1)
    plain = getattr(torch.nn.functional, f"conv{len(sizes)}d")(x, weight, groups=groups)
    torch.testing.assert_close(convolve(x, weight, steps, steps, groups), plain)


def test_an_element_that_a_fast_algorithm_cannot_give_is_computed_plainly() -> None:
    """Beside 1e30 Strassen's algorithm loses all digits of a product of small numbers."""
    a, b = normal(8, 8), normal(8, 8, seed=1)
    a[0] *= 1e30
    out, ran = run("strassen", torch.matmul, a, b)
    assert ran == ["mm"]
    torch.testing.assert_close(out, (a.double() @ b.double()).float(), rtol=1e-6, atol=0)


def test_a_stable_sort_stays_stable() -> None:
    x = torch.tensor([1.0, 0.0, 1.0])
    assert run("other_ties", lambda t: torch.sort(t, stable=True)[1], x)[0].tolist() == [1, 0, 2]
    assert run("other_ties", lambda t: torch.sort(t)[1], x)[0].tolist() == [1, 2, 0]


def test_what_eager_refuses_no_control_takes() -> None:
    """PyTorch's reference of mv takes two dtypes, and eager does not."""
    with pytest.raises(RuntimeError, match="dtype"):
        CONTROLS["references"].compile(torch.mv, ())(torch.ones(2, 2), torch.ones(2, dtype=torch.float64))


def test_a_reference_of_another_dtype_is_none() -> None:
    mean, std = torch.zeros((), dtype=torch.float64), torch.ones(3)
    assert CONTROLS["references"].compile(torch.normal, ())(mean, std).dtype is torch.normal(mean, std).dtype


def test_what_eager_is_asked_first_writes_to_no_input() -> None:
    """Running statistics are written, and the schema of the operator does not say so."""

    def normalized(x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        return torch.nn.functional.batch_norm(x, mean, var, training=True, momentum=0.5)

    x, running = normal(12).reshape(4, 3), torch.ones(3)
    for name in ("references", "flushed_subnormals"):
        expected, given = running.clone(), running.clone()
        normalized(x, expected, torch.ones(3))
        run(name, normalized, x, given, torch.ones(3))
        torch.testing.assert_close(given, expected)


def test_what_functionalization_promotes_otherwise_is_declined() -> None:
    def written(x: Tensor, y: Tensor) -> Tensor:
        return torch.nn.functional.binary_cross_entropy_with_logits(x, y)

    with pytest.raises(BackendUnsupported):
        run("functionalized", written, torch.zeros(3, dtype=torch.float64), torch.ones(3))

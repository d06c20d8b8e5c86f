"""What the rounding model takes apart that PyTorch has no decomposition for is the op."""

from __future__ import annotations

import math

import pytest
import torch

from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.compare import judge
from torchstone.conformance.oracle.finding import Observed
from torchstone.conformance.oracle.perturbation.antialias import antialiased_ops
from torchstone.conformance.oracle.perturbation.decompositions import MAX_DEGREE, agree, decompositions
from torchstone.conformance.oracle.reference.runs import Referee
from torchstone.conformance.program.program import Call, Program, Ref

aten = torch.ops.aten


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("size", [(3, 4), (12, 20), (7, 9), (1, 1), (20, 2), (7, 4), (12, 9)])
@pytest.mark.parametrize("corners", [False, True])
def test_antialiased_resizing(size: tuple[int, int], corners: bool) -> None:
    x, names = numbers(2, 3, 7, 9), {op: str(op) for op in antialiased_ops()}
    x[0, 0, 4, 4] = float("inf")
    grad = numbers(2, 3, *size)
    for op, name in names.items():
        args = (grad, size, x.shape, corners) if "backward" in name else (x, size, corners)
        assert agree(decompositions()[op](*args), op(*args)), name


@pytest.mark.parametrize("kind", "tuvw")
@pytest.mark.parametrize("shifted", [False, True])
def test_chebyshev_polynomials_of_a_high_degree(kind: str, shifted: bool) -> None:
    op = getattr(aten, f"special_{'shifted_' * shifted}chebyshev_polynomial_{kind}").default
    x = torch.tensor([0.3, -0.7, 1e-300, 1.0, -1.0, 1.01, -1.01, 0.99, 0.5, float("inf"), 0.3])
    x = (x.double() + 1) / 2 if shifted else x.double()
    degrees = torch.tensor([MAX_DEGREE + 45.0] * 9 + [MAX_DEGREE + 44.25, -3.0], dtype=torch.float64)
    assert agree(decompositions()[op](x, degrees), op(x, degrees))


@pytest.mark.parametrize("name", ["hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l"])
def test_recurrences_of_a_high_degree_by_matrices(name: str) -> None:
    op = getattr(aten, f"special_{name}").default
    x = torch.tensor([-4.75, 0.3, 2.5, 0.7], dtype=torch.float64)
    degrees = torch.tensor([MAX_DEGREE + 1.0, MAX_DEGREE + 4.5, 3.0, -1.0], dtype=torch.float64)
    assert agree(decompositions()[op](x, degrees), op(x, degrees))


def laguerre(x: torch.Tensor, degree: int) -> torch.Tensor:
    """By steps in another order than eager's."""
    before, last = torch.ones_like(x), 1 - x
    for k in range(1, degree):
        before, last = last, last + (last - before) * (k / (k + 1)) - x * last / (k + 1)
    return last


@pytest.mark.torture
@pytest.mark.parametrize(
    ("degree", "factor", "right"),
    [(1000, 1.0, True), (1000, 1.0 + 1e-9, False), pytest.param(999, 1.0, False, marks=pytest.mark.torture)],
)
def test_a_thousand_roundings_add_up(degree: int, factor: float, right: bool) -> None:
    call = Call("torch.special.laguerre_polynomial_l", (Ref("x"), 1000), {}, "y")
    program, x = Program(("x",), (call,), Ref("y")), torch.tensor([-4.826984902407649], dtype=torch.float64)
    answer, eager = laguerre(x, degree) * factor, program(x)
    assert float((answer / eager - 1).abs()) > 1e-15
    finding = judge(program, (x,), Observed(eager, (x,)), Observed(answer, (x,)))
    assert (finding.outcome is not Outcome.MISMATCH) == right, finding


def test_a_product_of_matrices_for_a_sum_of_products() -> None:
    args = (numbers(3, 5), numbers(4, 3, 2), numbers(4, 2, 5))
    op, scales = aten.addbmm.default, {"beta": 0.5, "alpha": -2.0}
    assert agree(decompositions()[op](*args, **scales), op(*args, **scales))


def test_densities() -> None:
    x, weight = numbers(40, 2), numbers(40).abs()
    edges = [torch.tensor([-2.0, 0.0, 1.0], dtype=torch.float64), torch.tensor([-3.0, 0.5, 0.6, 2.0]).double()]
    calls = [
        (aten._histogramdd_from_bin_cts.default, x, [3, 4]),
        (aten._histogramdd_from_bin_tensors.default, x, edges),
        (aten.histogram.bin_ct, x[:, 0], 5),
        (aten.histogram.bins_tensor, x[:, 0], edges[1]),
    ]
    for op, values, bins in calls:
        given = {"weight": weight, "density": True}
        assert agree(decompositions()[op](values, bins, **given), op(values, bins, **given)), op
        with pytest.raises(NotImplementedError):
            decompositions()[op](values, bins, weight=weight)


def test_statistics_that_a_norm_writes_are_written_once() -> None:
    """The schema of ``native_batch_norm`` does not say that it writes its running statistics."""
    names = ("x", "mean", "var")
    call = Call("torch.native_batch_norm", (Ref("x"), None, None, Ref("mean"), Ref("var"), True, -1.2, 1e-5), {}, "r")
    args = (torch.randn(4, 3, 5), torch.full((3,), 8.0), torch.ones(3))
    referee = Referee(Program(names, (call,), Ref("r")), args)
    for run in referee.rounded_runs:
        torch.testing.assert_close(run.leaves[-2], referee.float64.leaves[-2], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_digamma_beside_its_zeros_is_as_exact_as_its_terms(dtype: torch.dtype) -> None:
    x = torch.tensor([1.53, 1.4616, 3.0, -0.504, -1.57, 20.0], dtype=dtype)
    program = Program(("x",), (Call("torch.digamma", (Ref("x"),), {}, "r"),), Ref("r"))
    expected, eps = program(x), torch.finfo(dtype).eps
    for place, ulps, right in (
        (0, 2, True),
        (1, 2, True),
        (3, 4, True),
        (1, 200, False),
        (2, 60, False),
        (5, 60, False),
    ):
        given = expected.clone()
        given[place] += ulps * eps
        found = judge(program, (x,), Observed(expected, (x,)), Observed(given, (x,))).outcome
        assert (found is Outcome.PASS) == right, (place, ulps, found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lgamma_beside_its_negative_zeros_is_as_exact_as_its_reflection(dtype: torch.dtype) -> None:
    x = torch.tensor([-2.4, 2.1, -40.5], dtype=dtype)
    program = Program(("x",), (Call("torch.lgamma", (Ref("x"),), {}, "r"),), Ref("r"))
    expected, eps = program(x), torch.finfo(dtype).eps
    for place, ulps, right in ((0, 4, True), (0, 60, False), (1, 4, False), (2, 2000, False)):
        given = expected.clone()
        given[place] += ulps * eps
        found = judge(program, (x,), Observed(expected, (x,)), Observed(given, (x,))).outcome
        assert (found is Outcome.PASS) == right, (place, ulps, found)


def test_polynomials_of_degrees_that_leave_an_angle_no_digits_are_as_uncertain_as_it_is() -> None:
    x, degrees = torch.tensor([0.5, 0.5]), torch.tensor([2**32 - 1, 12], dtype=torch.int64)
    call = Call("torch.special.chebyshev_polynomial_w", (Ref("x"), Ref("n")), {}, "r")
    program = Program(("x", "n"), (call,), Ref("r"))
    expected = program(x, degrees)
    for place, answer, right in ((0, -2.0, True), (1, float(expected[1]) + 1e-3, False)):
        given = expected.clone()
        given[place] = answer
        found = judge(program, (x, degrees), Observed(expected, (x, degrees)), Observed(given, (x, degrees))).outcome
        assert (found is not Outcome.MISMATCH) == right, (place, found)


@pytest.mark.few(1)
@pytest.mark.parametrize(("answer", "right"), [(-1.0, True), (1.5, False)])
def test_beside_a_zero_they_are_so_too(answer: float, right: bool) -> None:
    args = (torch.tensor([0.5]), torch.tensor([2**31 - 1], dtype=torch.int32))
    call = Call("torch.special.chebyshev_polynomial_v", (Ref("x"), Ref("n")), {}, "r")
    program = Program(("x", "n"), (call,), Ref("r"))
    found = judge(program, args, Observed(program(*args), args), Observed(torch.tensor([answer]), args))
    assert (found.outcome is not Outcome.MISMATCH) == right, found


@pytest.mark.few(1)
@pytest.mark.parametrize(("kind", "degree"), [("t", 9), ("u", 13.93), ("v", 7), ("w", 8)])
def test_near_a_zero_they_have_the_digits_of_the_angle(kind: str, degree: float) -> None:
    zero = {"t": math.pi / 2, "u": math.pi / 2, "v": math.pi / 3, "w": math.pi * 4 / 17}[kind]
    x = torch.tensor([math.cos(zero) + 1e-10, 0.9], dtype=torch.float64)
    program = Program(
        ("x",), (Call(f"torch.special.chebyshev_polynomial_{kind}", (Ref("x"), degree), {}, "r"),), Ref("r")
    )
    expected = program(x)
    assert expected[0].abs() < 1e-7, "a zero is near"
    for place, by, right in ((0, 1.7e-15, True), (0, 1e-12, False), (1, 1e-12, False)):
        given = expected.clone()
        given[place] += by
        found = judge(program, (x,), Observed(expected, (x,)), Observed(given, (x,))).outcome
        assert (found is not Outcome.MISMATCH) == right, (place, by, found)


@pytest.mark.few(2)
@pytest.mark.parametrize("op", ["sum", "cumsum"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_integers_that_are_added_up_as_floating_numbers_may_be_in_another_order(op: str, dtype: torch.dtype) -> None:
    x = torch.tensor([[2**31 - 1, 7, -(2**31) + 1, 5], [1, 2, 3, 4]], dtype=torch.int32)
    program = Program(("x",), (Call(f"torch.{op}", (Ref("x"), 1), {"dtype": dtype}, "r"),), Ref("r"))
    expected = program(x)
    last = (-1,) if op == "sum" else (-1, -1)
    cancelled = (0, *last[1:])
    for place, by, right in ((cancelled, 12, True), (cancelled, 2.0**29, False), (last, 1, False)):
        given = expected.clone()
        given[place] += by
        found = judge(program, (x,), Observed(expected, (x,)), Observed(given, (x,))).outcome
        assert (found is Outcome.PASS) == right, (place, by, found)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_polygamma_between_poles_is_as_exact_as_its_terms(dtype: torch.dtype) -> None:
    """Of even orders the terms of the poles beside it cancel, 16 and -16 of -0.5025, and of odd ones they add up."""
    x = torch.tensor([-0.5025, -2.501, 1.5], dtype=dtype)
    for order, place, ulps, right in (
        (2, 0, 16, True),
        (2, 0, 1000, False),
        (2, 1, 16, True),
        (2, 2, 100, False),
        (3, 0, 9000, False),
    ):
        program = Program(("x",), (Call("torch.polygamma", (order, Ref("x")), {}, "r"),), Ref("r"))
        expected = program(x)
        given = expected.clone()
        given[place] += ulps * torch.finfo(dtype).eps
        found = judge(program, (x,), Observed(expected, (x,)), Observed(given, (x,))).outcome
        assert (found is Outcome.PASS) == right, (order, place, ulps, found)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["hann_window", "hamming_window", "blackman_window"])
@pytest.mark.parametrize("periodic", [True, False])
def test_a_window_is_as_exact_as_its_cosines(name: str, periodic: bool) -> None:
    program = Program((), (Call(f"torch.{name}", (1009, periodic), {"dtype": torch.float32}, "r"),), Ref("r"))
    expected = program()
    angle = torch.arange(1009, dtype=torch.float32) * (2 * torch.pi / (1009 if periodic else 1008))
    weights = {"hann": (0.5, -0.5, 0.0), "hamming": (0.54, -0.46, 0.0), "blackman": (0.42, -0.5, 0.08)}[
        name.split("_")[0]
    ]
    steps = weights[0] + weights[1] * torch.cos(angle) + weights[2] * torch.cos(2 * angle)
    assert judge(program, (), Observed(expected, ()), Observed(steps, ())).outcome is not Outcome.MISMATCH
    steps[503] += 1e-5
    assert judge(program, (), Observed(expected, ()), Observed(steps, ())).outcome is Outcome.MISMATCH


def test_attention_is_taken_apart() -> None:
    """So that logits that overflow before they are scaled, or not, are both right."""
    q, k, v = torch.tensor([[[[1e20]]]]), torch.tensor([[[[4e18], [-4e18]]]]), torch.tensor([[[[1.0], [2.0]]]])
    call = Call(
        "torch.nn.functional.scaled_dot_product_attention", (Ref("q"), Ref("k"), Ref("v")), {"scale": 1e-38}, "r"
    )
    program = Program(("q", "k", "v"), (call,), Ref("r"))
    shown = {float(run.leaves[0]) for run in Referee(program, (q, k, v)).reordered_runs}
    assert any(math.isnan(value) for value in shown)  # infinity less infinity
    assert any(1.0 < value < 1.1 for value in shown)

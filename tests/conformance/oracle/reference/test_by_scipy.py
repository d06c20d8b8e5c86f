"""Where eager's formula cancels in float64 too, SciPy tells who is right."""

from __future__ import annotations

import math

import pytest
import scipy.special
import torch
from torch import Tensor

from tests.conformance.oracle.test_compare import compare, one
from torchstone.conformance.execution.verdict import EAGER_FURTHER, Outcome
from torchstone.conformance.oracle.op_traits.references import BY_SCIPY, IN_SCIPY
from torchstone.conformance.oracle.reference.by_scipy import BySciPy
from torchstone.conformance.program.program import Call, Program, Ref

TAIL = torch.tensor([-6.0, -7.5, -8.0, -3.0], dtype=torch.float64)


def gelu(kind: str) -> Program:
    return Program(("x0",), (Call("torch.nn.functional.gelu", (Ref("x0"),), {"approximate": kind}, "y"),), Ref("y"))


def right(kind: str, x: Tensor) -> Tensor:
    """GELU by formulas that do not cancel."""
    if kind == "none":
        return 0.5 * x * torch.erfc(-x * math.sqrt(0.5))
    return x * torch.sigmoid(2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x))


@pytest.mark.parametrize("kind", ["none", "tanh"])
def test_who_has_the_digits_is_right(kind: str) -> None:
    finding = compare(gelu(kind), lambda x: right(kind, x), TAIL)
    assert finding.outcome is Outcome.PASS, finding
    assert finding.evidence["rule"] == "SciPy"
    assert finding.evidence[EAGER_FURTHER]["expected"] != finding.evidence[EAGER_FURTHER]["actual"]


def test_without_arguments_too() -> None:
    assert compare(one("nn.functional.gelu"), lambda x: right("none", x), TAIL).ok


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", ["none", "tanh"])
@pytest.mark.parametrize("relative", [1e-6, -0.5, 3.0])
def test_who_has_not_is_wrong_where_eager_has_them(kind: str, relative: float) -> None:
    def wrong(x: Tensor) -> Tensor:
        return right(kind, x) * torch.where(x == -3.0, 1.0 + relative, 1.0)

    assert compare(gelu(kind), wrong, TAIL).outcome is Outcome.MISMATCH


@pytest.mark.parametrize("kind", ["none", "tanh"])
def test_the_other_kind_is_wrong(kind: str) -> None:
    other = {"none": "tanh", "tanh": "none"}[kind]
    assert compare(gelu(kind), lambda x: right(other, x), TAIL).outcome is Outcome.MISMATCH


def test_a_square_in_an_exponent_has_the_digits_that_it_is_rounded_off() -> None:
    """Eager's and SciPy's are off by 8 ULPs there, a number by mpmath is not."""
    import mpmath

    x = torch.tensor([-4.243237494701841, -4.304189566200154, -20.1, -1.5, 3.0], dtype=torch.float64)
    with mpmath.workdps(30):
        exact = [float(mpmath.exp(mpmath.mpf(v) ** 2) * mpmath.erfc(v)) for v in x.tolist()]
    own = torch.tensor(exact, dtype=torch.float64)
    assert compare(one("special.erfcx"), lambda x: own, x).ok
    assert compare(one("special.erfcx"), lambda x: own * (1 + 1e-13), x).outcome is Outcome.MISMATCH
    with BySciPy():
        assert float((torch.special.erfcx(x) / own - 1).abs().max()) < 5e-16


SHAPES = torch.tensor([6.092381404535894, 1.5, 0.0, 2.0], dtype=torch.float64)
BOUNDS = torch.tensor([0.05046283650860017, 0.7, 1.0, math.inf], dtype=torch.float64)


@pytest.mark.parametrize(("name", "tail"), [("igamma", 1.4009997569865155e-11), ("special.gammaincc", None)])
def test_the_incomplete_gamma_functions_have_all_their_digits(name: str, tail: float | None) -> None:
    """Eager's first number is 31 ULP off; that of mpmath is 1.400999756986515514570...e-11."""

    def answer(a: Tensor, x: Tensor, off: float = 0.0) -> Tensor:
        out = getattr(torch.special, name.removeprefix("special."), torch.igamma)(a, x)
        out[0] = out[0] if tail is None else tail
        return out * torch.tensor([1.0 + off, 1.0, 1.0, 1.0], dtype=torch.float64)

    program = one(name, Ref("x0"), Ref("x1"))
    assert compare(program, answer, SHAPES, BOUNDS).ok
    for off in (1e-13, -1e-13):
        finding = compare(program, lambda a, x, off=off: answer(a, x, off), SHAPES, BOUNDS)
        assert finding.outcome is Outcome.MISMATCH, finding


@pytest.mark.parametrize(("part", "outcome"), [(2e-6, Outcome.ILL_CONDITIONED), (-1.0, Outcome.MISMATCH)])
def test_the_few_digits_of_eager_are_not_asked_of_who_is_nearer(part: float, outcome: Outcome) -> None:
    """Beside its zero at 3.957 eager's y0 has six digits: every run of its formula is as far from SciPy's value."""
    x = torch.tensor([3.956276669497072], dtype=torch.float64)
    right = torch.tensor([5.643638824995259e-4], dtype=torch.float64)  # mpmath's
    eager = torch.special.bessel_y0(x)
    assert 1e-10 < (right - eager).abs().item() < 1e-9
    finding = compare(one("special.bessel_y0"), lambda x: eager + part * (right - eager), x)
    assert finding.outcome is outcome, finding


@pytest.mark.parametrize(("relative", "ok"), [(0.0, True), (1e-12, False)])
def test_a_function_amid_other_calls_is_asked_too(relative: float, ok: bool) -> None:
    """70! is 25 ULP off in eager, which takes the exponential of its logarithm; so it is in a gradient."""
    x = torch.linspace(1.5, 3.0, 6, dtype=torch.float64)
    calls = (
        Call("torch.Tensor.detach", (Ref("x"),), {}, "free"),
        Call("torch.Tensor.requires_grad_", (Ref("free"),), {}, "leaf"),
        Call("torch.polygamma", (69, Ref("leaf")), {}, "y"),
        Call("torch.autograd.grad", ([Ref("y")], [Ref("leaf")], [Ref("x")]), {}, "gradients"),
    )
    right = x * torch.from_numpy(scipy.special.polygamma(70, x.numpy()))
    program = Program(("x",), calls, Ref("gradients"))
    (eager,) = program(x)
    assert ((eager - right) / right).abs().max() > 8 * torch.finfo(torch.float64).eps
    assert compare(program, lambda x: (right * (1.0 + relative),), x).ok is ok


def test_what_is_written_in_place_and_into_a_given_tensor() -> None:
    x, out = torch.tensor([-6.25, 0.5], dtype=torch.float64), torch.empty(2, dtype=torch.float64)
    with BySciPy():
        written = x.clone().lgamma_()
        assert torch.special.zeta(2.5, x.abs(), out=out) is out
    assert written.tolist() == scipy.special.gammaln(x.numpy()).tolist()
    assert out.tolist() == scipy.special.zeta(2.5, x.abs().numpy()).tolist()


FAR_APART = torch.tensor([20.0 + 2.0j, -700.0 + 100.0j, 30.0 - 7.0j], dtype=torch.complex128)
"""The exponential of the second is subnormal beside that of the first: eager's log1p of it is NaN."""


@pytest.mark.parametrize("relative", [0.0, 1e-9, math.nan])
def test_a_finite_answer_where_eager_gives_up(relative: float) -> None:
    program = Program(("x0",), (Call("torch.logcumsumexp", (Ref("x0"), 0), {}, "y"),), Ref("y"))
    assert torch.isnan(torch.logcumsumexp(FAR_APART, 0).real).tolist() == [False, True, True]
    right = torch.stack([FAR_APART[0], FAR_APART[0], torch.logaddexp(FAR_APART[0], FAR_APART[2])])
    given = torch.where(torch.tensor([False, True, True]), right * (1.0 + relative), right)
    assert compare(program, lambda x: given, FAR_APART).ok == (relative != 1e-9)


@pytest.mark.parametrize(("given", "ok"), [(1e-310 + 1e-310j, True), (1e-310 - 1e-310j, True), (1e-300 + 0j, False)])
def test_the_logarithm_of_one_and_a_subnormal_complex_number(given: complex, ok: bool) -> None:
    """Either subnormal number may be flushed to zero, and passes for the other."""
    x = torch.tensor([1e-310 + 1e-310j], dtype=torch.complex128)
    assert compare(one("log1p"), lambda x: torch.tensor([given], dtype=torch.complex128), x).ok == ok


@pytest.mark.parametrize(("off", "ok"), [(0.0, True), (1e-11, False), (-1e-11, False)])
def test_the_arc_cosine_of_a_complex_number_beside_one(off: float, ok: bool) -> None:
    """Its real part is small, and eager's has half of its digits."""
    x = torch.tensor([1.0 - 2.0**-52 + 2.0**-26 * 1j], dtype=torch.complex128)
    exact = 0.00012207031325791226 - 0.00012207031174208774j
    assert abs(torch.acos(x).item() - exact) > 5e-17
    given = torch.tensor([exact.real * (1.0 + off) + exact.imag * 1j], dtype=torch.complex128)
    assert compare(one("acos"), lambda x: given, x).ok == ok


@pytest.mark.parametrize("name", sorted({*IN_SCIPY.ops, *BY_SCIPY.ops}))
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
def test_every_function_is_asked_in_any_shape(name: str, shape: tuple[int, ...]) -> None:
    """Where PyTorch takes such operands, SciPy's answer has the shape of its own, no dims and no elements included."""
    function = getattr(torch.ops.aten, name)
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.rand(shape, generator=generator, dtype=torch.float64) + 0.5 for _ in range(2))
    asked = 0
    for args in ((x,), (x, y), (1, x), (x, 0)):
        try:
            values = function(*args)
        except (TypeError, RuntimeError, IndexError):
            continue
        mode = BySciPy()
        with mode:
            found = function(*args)
        asked += mode.found
        torch.testing.assert_close(found, values, rtol=1e-6, atol=0.0, equal_nan=True)
    assert asked

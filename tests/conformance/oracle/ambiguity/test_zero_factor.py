"""A product multiplied by alpha=0 counts or is left out, element by element; and nothing else is open."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.conformance.oracle.test_compare import X, Y, compare, one
from tests.sampling import covering, one_in
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.program.program import Call, Program, Ref

INF, NAN = math.inf, math.nan


def program(op: str, *after: Call, alpha: float = 0, beta: float = 0.5) -> Program:
    call = Call(f"torch.{op}", (X, Y, Ref("x2")), {"alpha": alpha, "beta": beta}, "r0")
    return Program(("x0", "x1", "x2"), (call, *after), Ref(after[-1].result if after else "r0"))


def operands(op: str, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    matrix = torch.tensor([[NAN, 1.0, 2.0], [1.0, 2.0, 3.0], [4.0, INF, 6.0]], dtype=dtype)
    base = torch.tensor([[1.0, -2.0, 4.0]], dtype=dtype).expand(3, 3).clone()
    if op == "addmv":
        return base[0].clone(), matrix, torch.ones(3, dtype=dtype)
    square = torch.ones(3, 3, dtype=dtype)
    if op == "addmm":
        return base, matrix, square
    batch = matrix[None], square[None]
    return (base, *batch) if op == "addbmm" else (base[None].clone(), *batch)


def left_out(x: Tensor, *_: Tensor) -> Tensor:
    return 0.5 * x


def multiplied(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    product = a @ b
    return 0.5 * x + 0 * (product if product.dim() == x.dim() else product.sum(0))


def either(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    chosen = torch.ones(x.shape, dtype=torch.bool)
    chosen.view(-1)[::2] = False
    return torch.where(chosen, left_out(x), multiplied(x, a, b))


@pytest.mark.parametrize("answer", [left_out, multiplied, either])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
@pytest.mark.parametrize("op", ["addmm", "addmv", "addbmm", "baddbmm"])
def test_the_product_counts_or_is_left_out(op: str, dtype: torch.dtype, answer: Callable[..., Tensor]) -> None:
    assert compare(program(op), answer, *operands(op, dtype)).outcome is Outcome.PASS


def test_so_does_what_follows_from_it() -> None:
    isnan = program("addmm", Call("torch.isnan", (Ref("r0"),), {}, "r1"))
    for answer in (left_out, multiplied):
        assert compare(isnan, lambda *args, f=answer: f(*args).isnan(), *operands("addmm", torch.float32)).ok
    wrong = compare(isnan, lambda x, *_: torch.ones_like(x, dtype=torch.bool), *operands("addmm", torch.float32))
    assert wrong.outcome is Outcome.MISMATCH


WRONG: dict[str, Callable[..., Tensor]] = {
    "NaN where the product is finite": lambda x, a, b: torch.full_like(x, NAN),
    "infinity": lambda x, a, b: left_out(x).index_fill(0, torch.tensor([0]), INF),
    "another number": lambda x, a, b: left_out(x) + 0.1,
    "a product times 1": lambda x, a, b: 0.5 * x + a @ b,
}


@pytest.mark.few(1)
@pytest.mark.parametrize(("name", "dtype"), covering([*WRONG], [torch.float32, torch.bfloat16], strength=1))
def test_nothing_else_does(name: str, dtype: torch.dtype) -> None:
    assert compare(program("addmm"), WRONG[name], *operands("addmm", dtype)).outcome is Outcome.MISMATCH


def test_of_another_factor_the_product_always_counts() -> None:
    x, a, b = operands("addmm", torch.float32)
    assert compare(program("addmm", alpha=1), left_out, x, a, b).outcome is Outcome.MISMATCH


def test_beta_0_leaves_the_operand_out() -> None:
    x, a, b = torch.tensor([[NAN]]), torch.ones(1, 1), torch.ones(1, 1)
    finding = compare(program("addmm", alpha=1, beta=0), lambda x, a, b: 0 * x + a @ b, x, a, b)
    assert finding.outcome is Outcome.MISMATCH


@pytest.mark.parametrize(
    ("op", "factor"), [("addcmul", 1e38), pytest.param("addcdiv", 1e-38, marks=pytest.mark.torture)]
)
def test_a_product_of_elements_that_overflows_may_count_as_nan(op: str, factor: float) -> None:
    """PyTorch's decomposition multiplies by value last; no NaN and no infinity of an operand is lost."""
    call = Call(f"torch.{op}", (Ref("x0"), Ref("x1"), Ref("x2")), {"value": 0}, "r0")
    scaled = Program(("x0", "x1", "x2"), (call,), Ref("r0"))
    x, large = torch.tensor([3.0, 3.0]), torch.tensor([1e38, 1.0])
    b = torch.tensor([factor, 1.0])
    assert compare(scaled, lambda x, a, b: torch.stack([x[0] * torch.nan, x[1]]), x, large, b).ok
    assert compare(scaled, lambda x, a, b: x * torch.nan, x, large, b).outcome is Outcome.MISMATCH
    infinite = torch.tensor([torch.inf, 1.0])
    assert compare(scaled, lambda x, a, b: x, x, infinite, b).outcome is Outcome.MISMATCH


# -- linear interpolation


def resized(size: tuple[int, ...], mode: str, **options: bool) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.nn.functional.interpolate(x, size=size, mode=mode, **options)


def resizing(size: tuple[int, ...], mode: str, **options: bool) -> Program:
    call = Call("torch.nn.functional.interpolate", (X,), {"size": size, "mode": mode} | options, "r0")
    return Program(("x0",), (call,), Ref("r0"))


PIXELS = torch.tensor([[[[1.0, INF, 2.0], [-INF, 3.0, 4.0], [5.0, 6.0, NAN]]]])


@pytest.mark.parametrize("dtype", one_in(3, [torch.float32, torch.float64, torch.bfloat16]))
def test_a_neighbour_without_weight_counts_or_is_left_out(dtype: torch.dtype) -> None:
    """A picture of the same size: each place has one neighbour of weight 1."""
    pixels, same = PIXELS.to(dtype), resizing((3, 3), "bilinear")
    assert not torch.equal(resized((3, 3), "bilinear")(pixels).isnan(), pixels.isnan())  # eager multiplies
    assert compare(same, lambda x: x.clone(), pixels).ok
    assert compare(resizing((3,), "linear"), lambda x: x.clone(), pixels[0]).ok
    assert compare(resizing((2, 3, 3), "trilinear"), lambda x: x.clone(), pixels.expand(1, 2, 3, 3)[None]).ok
    for wrong in (lambda x: torch.nan_to_num(x, posinf=INF), lambda x: x.abs(), lambda x: x.nan_to_num(NAN, 9.0, -INF)):
        assert compare(same, wrong, pixels).outcome is Outcome.MISMATCH


@pytest.mark.torture
def test_a_neighbour_with_a_weight_counts() -> None:
    """Between two pixels both count: infinity and its opposite are NaN."""
    row = torch.tensor([[[INF, 1.0, 2.0, -INF, INF]]])
    grown, options = resized((9,), "linear", align_corners=True), {"align_corners": True}
    program = resizing((9,), "linear", **options)
    right = torch.tensor([[[INF, INF, 1.0, 1.5, 2.0, -INF, -INF, NAN, INF]]])
    assert compare(program, lambda x: right.clone(), row).ok
    for place, other in ((1, 1.0), (5, 2.0), (7, INF), (3, NAN)):
        wrong = right.clone()
        wrong[0, 0, place] = other
        assert compare(program, lambda x, wrong=wrong: wrong.clone(), row).outcome is Outcome.MISMATCH, place
    assert compare(program, grown, row).ok


# -- sums of complex numbers


@pytest.mark.torture
def test_a_complex_sum_is_the_sum_of_its_parts() -> None:
    """Eager multiplies the second operand by alpha, which is 1 + 0j."""
    x, y = torch.full((3,), complex(1.0, 2.0)), torch.tensor([complex(INF, 1.0), complex(-INF, INF), 3.0])
    for name, part in (("sub", 2.0), ("add", 2.0), ("rsub", -2.0)):
        call = Call(f"torch.{name}", (X, Ref("x1")), {}, "r0")
        program = Program(("x0", "x1"), (call, Call("torch.Tensor.imag", (Ref("r0"),), {}, "r1")), Ref("r1"))
        sign = {"sub": (1, -1), "add": (1, 1), "rsub": (-1, 1)}[name]
        assert program(x, y).isnan().tolist() == ([True, True, False] if name != "rsub" else [False] * 3)
        right = sign[0] * x.imag + sign[1] * y.imag
        assert right[2] == part
        assert compare(program, lambda x, y, right=right: right.clone(), x, y).ok, name
        assert compare(program, lambda x, y, right=right: right + 1, x, y).outcome is Outcome.MISMATCH, name
    apart = Program(("x0", "x1"), (Call("torch.dist", (X, Ref("x1")), {}, "r0"),), Ref("r0"))
    far = torch.full((2,), complex(INF, 1.0)), torch.full((2,), complex(-INF, INF))
    assert apart(*far).isnan()
    assert compare(apart, lambda x, y: torch.tensor(INF), *far).ok
    assert compare(apart, lambda x, y: torch.tensor(1.0), *far).outcome is Outcome.MISMATCH


# -- transposed convolution

CONV = torch.nn.functional.conv_transpose1d
DATA = torch.tensor([[[1.0, 2.0, -1.0], [0.5, 4.0, 3.0]]])
WEIGHTS = torch.tensor([[[3.0, INF, 1.0], [1.0, 2.0, 0.5]], [[-1.0, 2.0, 2.0], [1.0, 1.0, 1.0]]])


def transposed(**options: int) -> Program:
    return one("nn.functional.conv_transpose1d", X, Y, stride=2, **options)


def test_a_weight_that_is_infinite_meets_the_zeros_or_none() -> None:
    program, eager = transposed(), CONV(DATA, WEIGHTS, stride=2)
    zeros = torch.ones(7, dtype=torch.bool)
    zeros[1::2] = False  # where the middle weight falls on an element
    counted = eager.clone()
    counted[0, 0, zeros] = NAN
    assert not torch.isnan(eager).any() and torch.isfinite(eager[0, 1]).all()
    half = torch.where(torch.arange(7) < 4, counted, eager)
    for answer in (counted, half):
        assert compare(program, lambda x, w, answer=answer: answer.clone(), DATA, WEIGHTS).ok


@pytest.mark.few(2)
@pytest.mark.parametrize(("channel", "place", "value"), [(0, 1, NAN), (1, 0, NAN), (0, 0, INF), (0, 0, 9.0)])
def test_no_other_number_of_such_a_convolution_is_open(channel: int, place: int, value: float) -> None:
    wrong = CONV(DATA, WEIGHTS, stride=2)
    wrong[0, channel, place] = value
    assert compare(transposed(), lambda *_: wrong.clone(), DATA, WEIGHTS).outcome is Outcome.MISMATCH


def test_a_convolution_of_numbers_has_no_nan() -> None:
    wrong = CONV(DATA, WEIGHTS.clamp(max=5.0), stride=2).index_fill(2, torch.tensor([0]), NAN)
    assert compare(transposed(), lambda *_: wrong.clone(), DATA, WEIGHTS.clamp(max=5.0)).outcome is Outcome.MISMATCH

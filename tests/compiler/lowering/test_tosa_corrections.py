"""What runs is what TOSA says where upstream's lowering says otherwise, and is rounded once where that rounds often."""

from __future__ import annotations

import math
import re

import pytest
import torch

from tests.compiler.flat import graph, primitive, run, signs_of_zero_differ
from torchstone.compiler.driver import compile
from torchstone.compiler.lowering.tosa import TARGET
from torchstone.compiler.transforms.expand import expand

INF, NAN = math.inf, math.nan


def tosa(fn, *tensors: torch.Tensor) -> str:
    return TARGET.lower(expand(graph(fn, *tensors), TARGET.takes)).texts["tosa"]()


def test_a_zero_that_is_clamped_keeps_its_sign() -> None:
    x = torch.tensor([-0.0, 0.0, -1.0, INF, NAN])
    (got,) = run(TARGET, primitive("clamp", x, low=0.0, high=INF), (x,))
    assert torch.equal(torch.signbit(got[:3]), torch.tensor([True, False, False]))
    assert got[3] == INF and got[4].isnan()


def test_an_extremum_of_infinities_is_infinite_and_takes_one_op() -> None:
    x = torch.tensor([[-INF, -INF], [-INF, -3.4028234663852886e38], [NAN, INF]])
    for kind, want in (("max", [-INF, -3.4028234663852886e38, NAN]), ("min", [-INF, -INF, NAN])):
        (got,) = run(TARGET, primitive("reduce", x, kind=kind, dims=(1,)), (x,))
        assert torch.equal(got.nan_to_num(nan=7), torch.tensor(want).nan_to_num(nan=7))
        assert tosa(lambda b, x, kind=kind: b.reduce(x, kind, (1,)), x).count(f"tosa.reduce_{kind}") == 1


@pytest.mark.parametrize("size", [1000, 100_000])
def test_sums_and_products_are_rounded_once(size: int) -> None:
    x = torch.rand(3, size, generator=torch.Generator().manual_seed(0))
    (got,) = run(TARGET, primitive("reduce", x, kind="sum", dims=(1,)), (x,))
    assert torch.equal(got, x.double().sum(1).float())
    (got,) = run(TARGET, primitive("contract", x, x, a_batch=(), b_batch=(), a_sum=(1,), b_sum=(1,)), (x, x))
    assert torch.equal(got, (x.double() @ x.double().T).float())


def test_a_sum_over_dims_apart_is_rounded_once_too() -> None:
    x = torch.rand(40, 3, 50, generator=torch.Generator().manual_seed(0))
    (got,) = run(TARGET, primitive("reduce", x, kind="sum", dims=(0, 2)), (x,))
    assert torch.equal(got, x.double().sum((0, 2)).float())


DIVISORS = torch.tensor([3.0, 49.0, 1e-40, 3e38, 0.0, -0.0, INF, NAN, -7.0])


def test_a_quotient_is_rounded_once() -> None:
    x = torch.tensor([1.0, 49.0, 1e-40, 3e38, 0.0, -0.0, INF, NAN, 5.0]).reshape(-1, 1)
    y = DIVISORS.reshape(1, -1)
    pair = (x.expand(9, 9).contiguous(), y.expand(9, 9).contiguous())
    (got,) = run(TARGET, primitive("div", *pair), pair)
    assert torch.equal(got.nan_to_num(nan=7), (x / y).nan_to_num(nan=7))

    def repeated(b, x, y):
        return b.div(b.broadcast(x, (9, 9), (0, 1)), b.broadcast(y, (9, 9), (0, 1)))

    (got,) = run(TARGET, graph(repeated, x, y), (x, y))
    assert torch.equal(got.nan_to_num(nan=7), (x / y).nan_to_num(nan=7))
    for number in DIVISORS.tolist():
        (got,) = run(TARGET, graph(lambda b, x, n=number: b.div(x, b.full_like(x, n)), x), (x,))
        assert torch.equal(got.nan_to_num(nan=7), (x / number).nan_to_num(nan=7)), number


def test_a_product_with_a_reciprocal_that_the_program_has_is_rounded_twice() -> None:
    x, y = torch.tensor([49.0, 2.0]), torch.tensor([49.0, 1e-40])
    (got,) = run(TARGET, graph(lambda b, x, y: b.mul(x, b.div(b.full_like(y, 1.0), y)), x, y), (x, y))
    assert torch.equal(got, x * (1.0 / y)) and got[1] == INF


def test_a_quotient_that_is_rounded_is_right_without_our_runtime() -> None:
    x = torch.tensor([49.0])
    plain = tosa(lambda b, x, y: b.div(x, y), x, x)
    stepped = tosa(lambda b, x, y: b.floor(b.div(x, y)), x, x)
    assert plain.count("tosa.") < 10 < 40 < stepped.count("tosa.")
    assert "torchstone.quotient" in plain and "torchstone.quotient" not in stepped


CONSTANTS = (0.0, -0.0, 1.0, -1.0, INF, -INF, NAN)


@pytest.mark.few(16)
@pytest.mark.parametrize("shape", [(), (1, 9)], ids=["number", "tensor"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "eq", "gt", "ge", "maximum", "minimum"])
def test_a_constant_is_an_operand_like_another(name: str, shape: tuple[int, ...]) -> None:
    x = torch.tensor([[1.0, -1.0, 0.0, -0.0, 3e38, 1e-38, INF, -INF, NAN]])
    op = getattr(torch, name)

    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        numbers = [torch.full(shape, number) for number in CONSTANTS]
        return tuple(out for c in numbers for out in (op(x, c), op(c, x)))

    for got, want in zip(compile(program, (x,), "tosa")(x), program(x), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-6, atol=0, equal_nan=True)
        # Of two zeros, any is the larger one.
        assert name in ("maximum", "minimum", "eq", "gt", "ge") or not signs_of_zero_differ(got, want)


def operators(fn, *args: torch.Tensor) -> list[str]:
    """The operators of a program in order, without constants."""
    text = compile(fn, args, "tosa").ir["tosa"]
    return [name for name in re.findall(r"= tosa\.(\w+)", text) if not name.startswith("const")]


FORMULAS = {
    "erfc": ["erf", "sub"], "expm1": ["exp", "sub"], "log1p": ["add", "log"], "sqrt": ["rsqrt", "reciprocal"],
}  # fmt: skip


@pytest.mark.parametrize(("name", "formula"), FORMULAS.items())
def test_a_function_that_tosa_has_not_is_a_formula_that_does_not_cancel_here(name: str, formula: list[str]) -> None:
    x = torch.tensor([1e-10, -1e-30, -0.0, 0.0, 5.0, 9.0, INF, NAN]).reshape(2, 4)
    fn = getattr(torch.special if name == "erfc" else torch, name)
    assert operators(fn, x) == formula
    got, want = compile(fn, (x,), "tosa")(x), fn(x.double()).float()
    torch.testing.assert_close(got, want, rtol=1e-6, atol=0, equal_nan=True)
    assert not signs_of_zero_differ(got, want)


def test_a_reduced_dim_is_not_put_back_for_what_follows() -> None:
    x = torch.randn(3, 5)
    wanted = ["reduce_max", "sub", "exp", "reduce_sum", "reciprocal", "mul"]
    assert operators(lambda x: x.softmax(-1), x) == wanted
    assert operators(lambda x: (x.sum(-1) + 1).exp(), x) == ["reduce_sum", "add", "exp", "reshape"]


def test_gelu_is_eagers_formula() -> None:
    assert operators(torch.nn.functional.gelu, torch.randn(3)) == ["mul", "mul", "erf", "sub", "mul"]


LARGE = {
    "matmul": (torch.matmul, (5, 40, 70), (5, 70, 33)),
    "linear": (torch.nn.functional.linear, (130, 60), (35, 60)),
    "conv1d": (lambda x, w: torch.nn.functional.conv1d(x, w, stride=2, padding=3), (2, 8, 300), (20, 8, 7)),
    "conv2d": (
        lambda x, w: torch.nn.functional.conv2d(x, w, padding=(2, 1), dilation=2),
        (2, 6, 30, 31),
        (17, 6, 3, 2),
    ),
    "conv2d with rest": (lambda x, w: torch.nn.functional.conv2d(x, w, stride=3), (1, 9, 32, 33), (16, 9, 3, 4)),
    "conv3d": (lambda x, w: torch.nn.functional.conv3d(x, w, padding=1), (1, 4, 9, 10, 11), (8, 4, 3, 3, 3)),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_products_run_by_tiles(name: str) -> None:
    fn, *shapes = LARGE[name]
    generator = torch.Generator().manual_seed(0)
    args = tuple(torch.randn(shape, generator=generator) for shape in shapes)
    program = compile(fn, args, "tosa")
    torch.testing.assert_close(program(*args), fn(*(a.double() for a in args)).float(), rtol=1e-4, atol=1e-4)
    assert "tosa.conv" in program.ir["tosa"] or "tosa.matmul" in program.ir["tosa"]
    assert "vector.fma" in program.ir["linalg"]

"""Tensors without dims, without elements, and with dims that only repeat: indices, repeats, reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchstone.compiler.driver import compile

Agrees = Callable[..., None]
Program = Callable[..., Any]
NUMBERS = (torch.tensor(3.0), torch.tensor(-3), torch.tensor(True), torch.tensor(1 - 2j))
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64)

BY_INDEX: dict[str, Program] = {
    "gather": lambda x, i: torch.gather(x, 0, i),
    "index_select": lambda x, i: x.index_select(0, i),
    "take": lambda x, i: x.take(i),
    "put": lambda x, i: x.put(i, x.reshape(i.shape)),
    "scatter": lambda x, i: x.scatter(0, i, x.reshape(i.shape)),
    "scatter_add": lambda x, i: x.scatter_add(0, i, x.reshape(i.shape)),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i, x.reshape(i.shape), "prod", include_self=False),
    "index_add": lambda x, i: x.index_add(0, i, x),
    "index_copy": lambda x, i: x.index_copy(0, i, x.reshape(i.shape)),
    "index_fill": lambda x, i: x.index_fill(0, i, 1),
    "index": lambda x, i: x.reshape(1)[i],
}


@pytest.mark.parametrize("name", BY_INDEX)
def test_a_number_at_an_index_without_dims(agrees: Agrees, name: str) -> None:
    for x in NUMBERS:
        for index in (torch.tensor(0), torch.tensor([0])):
            agrees(BY_INDEX[name], x, index)


OVER_A_DIM: dict[str, Program] = {
    "sum": lambda x, d: x.sum(d),
    "prod": lambda x, d: x.prod(d),
    "amax": lambda x, d: x.amax(d),
    "aminmax": lambda x, d: x.aminmax(dim=d),
    "argmax": lambda x, d: x.argmax(d),
    "any": lambda x, d: x.any(d),
    "count_nonzero": lambda x, d: x.count_nonzero(d),
    "mean": lambda x, d: x.mean(d),
    "var": lambda x, d: x.var(d, correction=0),
    "logsumexp": lambda x, d: x.logsumexp(d),
    "cumsum": lambda x, d: x.cumsum(d),
    "sort": lambda x, d: x.sort(dim=d, stable=True),
}


def _every_dim(program: Program, shape: tuple[int, ...]) -> Program:
    return lambda x: [program(x.expand(shape), d) for d in range(len(shape))]


@pytest.mark.few(5)
@pytest.mark.parametrize("name", OVER_A_DIM)
def test_a_dim_that_repeats_one_row(agrees: Agrees, name: str) -> None:
    """No operand has the dim that is reduced: the loop over it is made of its size alone."""
    program = OVER_A_DIM[name]
    for dtype in DTYPES:
        x = (torch.arange(5) % 3).to(dtype)
        for of, shape in ((x, (3, 4, 5)), (x, (1, 1, 5)), (x[1], (4, 3))):
            try:
                program(of.expand(shape), 0)
            except (RuntimeError, NotImplementedError):
                continue  # eager has no such kernel
            agrees(_every_dim(program, shape), of)
            agrees(lambda shape=shape, dtype=dtype: program(torch.ones(shape, dtype=dtype), 0))


@pytest.mark.parametrize("name", ["sum", "prod", "amax", "cumsum"])
def test_a_dim_that_repeats_one_row_in_loops(name: str) -> None:
    program = _every_dim(OVER_A_DIM[name], (3, 4, 5))
    for dtype in (torch.float32, torch.int64, torch.bool):
        x = (torch.arange(5) % 3).to(dtype)
        for got, want in zip(compile(program, (x,), "linalg")(x), program(x), strict=True):
            assert torch.equal(got, want)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.bool, torch.uint16], ids=str)
def test_extremes_of_nothing_need_no_order(agrees: Agrees, dtype: torch.dtype) -> None:
    agrees(lambda x: (x.amax(0), x.amin((0, 2))), torch.zeros(4, 0, 5, dtype=dtype))


@pytest.mark.parametrize("repeats", [(-1,), (2, -1), (3, 1, -5)], ids=str)
def test_nothing_may_be_repeated_a_negative_number_of_times(agrees: Agrees, repeats: tuple[int, ...]) -> None:
    agrees(lambda x: (x.repeat(repeats), x.tile(repeats)), torch.ones(0))
    with pytest.raises(RuntimeError, match="negative dimension"):
        compile(lambda x: x.repeat(repeats), (torch.ones(3),), "evaluator")


@pytest.mark.parametrize("dim", [0, -1, 2, 70])
def test_nothing_joined_to_nothing_has_any_dim(agrees: Agrees, dim: int) -> None:
    agrees(lambda x, y: torch.cat([x, y], dim), torch.ones(0), torch.ones(0, dtype=torch.complex64))


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        (torch.addmm, ((5, 10), (5, 0), (0, 10))),
        (torch.addmv, ((5,), (5, 0), (0,))),
        (torch.addmv, ((1,), (0, 3), (3,))),
        (torch.baddbmm, ((2, 5, 10), (2, 5, 0), (2, 0, 10))),
        (torch.addbmm, ((5, 10), (0, 5, 3), (0, 3, 10))),
    ],
)
def test_of_no_products_there_is_nothing_to_multiply(op: Any, shapes: tuple[tuple[int, ...], ...]) -> None:
    args = tuple(torch.rand(shape) for shape in shapes)

    def scaled(*tensors: torch.Tensor) -> torch.Tensor:
        return op(*tensors, alpha=float("nan"), beta=2)

    torch.testing.assert_close(compile(scaled, args)(*args), scaled(*args))


@pytest.mark.parametrize("factor", ["alpha", "beta"])
@pytest.mark.parametrize(("op", "shapes"), [
    (torch.addmm, ((3,), (0, 2), (2, 3))),
    (torch.addbmm, ((3,), (2, 0, 2), (2, 2, 3))),
    (torch.baddbmm, ((3,), (1, 0, 2), (1, 2, 3))),
    (torch.addmv, ((0,), (0, 2), (2,))),
])  # fmt: skip
def test_factors_of_products_without_numbers_are_not_looked_at(
    agrees: Agrees, op: Program, shapes: tuple[Any, ...], factor: str
) -> None:
    """NaN is no factor of integers, and eager says so of any other product."""
    operands = [torch.ones(shape, dtype=torch.int8) for shape in shapes]
    if (op, factor) != (torch.addmv, "beta"):  # of no rows it is the bias, which has a factor
        agrees(lambda *operands: op(*operands, **{factor: float("nan")}), *operands)

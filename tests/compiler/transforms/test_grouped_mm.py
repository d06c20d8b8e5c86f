"""Products by groups, as experts are computed, against eager."""

from typing import Any

import pytest
import torch

from torchstone.compiler.driver import compile

TARGETS = ("evaluator", "linalg", "tosa", "stablehlo", "tensorrt")
SHAPES = {
    "rows": ((8, 4), (3, 4, 8)),
    "columns": ((3, 8, 4), (4, 8)),
    "inner": ((4, 8), (8, 4)),
    "batches": ((3, 8, 4), (3, 4, 8)),
}


def operands(form: str) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    one, other = SHAPES[form]
    return torch.randn(one), torch.randn(other)


def multiply(x: torch.Tensor, y: torch.Tensor, *offs: torch.Tensor) -> torch.Tensor:
    return torch._grouped_mm(x, y, *offs)


def ends(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


@pytest.mark.few(12)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", SHAPES)
def test_groups_are_those_that_values_tell(target: str, form: str) -> None:
    x, y = operands(form)
    offs: list[Any] = [] if form == "batches" else [ends(2, 5, 8)]
    exe = compile(multiply, (x, y, *offs), target)
    torch.testing.assert_close(exe(x, y, *offs), multiply(x, y, *offs))
    for other in (ends(0, 0, 8), ends(3, 3, 8), ends(8, 8, 8), ends(5, 2, 8), ends(2, 5, 12)) if offs else ():
        torch.testing.assert_close(exe(x, y, other), multiply(x, y, other))


@pytest.mark.parametrize("form", ["rows", "columns", "inner"])
def test_what_is_not_finite_stays_in_its_group(form: str) -> None:
    x, y = operands(form)
    y[..., -1, -1] = torch.inf
    x[..., -1, -1] = torch.nan
    offs = ends(2, 5, 8)
    exe = compile(multiply, (x, y, offs), "linalg")
    torch.testing.assert_close(exe(x, y, offs), multiply(x, y, offs), equal_nan=True)


@pytest.mark.parametrize("target", TARGETS)
def test_what_lies_behind_all_groups_is_ignored(target: str) -> None:
    x, y, offs = torch.randn(4, 8), torch.randn(12, 8), ends(2, 7)
    torch.testing.assert_close(compile(multiply, (x, y, offs), target)(x, y, offs), multiply(x, y, offs))


@pytest.mark.parametrize("shapes", [((8, 4), (0, 4, 8)), ((0, 8, 4), (4, 8)), ((4, 8), (8, 4))])
def test_products_of_no_groups(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    x, y = map(torch.randn, shapes)
    exe = compile(multiply, (x, y, ends()), "linalg")
    assert exe(x, y, ends()).shape == multiply(x, y, ends()).shape

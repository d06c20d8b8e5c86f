"""Whole numbers that are read from tensors: as sizes, which none below 0 is, and as what an op has no symbol for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from torchstone.compiler.diagnostics import GuardError
from torchstone.compiler.driver import compile

X = torch.arange(6.0).reshape(3, 2)


def number(value: int) -> Tensor:
    return torch.tensor(value)


def rolled(x: Tensor, n: Tensor) -> Tensor:
    return x.roll(int(n.item()), 0)


@pytest.mark.parametrize("target", ["evaluator", "linalg"])
@pytest.mark.parametrize("value", [-2, -1, 0, 1, 2])
def test_a_number_below_0_is_held(value: int, target: str) -> None:
    executable = compile(rolled, (X, number(value)), target)
    for other in (-2, -1, 0, 1, 2):
        try:
            got = executable(X, number(other))
        except GuardError:
            assert other != value and (other < 0 or value < 0)
        else:
            assert torch.equal(got, rolled(X, number(other)))


def test_a_factor_below_0_is_another_at_each_call() -> None:
    executable = compile(lambda x, n: x * n.item(), (X, number(-3)), "linalg")
    for value in (-3, 5, -7):
        assert torch.equal(executable(X, number(value)), X * value)


@pytest.mark.parametrize("target", ["evaluator", "linalg"])
def test_lengths_and_steps_that_are_read(target: str) -> None:
    counted = compile(lambda x, n: torch.bincount(x, minlength=int(n.item())), (number(2)[None], number(5)), target)
    for value in (1, 3, 9):
        assert torch.equal(counted(number(2)[None], number(value)), torch.bincount(number(2)[None], minlength=value))
    stepped = compile(lambda x, n: torch.slice_copy(x, 0, 0, 3, int(n.item())), (X, number(2)), target)
    assert torch.equal(stepped(X, number(2)), X[0:3:2])
    with pytest.raises(GuardError):
        stepped(X, number(1))


def test_a_number_is_copied() -> None:
    program = lambda x: (x.clone().copy_(2.5), x.long().copy_(3))  # noqa: E731
    for got, expected in zip(compile(program, (X,), "linalg")(X), program(X), strict=True):
        assert torch.equal(got, expected)


WINDOWS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "stride": lambda x, n: F.conv1d(x, x, stride=(int(n.item()),)),
    "padding": lambda x, n: F.conv1d(x, x, padding=int(n.item())),
    "dilation": lambda x, n: F.conv1d(x, x, padding=8, dilation=int(n.item())),
    "pool": lambda x, n: F.max_pool1d(x, int(n.item())),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_of_a_number_that_is_read(name: str) -> None:
    program, x = WINDOWS[name], torch.arange(24.0).reshape(2, 2, 6)
    executable = compile(program, (x, number(2)), "linalg")
    assert torch.equal(executable(x, number(2)), program(x, number(2)))
    try:
        assert torch.equal(executable(x, number(1)), program(x, number(1)))
    except GuardError as error:
        assert "2" in str(error) and "1" in str(error)

"""Programs that seed the random generator themselves: by numbers of theirs, and by numbers read from tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.sampling import covering
from torchstone.compiler.driver import compile

SEED, SHARE, ZEROS = torch.tensor(42), torch.tensor(0.5, dtype=torch.float64), torch.zeros(3)
SEEDS: dict[str, Callable[[Tensor], None]] = {
    "42": lambda n: torch.manual_seed(42) and None,
    "7": lambda n: torch.manual_seed(7) and None,
    "read": lambda n: torch.manual_seed(int(n.item())) and None,
    "none": lambda n: None,
}
SHARES: dict[str, Callable[[Tensor], float]] = {"given": lambda k: 0.5, "read": lambda k: k.item()}


def drawing(first: str, second: str, share: str) -> Callable[..., Any]:
    def program(x: Tensor, n: Tensor, k: Tensor) -> Any:
        SEEDS[first](n)
        one = torch.rand(3) * SHARES[share](k)
        SEEDS[second](n)
        return x + one, torch.empty(3).exponential_(SHARES[share](k)), x.clone().bernoulli_(0.5)

    return program


@pytest.mark.few(8)
@pytest.mark.parametrize(
    ("first", "second", "share", "target"), covering(("42", "read"), SEEDS, SHARES, ("evaluator", "linalg"), strength=3)
)
def test_draws_follow_the_last_seed(first: str, second: str, share: str, target: str) -> None:
    program = drawing(first, second, share)
    executable = compile(program, (ZEROS, SEED, SHARE), target)
    torch.manual_seed(3)
    for got, expected in zip(executable(ZEROS, SEED, SHARE), program(ZEROS, SEED, SHARE), strict=True):
        assert torch.equal(got, expected)


def test_a_function_that_torchdynamo_wraps_later_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: Tensor) -> Tensor:
        torch.manual_seed(1)
        return torch.rand(3) + x

    executable, plain = compile(program, (ZEROS,), "evaluator"), torch.manual_seed

    @functools.wraps(plain)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return plain(*args, **kwargs)

    monkeypatch.setattr(torch, "manual_seed", wrapped)
    assert torch.equal(executable(ZEROS), program(ZEROS))

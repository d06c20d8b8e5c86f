"""Functions that come to 1 in all the digits there are: what they lack shows in what is left of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.conformance.oracle.generated.sweep import finding_of
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.op_traits.rounding import TRANSCENDENTAL
from torchstone.conformance.oracle.op_traits.trait import each
from torchstone.conformance.oracle.ulp import representable
from torchstone.conformance.program.program import Call, Program, Ref

REST: dict[str, tuple[list[float], Callable[[Tensor], Tensor]]] = {
    "tanh": ([20.0, 30.0], lambda x: 2 / (1 + torch.exp(2 * x))),
    "sigmoid": ([40.0, 50.0], lambda x: torch.sigmoid(-x)),
    "erf": ([6.5, 9.0], torch.erfc),
    "cos": ([1e-9, -2e-10], lambda x: 2 * torch.sin(x / 2) ** 2),
}
"""Where a function is 1 in float64, and what it lacks."""


def one_less(name: str) -> Program:
    return Program(
        ("x",), (Call(f"torch.{name}", (Ref("x"),), {}, "y"), Call("torch.sub", (1.0, Ref("y")), {}, "z")), Ref("z")
    )


@pytest.mark.few(2)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", REST)
def test_what_a_function_lacks_is_right_and_more_is_not(name: str, dtype: torch.dtype) -> None:
    at, rest = REST[name]
    x = torch.tensor(at, dtype=dtype)
    program, right = one_less(name), rest(x.double()).to(dtype)
    assert program(x).tolist() == [0, 0] and right.all()
    assert finding_of(program, (x,), right).outcome is not Outcome.MISMATCH
    eps = torch.finfo(dtype).eps
    assert finding_of(program, (x,), right + 64 * eps).outcome is Outcome.MISMATCH


def test_at_zero_nothing_is_lacking() -> None:
    x = torch.zeros(2)
    for name in ("cos", "exp"):
        assert finding_of(one_less(name), (x,), x + 1e-8).outcome is Outcome.MISMATCH


def test_no_result_elsewhere_has_few_digits() -> None:
    x = torch.randn(2000, generator=torch.Generator().manual_seed(0)).double()  # numbers of float32
    for name in each("cos cosh erf erfc exp expm1 sigmoid sin sinh tan tanh"):
        assert TRANSCENDENTAL.holds(getattr(torch.ops.aten, name).default)
        assert not representable(getattr(torch, name)(x), torch.float32).any(), name

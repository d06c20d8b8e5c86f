"""Code that is optimized at once."""

from __future__ import annotations

import pytest
import torch

from torchstone.compiler.driver import compile
from torchstone.compiler.optimization import at_once, optimizing
from torchstone.compiler.runtime.cpu import jit


@pytest.mark.parametrize("target", ["linalg", "tosa", "stablehlo"])
def test_a_small_program_is_optimized_at_once_if_that_is_asked(target: str) -> None:
    x = torch.randn(6, 10)

    def softmax(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)

    quick, optimized = (compile(softmax, (x,), target, optimize=at_once) for at_once in (False, True))
    assert quick.ir["llvm"] != optimized.ir["llvm"]
    for exe in (quick, optimized):
        torch.testing.assert_close(exe(x), softmax(x))


@pytest.mark.parametrize("target", ["linalg", "tosa", "stablehlo"])
@pytest.mark.parametrize("summed", [7, 0])
def test_a_small_product_is_computed_in_tiles_if_that_is_asked(target: str, summed: int) -> None:
    args = torch.randn(2, 5, summed), torch.randn(2, summed, 9)
    for optimize in (False, True):
        exe = compile(torch.bmm, args, target, optimize=optimize)
        assert ("vector.fma" in exe.ir["linalg"]) == (optimize and summed > 0)
        torch.testing.assert_close(exe(*args), torch.bmm(*args))


def test_it_is_asked_of_one_program_only() -> None:
    with pytest.raises(ZeroDivisionError), optimizing(at_once=True):
        1 / 0  # noqa: B018
    assert not at_once() and jit.opt_level(10) == jit.FAST_COMPILE
    with optimizing(at_once=True):
        compile(torch.exp, (torch.ones(2),))
        assert at_once() and jit.opt_level(10) == jit.FAST_CODE

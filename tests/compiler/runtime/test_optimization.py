"""Code that is optimized at once."""

from __future__ import annotations

import pytest
import torch

from torchstone.compiler.driver import compile
from torchstone.compiler.runtime.cpu import jit
from torchstone.compiler.runtime.optimization import at_once, optimizing


@pytest.mark.parametrize("target", ["linalg", "tosa", "stablehlo"])
def test_a_small_program_is_optimized_at_once_if_that_is_asked(target: str) -> None:
    x = torch.randn(6, 10)

    def softmax(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1)

    quick, optimized = (compile(softmax, (x,), target, optimize=at_once) for at_once in (False, True))
    assert quick.ir["llvm"] != optimized.ir["llvm"]
    for exe in (quick, optimized):
        torch.testing.assert_close(exe(x), softmax(x))


def test_it_is_asked_of_one_program_only() -> None:
    with pytest.raises(ZeroDivisionError), optimizing(at_once=True):
        1 / 0  # noqa: B018
    assert not at_once() and jit.opt_level(10) == jit.FAST_COMPILE
    with optimizing(at_once=True):
        compile(torch.exp, (torch.ones(2),))
        assert at_once() and jit.opt_level(10) == jit.FAST_CODE

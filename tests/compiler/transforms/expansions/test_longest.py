"""An op whose expansion is out of all proportion is refused, with the count, before anything is compiled."""

import pytest
import torch

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.driver import compile


def test_an_expansion_too_long_to_compile_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"takes \d+ primitives here, and 512 is the most for one op") as caught:
        compile(lambda x: torch.block_diag(*[x] * 300), (torch.randn(2, 2),), "evaluator")
    assert caught.value.op == "aten.block_diag.default"

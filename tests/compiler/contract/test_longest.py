"""An op whose expansion is out of all proportion is refused, with the count, before anything is compiled."""

import pytest
import torch
from torch.nn import functional as F

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.driver import compile


def test_an_expansion_too_long_to_compile_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"takes \d+ primitives here, and 512 is the most for one op") as caught:
        compile(lambda x: F.max_pool3d(x, 5), (torch.randn(1, 8, 8, 8),), "evaluator")
    assert caught.value.op == "aten.max_pool3d_with_indices.default"

"""Normalization: what eager reads past the end of is refused."""

from __future__ import annotations

import pytest
import torch

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.driver import compile


@pytest.mark.parametrize("short", range(4))
def test_parameters_of_another_size_than_the_channels_are_refused(short: int) -> None:
    args = (torch.randn(2, 5, 3), *(torch.ones(1 if i == short else 5) for i in range(4)))
    with pytest.raises(Unsupported, match="another size than the channels"):
        compile(lambda x, *v: torch.ops.aten.native_batch_norm(x, *v, True, 0.1, 1e-5), args, target="evaluator")

"""``torch.cond`` and ``torch.while_loop``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torchstone.compiler._torch.names import uses


@contextlib.contextmanager
@uses("torch._higher_order_ops.utils._hop_compile_and_call")
def called_directly() -> Iterator[None]:
    """Have torch.cond and torch.while_loop call their op, and compile no wrapper of it.

    Under a dispatch mode PyTorch gives up on compiling the wrapper for good: the same call in eager, later in the
    process, then fails.
    """
    from torch._higher_order_ops import utils

    compiled = utils._hop_compile_and_call
    utils._hop_compile_and_call = lambda fn, args, kwargs=None: fn(*args, **(kwargs or {}))
    try:
        yield
    finally:
        utils._hop_compile_and_call = compiled

"""PyTorch's own test databases: samples for its ops and its modules."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any
from unittest import mock

from torchstone.compiler._torch.names import Names, uses

_TESTING = "torch.testing._internal"
_WALKERS = (f"{_TESTING}.common_utils", f"{_TESTING}.opinfo.core")
_NAMES = Names(
    __name__,
    {
        "op_db": (f"{_TESTING}.common_methods_invocations.op_db", "take samples of ops"),
        "module_db": (f"{_TESTING}.common_modules.module_db", "take samples of modules"),
        "OpInfo": (f"{_TESTING}.opinfo.core.OpInfo", "describe ops as the op database does"),
        "SampleInput": (f"{_TESTING}.opinfo.core.SampleInput", "describe samples as the op database does"),
        "UnaryUfuncInfo": (f"{_TESTING}.opinfo.core.UnaryUfuncInfo", "tell elementwise ops of one operand"),
        "BinaryUfuncInfo": (f"{_TESTING}.opinfo.core.BinaryUfuncInfo", "tell elementwise ops of two operands"),
        "ReductionOpInfo": (f"{_TESTING}.opinfo.core.ReductionOpInfo", "tell reductions"),
    },
)


def __getattr__(name: str) -> Any:
    return _NAMES.look_up(name)


@contextlib.contextmanager
@uses(*(f"{walker}.extract_test_fn" for walker in _WALKERS))
def no_stack_walks() -> Iterator[None]:
    """Keep the databases from looking for a running unittest.

    Each sampling walks the whole stack for one: 0.1 s a time under pytest, and what it finds would go into the seed.
    """
    with contextlib.ExitStack() as patches:
        for module in filter(None, map(sys.modules.get, _WALKERS)):
            patches.enter_context(mock.patch.object(module, "extract_test_fn", lambda: None))
        yield

"""Fake tensors, which have sizes and dtypes and no values, and PyTorch's shape functions on them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torchstone.compiler._torch.names import Names, uses

_NAMES = Names(
    __name__,
    {
        "FakeTensorMode": ("torch._subclasses.fake_tensor.FakeTensorMode", "run ops on sizes and dtypes alone"),
        "FakeTensor": ("torch._subclasses.fake_tensor.FakeTensor", "tell a fake tensor from another"),
        "UnsupportedOperatorException": (
            "torch._subclasses.fake_tensor.UnsupportedOperatorException",
            "tell an op without a shape function",
        ),
        "DataDependentOutputException": (
            "torch._subclasses.fake_tensor.DataDependentOutputException",
            "tell an op that gives Python a number",
        ),
        "DynamicOutputShapeException": (
            "torch._subclasses.fake_tensor.DynamicOutputShapeException",
            "tell an op whose result sizes depend on values",
        ),
        "rules": (
            "torch._subclasses.fake_impls.op_implementations_dict",
            "keep the rules that PyTorch adds for an op's fake results",
        ),
        "detect_fake_mode": ("torch._guards.detect_fake_mode", "find the mode that fake tensors belong to"),
    },
)


def __getattr__(name: str) -> Any:
    return _NAMES.look_up(name)


@contextlib.contextmanager
@uses("torch._subclasses.fake_tensor.log")
def refusals_unlogged() -> Iterator[None]:
    """Keep PyTorch from logging each error that a shape function raises."""
    from torch._subclasses.fake_tensor import log

    was, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = was

"""How the expansions are tried: compiled for the evaluator, which runs FlatIR in eager, and compared with eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from torchstone.compiler.driver import compile

# Only the expansions are on trial here, and they follow eager's formulas: far tighter than a backend's tolerance.
_RELATIVE = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 4e-6, torch.float64: 1e-12}
_RELATIVE |= {torch.complex32: 4e-3, torch.complex64: 1e-5, torch.complex128: 1e-12}


def assert_same(got: Any, expected: Any, *, slack: float = 1.0) -> None:
    """Assert equal trees of tensors: dtypes and shapes exactly, integers exactly, floats within a few ULP."""
    got_leaves, got_spec = pytree.tree_flatten(got)
    expected_leaves, expected_spec = pytree.tree_flatten(expected)
    assert got_spec == expected_spec
    for mine, theirs in zip(got_leaves, expected_leaves, strict=True):
        if isinstance(theirs, torch.Tensor):
            rtol = slack * _RELATIVE.get(theirs.dtype, 0.0)
            torch.testing.assert_close(mine, theirs, rtol=rtol, atol=4 * rtol, equal_nan=True)
        else:
            assert mine == theirs


def _agrees(fn: Callable[..., Any], *args: Any, slack: float = 1.0) -> None:
    with torch.no_grad():
        expected = fn(*pytree.tree_map(_clone, args))
        exe = compile(fn, args, target="evaluator", alias_results=False)
        assert_same(exe(*args), expected, slack=slack)


def _clone(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


@pytest.fixture
def agrees() -> Callable[..., None]:
    """``agrees(fn, *args)``: the compiled function gives what eager gives."""
    return _agrees

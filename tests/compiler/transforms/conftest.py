"""How the expansions are tried: compiled for the evaluator, which runs FlatIR in eager, and compared with eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from torchstone.compiler.driver import compile

# Only the expansions are on trial here, and they follow eager's formulas: some roundings apart, far less than a backend
# may be. 16 bits are rounded once by each, from float32.
_EPSILONS = {torch.float16: 2, torch.bfloat16: 2}


def _relative(dtype: torch.dtype) -> float:
    exact = not (dtype.is_floating_point or dtype.is_complex)
    return 0.0 if exact else _EPSILONS.get(dtype, 8) * torch.finfo(dtype).eps


def assert_same(got: Any, expected: Any, *, slack: float = 1.0) -> None:
    """Assert equal trees of tensors: dtypes, shapes and integers exactly, floats within ``slack`` times a few ULP."""
    got_leaves, got_spec = pytree.tree_flatten(got)
    expected_leaves, expected_spec = pytree.tree_flatten(expected)
    assert got_spec == expected_spec
    for mine, theirs in zip(got_leaves, expected_leaves, strict=True):
        if isinstance(theirs, torch.Tensor):
            rtol = slack * _relative(theirs.dtype)
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

"""ExecuTorch's adapter: what it gives is eager's, what ran and where is told, what it declines has a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchstone.conformance import backends
from torchstone.conformance.backends import Backend, BackendUnsupported


@pytest.fixture(scope="module")
def executorch() -> Backend:
    backend = backends.load("executorch")
    if not backend.available().ok:
        assert backend.available().install == "pip install 'torchstone[executorch]'"
        pytest.skip(backend.available().reason)
    return backend


def matches(executorch: Backend, fn: Callable[..., Any], *args: torch.Tensor) -> Any:
    """Compile and call on copies; results and arguments must be eager's. Return what was compiled."""
    mine, theirs = (tuple(arg.clone() for arg in args) for _ in range(2))
    compiled = executorch.compile(fn, tuple(arg.clone() for arg in args))
    torch.testing.assert_close(compiled(*mine), fn(*theirs))
    torch.testing.assert_close(mine, theirs)
    return compiled


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64, torch.uint8], ids=str)
def test_numbers_are_computed_in_their_dtype(executorch: Backend, dtype: torch.dtype) -> None:
    x = torch.tensor([[1, 2, 3], [5, 8, 13]], dtype=dtype)
    matches(executorch, lambda x: (x + x, x * 3), x)
    if dtype in (torch.float64, torch.int64):  # what float32 or int32 could not hold
        matches(executorch, lambda x: x - 1, torch.tensor([2**53 - 1, 2**40 + 1], dtype=dtype))


def test_structure_sizes_bools_and_writes(executorch: Backend) -> None:
    def structure(x: torch.Tensor, y: torch.Tensor) -> Any:
        return {"topk": x.topk(2), "rest": [y.add_(1), None, (x > 0.5, 3)], "same": x}

    compiled = matches(executorch, structure, torch.rand(4, 4), torch.rand(4))
    first = compiled(torch.rand(4, 4), torch.rand(4))["topk"]
    kept = first.values.clone()
    compiled(torch.rand(4, 4), torch.rand(4))
    assert torch.equal(first.values, kept), "a result lies in memory of the runtime"
    matches(executorch, lambda x: x * 2, torch.rand(4, 3).t())


def test_kernels_and_the_delegates_ops_are_told(executorch: Backend) -> None:
    compiled = matches(executorch, lambda x: (torch.softmax(x, -1), x.topk(2).values), torch.rand(4, 4))
    ran = compiled.evidence["ran"]
    assert set(ran) == set(executorch.executors)
    assert ran["kernels"] == ["topk.values"] and "Softmax" in ran["XnnpackBackend"][0]


def test_what_is_declined_has_a_reason(executorch: Backend) -> None:
    with pytest.raises(BackendUnsupported, match="linalg_svd") as declined:
        executorch.compile(torch.linalg.svd, (torch.eye(3),))
    assert declined.value.stage == "lower" and "linalg_svd" in declined.value.op

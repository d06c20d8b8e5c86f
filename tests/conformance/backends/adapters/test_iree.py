"""IREE's adapter: what it gives is eager's, what ran is told, what it declines keeps the compiler's own words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchstone.conformance import backends
from torchstone.conformance.backends import Backend, BackendError, BackendUnsupported
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.variants.dynamic import DYNAMIC


@pytest.fixture(scope="module")
def iree() -> Backend:
    backend = backends.load("iree")
    if not backend.available().ok:
        assert backend.available().install == "pip install 'torchstone[iree]'"
        pytest.skip(backend.available().reason)
    return backend


def matches(iree: Backend, fn: Callable[..., Any], *args: torch.Tensor) -> Any:
    """Compile and call on copies; results and arguments must be eager's. Return what was compiled."""
    mine, theirs = (tuple(arg.clone() for arg in args) for _ in range(2))
    compiled = iree.compile(fn, tuple(arg.clone() for arg in args))
    torch.testing.assert_close(compiled(*mine), fn(*theirs))
    torch.testing.assert_close(mine, theirs)
    return compiled


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16],
    ids=str,
)
def test_numbers_are_computed_in_their_dtype(iree: Backend, dtype: torch.dtype) -> None:
    x = torch.tensor([[1, 2, 3], [5, 8, 13]], dtype=dtype)
    matches(iree, lambda x: (x + x, x.t(), x * 3), x)
    if dtype in (torch.float64, torch.int64):  # what float32 or int32 could not hold
        matches(iree, lambda x: x - 1, torch.tensor([2**53 - 1, 2**40 + 1], dtype=dtype))


def test_structure_sizes_bools_and_writes(iree: Backend) -> None:
    def structure(x: torch.Tensor, y: torch.Tensor) -> Any:
        return {"topk": x.topk(2), "rest": [y.add_(1), None, (x > 0.5, 3)], "same": x}

    compiled = matches(iree, structure, torch.rand(4, 4), torch.rand(4).t())
    first = compiled(torch.rand(4, 4), torch.rand(4))["topk"]
    kept = first.values.clone()
    compiled(torch.rand(4, 4), torch.rand(4))
    assert torch.equal(first.values, kept), "a result lies in memory of the runtime"
    matches(iree, lambda x, y: (x + 1, y.sum(0), y * 2), torch.tensor(2.0), torch.rand(0, 3))


def test_dispatches_are_told(iree: Backend) -> None:
    compiled = matches(iree, lambda x: torch.softmax(x @ x, -1), torch.eye(4))
    ran = compiled.evidence["ran"]
    assert set(ran) <= set(iree.executors) and [op.partition("_")[0] for op in ran["llvm-cpu"]] == ["matmul", "softmax"]
    assert matches(iree, lambda x: x, torch.eye(4)).evidence == {"ran": {}}


def test_one_compilation_serves_several_sizes(iree: Backend) -> None:
    program = Program(("x",), (Call("torch.softmax", (Ref("x"), -1), {}, "y"),), Ref("y"))
    case = Case(program, {"x": torch.rand(3, 4)}, "test", "softmax", "float32", variant=DYNAMIC)
    verdict = run_case(case, iree)
    assert verdict.outcome == "pass", verdict.message
    assert "D" in verdict.evidence["ran"]["llvm-cpu"][0], "compiled for one size"


def test_the_compilers_own_words_are_kept(iree: Backend, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BackendUnsupported, match="failed to legalize") as declined:
        iree.compile(torch.linalg.svd, (torch.eye(3),))
    assert (declined.value.op, declined.value.stage) == ("aten.linalg_svd", "compile")
    assert "failed to legalize" in capfd.readouterr().err, "a crash would leave no last words"
    with pytest.raises(BackendUnsupported, match=r"uint16") as declined:
        iree.compile(lambda x: x + 1, (torch.ones(2, dtype=torch.uint16),))
    assert declined.value.stage == "lower"
    with pytest.raises(BackendError, match="undefined symbol: sin") as failed:  # the linker's, printed past MLIR
        iree.compile(torch.sin, (torch.ones(2, dtype=torch.float64),))
    assert failed.value.stage == "compile"


def test_a_type_that_iree_is_built_without_is_declined(iree: Backend) -> None:
    with pytest.raises(BackendUnsupported, match=r"sparse_tensor.*unregistered dialect") as declined:
        iree.compile(lambda x: x.to_sparse(), (torch.eye(3),))
    assert declined.value.stage == "lower"


def test_sizes_that_do_not_fit_are_an_error_of_the_run(iree: Backend) -> None:
    compiled = iree.compile(lambda x: x + 1, (torch.ones(3),))
    with pytest.raises(BackendError, match="shape") as failed:
        compiled(torch.ones(4))
    assert failed.value.stage == "run"

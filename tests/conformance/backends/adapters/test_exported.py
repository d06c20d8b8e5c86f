"""Adapters of compilers that take exported programs: each in its own environment, skipped where it is absent."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchstone.conformance import backends
from torchstone.conformance.backends import Backend, BackendError, BackendUnsupported
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.repro.compiler_paths import PATHS
from torchstone.conformance.repro.path_text import Needs

NAMES = ("xla", "tvm")


@pytest.fixture(params=NAMES)
def backend(request: pytest.FixtureRequest) -> Backend:
    found = backends.load(request.param)
    state = found.available()
    if not state.ok:
        assert f"torchstone[{request.param}]" in state.install
        pytest.skip(state.reason)
    assert set(found.versions()) > {"torch"}
    return found


def same(backend: Backend, fn: Any, *args: torch.Tensor) -> Any:
    """Compile and call on copies; results and arguments must be eager's. Return what was compiled."""
    mine, theirs = (tuple(arg.clone() for arg in args) for _ in range(2))
    compiled = backend.compile(fn, tuple(arg.clone() for arg in args))
    torch.testing.assert_close(compiled(*mine), fn(*theirs))
    torch.testing.assert_close(mine, theirs)
    return compiled


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8, torch.uint8],
    ids=str,
)
def test_every_dtype_is_computed_as_declared(backend: Backend, dtype: torch.dtype) -> None:
    whole = torch.tensor([[1, 2, 3], [5, 8, 13]], dtype=dtype)
    same(backend, lambda x: (x + x, x * 3), whole)
    if dtype in (torch.float64, torch.int64):  # what float32 or int32 could not hold
        big = torch.tensor([2**53 - 1, 2**40 + 1], dtype=dtype)
        same(backend, lambda x: x - 1, big)


def test_structure_sizes_strides_and_writes(backend: Backend) -> None:
    same(backend, lambda x: {"sum": x + 1, "rest": [x, None, (x * 2, 3)]}, torch.rand(2, 3))
    same(backend, lambda x: x.add_(1), torch.rand(3))
    same(backend, lambda x: x * 2, torch.rand(4, 4).t()[::2])
    same(backend, lambda x: x + 1, torch.rand(()))
    same(backend, lambda x: x + 1, torch.rand(0, 3))
    same(backend, lambda x: ~x, torch.tensor([True, False]))
    same(backend, lambda x: (x + torch.tensor([1.0, 2.0, 5.0]), torch.tensor([True, False])), torch.rand(3))


@pytest.mark.filterwarnings("ignore::FutureWarning")  # torch.export's own
def test_the_path_that_scripts_carry_gives_the_same(backend: Backend) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            return [x + torch.tensor([1.0, 2.0, 5.0]), x * 2]  # XLA wants its constants in another place

    x = torch.rand(3)
    results = PATHS[backend.name](Module(), (x,), Needs())(x)
    torch.testing.assert_close(results, [x + torch.tensor([1.0, 2.0, 5.0]), x * 2])


def test_what_ran_is_told(backend: Backend) -> None:
    compiled = same(backend, lambda x: (x @ x).exp(), torch.eye(3))
    ((executor, ops),) = compiled.evidence["ran"].items()
    assert (executor,) == backend.executors and any("mat" in op or "dot" in op for op in ops)
    program = Program(("x",), (Call("torch.exp", (Ref("x"),), {}, "y"),), Ref("y"))
    verdict = run_case(Case(program, {"x": torch.eye(2)}, "test", "exp", "float32"), backend)
    assert verdict.outcome == "pass" and verdict.evidence["ran"] and "unproven" not in verdict.evidence


def test_what_is_declined_has_a_reason(backend: Backend) -> None:
    with pytest.raises(BackendUnsupported, match="_linalg_svd") as caught:
        backend.compile(torch.linalg.svd, (torch.eye(3),))
    assert caught.value.stage == "lower" and "_linalg_svd" in caught.value.op
    with pytest.raises(BackendUnsupported, match="complex"):
        backend.compile(lambda x: x + x, (torch.eye(3, dtype=torch.complex64),))


def test_a_call_that_does_not_fit_is_an_error_of_the_run(backend: Backend) -> None:
    compiled = backend.compile(lambda x: x + 1, (torch.rand(3),))
    with pytest.raises((BackendError, BackendUnsupported)) as caught:
        compiled(torch.rand(7))
    assert caught.value.stage == "run"

"""The compile cache: equal modules are one piece of machine code, and nothing else is."""

from __future__ import annotations

import gc
import itertools
import time
import weakref
from collections.abc import Callable, Iterator
from unittest import mock

import pytest
import torch

from torchstone.compiler import driver
from torchstone.compiler.diagnostics import TorchstoneError
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.lowering.linalg import elementwise
from torchstone.compiler.runtime.cpu import cache, jit
from torchstone.compiler.runtime.cpu.code import together
from torchstone.compiler.runtime.cpu.kernel import CpuKernel

X = torch.tensor([-1.0, 0.5, 3.0])
F32 = TensorType((3,), dt.float32)
NEGATE = """
func.func @main(%a: tensor<3xf32>) -> tensor<3xf32> {
  %e = tensor.empty() : tensor<3xf32>
  %r = linalg.negf ins(%a : tensor<3xf32>) outs(%e : tensor<3xf32>) -> tensor<3xf32>
  return %r : tensor<3xf32>
}"""
MISSING = """
func.func private @torchstone_no_such_symbol(f32) -> f32
func.func @main(%a: tensor<f32>) -> tensor<f32> {
  %x = tensor.extract %a[] : tensor<f32>
  %y = func.call @torchstone_no_such_symbol(%x) : (f32) -> f32
  %r = tensor.from_elements %y : tensor<f32>
  return %r : tensor<f32>
}"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(cache.VARIABLE, "1")
    cache.CACHE.clear()
    cache.CACHE.hits = 0
    yield
    cache.CACHE.clear()


def function(kernel: CpuKernel) -> jit.Function:
    return kernel._contiguous.function


def negate() -> CpuKernel:
    return CpuKernel(NEGATE, inputs=[F32], results=[F32])


def compiled(fn: Callable[..., torch.Tensor], *args: torch.Tensor) -> driver.Executable:
    return driver.compile(fn, args)


def twice(x: torch.Tensor) -> torch.Tensor:
    return x + x


def test_equal_modules_are_one_piece_of_machine_code() -> None:
    one, other = negate(), negate()
    assert function(one).address == function(other).address
    assert torch.equal(other([X])[0], -X)


def test_equal_programs_are_compiled_once_and_others_not() -> None:
    for values in (X, X + 1):
        assert torch.equal(compiled(twice, values)(values), values + values)
    assert cache.CACHE.hits == 1
    compiled(twice, X.double())
    compiled(twice, X[:2])
    compiled(lambda x: x + 2, X)
    compiled(lambda x: x + 3, X)
    assert cache.CACHE.hits == 1


def test_twins_that_wait_together() -> None:
    with together():
        one, other = negate(), negate()
    assert function(one).address == function(other).address
    with together() as codes:
        CpuKernel(MISSING, inputs=[TensorType((), dt.float32)], results=[TensorType((), dt.float32)])
        CpuKernel(MISSING, inputs=[TensorType((), dt.float32)], results=[TensorType((), dt.float32)])
    for code in codes:
        with pytest.raises(TorchstoneError, match="torchstone_no_such_symbol"):
            _ = code.function
    assert torch.equal(negate()([X])[0], -X)


def test_a_wrong_lowering_is_not_hidden_by_what_was_right() -> None:
    assert torch.equal(compiled(twice, X)(X), X + X)
    with mock.patch.dict(elementwise.FLOAT, {"add": elementwise.FLOAT["sub"]}):  # type: ignore[arg-type]
        assert torch.equal(compiled(twice, X)(X), X - X)
    assert torch.equal(compiled(twice, X)(X), X + X)


def test_the_options_are_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = negate()
    monkeypatch.setattr(jit, "SMALL_WORK", -1)
    assert function(negate()).address != function(quick).address


def test_a_kernel_that_is_called_often_gets_quick_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as what quick compilation left slow has cost as much as compiling well."""
    kernel = CpuKernel(NEGATE, inputs=[F32], results=[F32], work=len(X))
    first = function(kernel).address
    kernel._contiguous.seconds = 10.0 / jit.THOROUGH
    monkeypatch.setattr(time, "perf_counter", itertools.count().__next__)  # a second for each call
    for call in range(1, 13):
        assert torch.equal(kernel([X])[0], -X)
        assert (function(kernel).address == first) == (call <= 10), call


def test_strides_are_part_of_the_key() -> None:
    kernels = [CpuKernel(_square(), inputs=[_SQUARE], results=[_SQUARE]) for _ in range(2)]
    x = torch.randn(3, 3)
    for kernel in kernels:
        assert torch.equal(kernel([x])[0], -x)
        assert torch.equal(kernel([x.t()])[0], -x.t())


_SQUARE = TensorType((3, 3), dt.float32)


def _square() -> str:
    return NEGATE.replace("<3xf32>", "<3x3xf32>")


def test_checks_come_with_their_messages() -> None:
    x, y = torch.tensor([7, -8]), torch.tensor([2, 3])
    for _ in range(2):
        divide = compiled(torch.floor_divide, x, y)
        assert torch.equal(divide(x, y), x // y)
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            divide(x, torch.tensor([0, 3]))
    assert cache.CACHE.hits == 1


def test_the_code_outlives_the_kernel_it_was_made_for() -> None:
    first = negate()
    second = negate()
    del first
    cache.CACHE.clear()
    gc.collect()
    assert torch.equal(second([X])[0], -X)


def test_few_engines_are_kept() -> None:
    engines = []
    for number in range(cache.KEPT + 4):
        executable = compiled(lambda x, n=number: x * n, X)
        engines.append(weakref.ref(executable._kernel.kernel._contiguous.function.engine))  # type: ignore[attr-defined]
        del executable
    gc.collect()
    assert [engine() is not None for engine in engines] == [False] * 4 + [True] * cache.KEPT


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    first = negate()
    monkeypatch.setenv(cache.VARIABLE, "0")
    assert function(negate()).address != function(first).address
    assert cache.CACHE.hits == 0

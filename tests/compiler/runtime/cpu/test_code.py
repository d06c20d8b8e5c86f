"""Kernels that become machine code together are the kernels they are alone."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from torchstone.compiler import driver
from torchstone.compiler.diagnostics import TorchstoneError, Unsupported
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.runtime.cpu import jit
from torchstone.compiler.runtime.cpu.cache import CACHE
from torchstone.compiler.runtime.cpu.code import together
from torchstone.compiler.runtime.cpu.kernel import CpuKernel

F32 = TensorType((3,), dt.float32)


def unary(call: str, declarations: str = "") -> str:
    return f"""
    {declarations}
    func.func @main(%a: tensor<3xf32>) -> tensor<3xf32> {{
      %e = tensor.empty() : tensor<3xf32>
      %r = linalg.map ins(%a : tensor<3xf32>) outs(%e : tensor<3xf32>) (%x: f32, %init: f32) {{
        %y = {call}
        linalg.yield %y : f32
      }}
      return %r : tensor<3xf32>
    }}"""


def kernel(text: str) -> CpuKernel:
    return CpuKernel(text, inputs=[F32], results=[F32])


LIBM = unary("func.call @cosf(%x) : (f32) -> f32", "func.func private @cosf(f32) -> f32")
MISSING = unary(
    "func.call @torchstone_no_such_symbol(%x) : (f32) -> f32",
    "func.func private @torchstone_no_such_symbol(f32) -> f32",
)
HELPER = unary(
    "func.call @twice(%x) : (f32) -> f32",
    "func.func private @twice(%x: f32) -> f32 {\n %y = arith.addf %x, %x : f32\n return %y : f32 }",
)
X = torch.tensor([-1.0, 0.5, 3.0])


def test_one_engine_holds_what_was_made_together() -> None:
    with together() as codes:
        negate, cosine, again = kernel(unary("arith.negf %x : f32")), kernel(LIBM), kernel(LIBM)
        helper = kernel(HELPER)
    assert all(code.error is None for code in codes)
    assert torch.equal(negate([X])[0], -X)
    for out in (cosine([X])[0], again([X])[0]):
        torch.testing.assert_close(out, X.cos())
    assert torch.equal(helper([X])[0], X + X)
    engine = weakref.ref(negate._contiguous.function.engine)
    assert engine() is cosine._contiguous.function.engine is again._contiguous.function.engine
    del negate, cosine, again, codes
    CACHE.clear()
    gc.collect()
    assert engine() is None


def test_one_that_cannot_be_compiled_takes_no_other_with_it() -> None:
    with together() as codes:
        good, bad, also = kernel(unary("arith.negf %x : f32")), kernel(MISSING), kernel(LIBM)
    assert [code.error is None for code in codes] == [True, False, True]
    assert torch.equal(good([X])[0], -X)
    torch.testing.assert_close(also([X])[0], X.cos())
    for _ in range(2):
        with pytest.raises(TorchstoneError, match="torchstone_no_such_symbol"):
            bad([X])


def test_a_call_does_not_wait() -> None:
    with together():
        negate = kernel(unary("arith.negf %x : f32"))
        assert torch.equal(negate([X])[0], -X)
        cosine = kernel(LIBM)
    torch.testing.assert_close(cosine([X])[0], X.cos())


def test_many_programs_of_every_kind() -> None:
    programs = [
        (lambda x: torch.softmax(x, -1), (torch.randn(3, 4),)),
        (lambda x, y: x // y, (torch.tensor([7, -8]), torch.tensor([2, 3]))),  # checks its divisor
        (lambda x: x.sin(), (torch.randn(0, 3),)),
        (lambda x: x + 1, (torch.randn(3, 4).t(),)),
        (lambda x: x * 1j, (torch.randn(5),)),
        (lambda x: x.bfloat16() + 1, (torch.randn(5),)),
        (lambda x: x @ x, (torch.randn(70, 70),)),
        (lambda x: x.cumsum(0), (torch.randn(70),)),
        (lambda x: x.no_such_method(), (torch.randn(5),)),
        (lambda x: torch.from_numpy(x.numpy()), (torch.randn(5),)),
    ]
    out = driver.compile_many(programs)
    assert isinstance(out[-2], AttributeError) and isinstance(out[-1], Unsupported)
    for executable, (fn, args) in zip(out[:-2], programs, strict=False):
        assert not isinstance(executable, Exception)
        torch.testing.assert_close(executable(*args), fn(*args))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        out[1](torch.tensor([7, -8]), torch.tensor([0, 3]))  # type: ignore[operator]


def test_a_kernel_that_fails_alone_is_an_error_of_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = jit.Engine.__init__

    def refuse(self: jit.Engine, module: object, **options: object) -> None:
        if "cos" in str(module):
            raise TorchstoneError("no cosine", stage="compile")
        engine(self, module, **options)  # type: ignore[arg-type]

    CACHE.clear()
    monkeypatch.setattr(jit.Engine, "__init__", refuse)
    good, bad = driver.compile_many([(torch.neg, (X,)), (torch.cos, (X,))])
    assert isinstance(bad, TorchstoneError) and "no cosine" in str(bad)
    assert not isinstance(good, Exception) and torch.equal(good(X), -X)

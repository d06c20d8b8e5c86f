"""A kernel on the CPU: an MLIR function on tensors, compiled in process, called on torch tensors without a copy.

    kernel = CpuKernel(module, inputs=[TensorType((4,), float32)], results=[TensorType((4,), float32)])
    (y,) = kernel([x])

``module`` is MLIR text or a module: one public function that takes and returns ranked tensors, anything that bufferizes
(linalg, tensor, arith, math, scf, complex …). A bool tensor is ``i1`` or ``i8`` there, one byte an element either way.
Results are fresh tensors of torch. Contiguous inputs get code for contiguous memory; the first other one compiles a
variant that takes any strides, so nothing is ever copied.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from torchstone.compiler.diagnostics import GuardError, check_error
from torchstone.compiler.ir.dims import Dim, Expr, evaluate, solve
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.mlir import Bindings, bindings
from torchstone.compiler.runtime.cpu import jit
from torchstone.compiler.runtime.cpu.bridge import descriptor, is_readable, readable, torch_dtype
from torchstone.compiler.runtime.cpu.code import Code, lower


class CpuKernel:
    """Callable on a sequence of torch tensors, one for each of ``inputs``; gives a tuple, one for each of ``results``.

    Sizes of ``inputs`` may be symbols (bound at each call) or None (anything); sizes of ``results`` are ints or
    expressions over those symbols. ``work`` estimates the iterations of its mean loop nest (None: unknown), which
    decides between quick compilation and quick code; one that was compiled quickly and is called often, or with sizes
    that make it much work, is compiled again, for quick code.
    ``fused`` says that elementwise ops already share loop nests where they should.
    Raises, compiling, TorchstoneError (stage ``compile``); called, GuardError when a tensor does not fit, and
    what ``check_error`` makes of the message of a check that failed in the kernel.
    """

    def __init__(
        self,
        module: Any,
        *,
        inputs: Sequence[TensorType],
        results: Sequence[TensorType],
        entry: str = "main",
        work: Dim | None = None,
        fused: bool = False,
        provider: Bindings | None = None,
    ) -> None:
        self.provider = provider or bindings()
        self.inputs = tuple(inputs)
        self.results = tuple(results)
        self.entry = entry
        self.fused = fused
        self._module = module
        self._work = _work(self.inputs, self.results) if work is None else work
        self._opt_level = jit.opt_level(self._work)
        self._spent = 0.0
        self._dtypes = [torch_dtype(t.dtype) for t in self.inputs]
        self._out = [(t.shape, torch_dtype(t.dtype)) for t in self.results]
        self._dynamic = not all(t.is_static for t in (*self.inputs, *self.results))
        self._forms: list[torch.Tensor] = []
        self._contiguous = self._code(strided=False)
        self._strided: Code | None = None

    def __call__(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        if len(tensors) != len(self.inputs):
            raise GuardError(f"expected {len(self.inputs)} tensors, got {len(tensors)}")
        ready: list[torch.Tensor] = []
        contiguous = True
        for index, (tensor, spec, dtype) in enumerate(zip(tensors, self.inputs, self._dtypes, strict=True)):
            if not is_readable(tensor):
                tensor = readable(tensor, f"argument {index}")
            if tensor.dtype is not dtype or (tensor.shape != spec.shape and not _fits(tensor, spec)):
                got = f"{str(tensor.dtype)[6:]}{list(tensor.shape)}"
                raise GuardError(f"argument {index}: expected {spec}, got {got}")
            contiguous = contiguous and tensor.is_contiguous()
            ready.append(tensor)
        outputs = self._sized(ready) if self._dynamic else self._static()
        if not contiguous and self._strided is None:
            self._strided = self._code(strided=True)
        code = self._contiguous if contiguous or self._strided is None else self._strided
        function = code.function
        if self._opt_level != jit.FAST_COMPILE:
            _run(code, function, ready, outputs)
            return tuple(outputs)
        begin = time.perf_counter()
        _run(code, function, ready, outputs)
        self._spend(code, time.perf_counter() - begin)
        return tuple(outputs)

    def _code(self, *, strided: bool) -> Code:
        return Code(
            self._module, entry=self.entry, strided=strided, ranks=[t.rank for t in (*self.inputs, *self.results)],
            fused=self.fused, opt_level=self._opt_level, provider=self.provider,
        )  # fmt: skip

    def _spend(self, code: Code, seconds: float) -> None:
        """Count the time of a call, and compile for quick code once the calls so far would have paid for it.

        That is at most twice the least possible, however often the kernel is called.
        """
        self._spent += seconds
        if self._spent > jit.THOROUGH * code.seconds:
            self._optimize()

    def _optimize(self) -> None:
        self._opt_level = jit.FAST_CODE
        self._contiguous, self._strided = self._code(strided=False), None

    def _static(self) -> list[torch.Tensor]:
        """Return empty results; ``empty_like`` takes half the time of ``empty``."""
        if len(self._forms) < len(self._out):  # made when called: when compiled, torch may be tracing
            self._forms = [torch.empty((), dtype=dtype, device="cpu").expand(shape) for shape, dtype in self._out]  # type: ignore[arg-type]
        return [torch.empty_like(form, memory_format=torch.contiguous_format) for form in self._forms]

    def _sized(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return empty results of the sizes that those of the inputs give."""
        bound = self._bind(tensors)
        quick = self._opt_level == jit.FAST_COMPILE
        if quick and isinstance(self._work, Expr) and evaluate(self._work, bound) > jit.SMALL_WORK:
            self._optimize()
        return [torch.empty([evaluate(d, bound) for d in shape], dtype=dtype) for shape, dtype in self._out]  # type: ignore[arg-type]

    def _bind(self, tensors: Sequence[torch.Tensor]) -> dict[str, int]:
        """Bind each symbol to a size, then hold every size of every input against its expression."""
        bound: dict[str, int] = {}
        sizes = [(i, d, s) for i, t in enumerate(self.inputs) for d, s in enumerate(t.shape) if isinstance(s, Expr)]
        for i, d, size in sorted(sizes, key=lambda row: not str(row[2]).isidentifier()):
            if (found := solve(size, tensors[i].shape[d])) is not None:
                bound.setdefault(*found)
        for i, d, size in sizes:
            expected = evaluate(size, bound)
            if tensors[i].shape[d] != expected:
                raise GuardError(f"argument {i}: size {size} of dim {d} is {expected}, got {tensors[i].shape[d]}")
        return bound

    def llvm(self) -> str:
        """Return the text of the kernel for contiguous inputs in the LLVM dialect."""
        code = self._contiguous
        code.prepare()
        module = code.module
        lower(module, [code], ["main"])
        code.module = None
        return str(module)


def _run(code: Code, function: jit.Function, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
    if code.boundary.bare:
        arguments = [t.data_ptr() for t in (*inputs, *outputs)]
    else:
        arguments = [n for t in (*inputs, *outputs) for n in descriptor(t)]
    if not code.boundary.guarded:
        function.call(*arguments)
        return
    slot = ctypes.c_int32(0)
    function.call(*arguments, ctypes.addressof(slot))
    if slot.value:
        raise check_error(code.messages[slot.value - 1])


def _fits(tensor: torch.Tensor, spec: TensorType) -> bool:
    """Say whether the rank and the sizes that are known fit; symbols are looked at when they are bound."""
    return tensor.dim() == spec.rank and all(
        not isinstance(want, int) or want == got for want, got in zip(spec.shape, tensor.shape, strict=True)
    )


def _work(inputs: Sequence[TensorType], results: Sequence[TensorType]) -> Dim | None:
    if not all(t.is_static for t in (*inputs, *results)):
        return None
    return sum(prod(d for d in t.shape if isinstance(d, int)) for t in (*inputs, *results))

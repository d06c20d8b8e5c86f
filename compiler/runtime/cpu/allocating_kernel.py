"""Modules whose functions take and *return* tensors of run-time shape: what torch-mlir's importer gives.

    kernel = load_returning(module)                       # text, or a module of any provider's bindings
    y, z = kernel([x, 3])                                 # torch tensors (or int/float/bool for scalar arguments)

    run_returning(module, args, entry="main", result_dtypes=None, provider=None) -> tuple[torch.Tensor | int | float, …]

``module`` is in linalg on tensors (tensor, arith, math, scf, cf, complex …, ``cf.assert`` included), with ``tm_tensor``
and ``ml_program`` ops when ``torch-mlir-opt`` is installed. Arguments may be any strided CPU tensors: what is not
contiguous is copied. Results are torch tensors over memory that the kernel allocated, without a copy; they never share
memory with an argument or with each other (a module's tensors are values: of two in one buffer the second is a copy),
and the memory is freed with the last of them. ``result_dtypes`` says which torch dtype each
result is where MLIR's signless integers do not (uint8 …); by default ``i1`` is bool and integers are signed. Scalar
results come back as int or float. A ``cf.assert`` that fails raises what ``check_error`` makes of its message.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from torchstone.compiler.diagnostics import GuardError, TorchstoneError, Unsupported, check_error
from torchstone.compiler.lowering.mlir_passes import pipelines
from torchstone.compiler.lowering.mlir_passes.cpu import RETURNED_BUFFERS, RETURNED_LLVM, CpuOptions
from torchstone.compiler.lowering.mlir_passes.destination import contains, find
from torchstone.compiler.mlir import Bindings, bindings
from torchstone.compiler.runtime.cpu import jit
from torchstone.compiler.runtime.cpu.bridge import readable
from torchstone.compiler.runtime.cpu.checks import divert_aborts
from torchstone.compiler.runtime.cpu.returned import Allocation, adopt, descriptor_struct, dtype_of_element

KernelResult = torch.Tensor | int | float

_SCALARS: dict[str, Any] = {
    "i1": ctypes.c_bool, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
    "index": ctypes.c_int64, "f32": ctypes.c_float, "f64": ctypes.c_double,
}  # fmt: skip

# Ops that only torch-mlir's own passes lower; the tool is in its wheel, the passes are not in its Python bindings.
# It knows no bufferization but of these ops, so they become loops over buffers there and the rest is ours.
_TOOL_PIPELINE = "builtin.module(func.func(tm-tensor-bufferize,tm-tensor-to-loops))"


def run_returning(
    module: Any,
    args: Sequence[Any],
    *,
    entry: str = "main",
    result_dtypes: Sequence[torch.dtype | None] | None = None,
    provider: Bindings | None = None,
) -> tuple[KernelResult, ...]:
    """Compile the module, call ``entry`` once on ``args``, and return its results; see the module's docstring."""
    return load_returning(module, entry=entry, result_dtypes=result_dtypes, provider=provider)(args)


def load_returning(
    module: Any,
    *,
    entry: str = "main",
    result_dtypes: Sequence[torch.dtype | None] | None = None,
    provider: Bindings | None = None,
) -> ReturningKernel:
    """Compile the module to a kernel; see the module's docstring.

    Raises TorchstoneError (stage ``compile``) for a module MLIR refuses, Unsupported for a type torch does not have and
    for an op that MLIR does not convert to the LLVM dialect.
    """
    return ReturningKernel(module, entry=entry, result_dtypes=result_dtypes, provider=provider or bindings())


class ReturningKernel:
    """A compiled function whose results are buffers it allocated. Call it with a sequence of arguments."""

    def __init__(
        self, module: Any, *, entry: str, result_dtypes: Sequence[torch.dtype | None] | None, provider: Bindings
    ) -> None:
        module, guarded = _buffers(module, entry, provider)
        function = find(module, entry, provider).operation
        kind = function.attributes["function_type"].value
        self.inputs = [_Parameter(t, provider) for t in kind.inputs]
        self.results = [_Parameter(t, provider) for t in kind.results]
        for value, dtype in zip(self.results, result_dtypes or (), strict=False):
            if dtype is not None:
                value.dtype = dtype
        self.guarded = guarded
        ir = provider.ir
        with module.context, function.location:
            if guarded:
                slot = ir.IntegerType.get_signless(64)
                function.regions[0].blocks[0].add_argument(slot, function.location)
                new = ir.FunctionType.get([*kind.inputs, slot], list(kind.results))
                function.attributes["function_type"] = ir.TypeAttr.get(new)
            function.attributes["sym_name"] = ir.StringAttr.get("main")
            function.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
        for name in ("arg_attrs", "res_attrs"):
            if name in function.attributes:
                del function.attributes[name]
        RETURNED_LLVM.run(module, CpuOptions(provider))
        _check_converted(module, provider)
        self.messages = divert_aborts(module, provider) if guarded else ()
        self._module = module
        entry = "_mlir_ciface_main"
        symbols = jit.helpers(provider) | allocator()
        engine = jit.Engine(module, entries=[entry], opt_level=jit.FAST_COMPILE, symbols=symbols, provider=provider)
        # A lone scalar is returned by value; anything else through a pointer to one struct, passed first.
        self._struct: Any = None
        result_type = None
        if len(self.results) == 1 and not self.results[0].is_tensor:
            result_type = self.results[0].ctype
        elif self.results:
            fields = [(f"r{i}", v.ctype) for i, v in enumerate(self.results)]
            self._struct = type("Results", (ctypes.Structure,), {"_fields_": fields})
        arguments = [ctypes.c_void_p] if self._struct else []
        arguments += [ctypes.c_void_p if v.is_tensor else v.ctype for v in self.inputs]
        arguments += [ctypes.c_void_p] if guarded else []
        self._function = engine.function(arguments, result_type)

    def __call__(self, args: Sequence[Any]) -> tuple[KernelResult, ...]:
        if len(args) != len(self.inputs):
            raise GuardError(f"expected {len(self.inputs)} arguments, got {len(args)}")
        passed = [
            value.passed(arg, f"argument {i}") for i, (value, arg) in enumerate(zip(self.inputs, args, strict=True))
        ]
        arguments = [ctypes.addressof(p) if isinstance(p, ctypes.Structure) else p for p, _ in passed]
        results = self._struct() if self._struct else None
        slot = ctypes.c_int32(0)
        if self.guarded:
            arguments.append(ctypes.addressof(slot))
        lone = self._function.call(*([ctypes.addressof(results)] if results is not None else []), *arguments)
        if slot.value:
            raise check_error(self.messages[slot.value - 1])
        if results is None:
            return (lone,) if self.results else ()
        return self._take(results)

    def _take(self, results: ctypes.Structure) -> tuple[KernelResult, ...]:
        """Make a tensor of each descriptor. Of those in one allocation the first keeps it, the others are copies."""
        raw = [getattr(results, f"r{i}") for i in range(len(self.results))]
        owned: dict[int, Allocation | None] = {}
        sizes: dict[int, int] = {}
        for value, item in zip(self.results, raw, strict=True):
            if value.is_tensor:
                end = item.aligned - item.allocated + (item.offset + value.span(item)) * value.dtype.itemsize
                sizes[item.allocated] = max(end, sizes.get(item.allocated, 0))
        for address, size in sizes.items():
            owned[address] = Allocation(address, size, _release(address)) if address else None
        taken: list[KernelResult] = []
        handed_over: set[int] = set()
        for value, item in zip(self.results, raw, strict=True):
            result = value.taken(item, owned)
            if isinstance(result, torch.Tensor):
                taken.append(result.clone() if item.allocated in handed_over else result)
                handed_over.add(item.allocated)
            else:
                taken.append(result)
        return tuple(taken)

    def llvm(self) -> str:
        """Return the text of the module in the LLVM dialect."""
        return str(self._module)


class _Parameter:
    """The type of one argument or result, and how it crosses."""

    def __init__(self, kind: Any, provider: Bindings) -> None:
        self.is_tensor = isinstance(kind, provider.ir.MemRefType)
        if self.is_tensor:
            self.shape: list[int] = list(kind.shape)
            self.rank: int = kind.rank
            self.dtype = dtype_of_element(str(kind.element_type))
            self.ctype: Any = descriptor_struct(self.rank)
            self.any = provider.ir.ShapedType.get_dynamic_size()
        elif str(kind) in _SCALARS:
            self.ctype = _SCALARS[str(kind)]
        else:
            raise Unsupported(f"the runtime passes no {kind}", stage="compile")
        self.text = str(kind)

    def passed(self, arg: Any, name: str) -> tuple[Any, Any]:
        """Return what the function is given for ``arg``, and what must stay alive until it returns."""
        if not self.is_tensor:
            if isinstance(arg, torch.Tensor):
                raise GuardError(f"{name}: expected a {self.text}, got a tensor")
            return self.ctype(arg), None
        tensor = readable(arg, name).contiguous()
        # Signless integers: any dtype of that size and class will do, bool for i1 alone.
        same = tensor.dtype.itemsize == self.dtype.itemsize and _integral(tensor.dtype) == _integral(self.dtype)
        fits = tensor.dim() == self.rank and all(
            want in (self.any, got) for want, got in zip(self.shape, tensor.shape, strict=True)
        )
        if not fits or not (tensor.dtype == self.dtype or (same and _integral(self.dtype))):
            raise GuardError(f"{name}: expected {self.text}, got {str(tensor.dtype)[6:]}{list(tensor.shape)}")
        pointer = tensor.data_ptr()
        rank = ctypes.c_int64 * self.rank
        sizes = (rank(*tensor.shape), rank(*tensor.stride())) if self.rank else ()
        return self.ctype(pointer, pointer, 0, *sizes), tensor

    def _layout(self, item: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (tuple(item.shape), tuple(item.strides)) if self.rank else ((), ())

    def span(self, item: Any) -> int:
        """Number of elements from the first to the last that the descriptor reaches."""
        shape, strides = self._layout(item)
        return 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))

    def taken(self, item: Any, owned: dict[int, Allocation | None]) -> KernelResult:
        if not self.is_tensor:
            return item
        shape, strides = self._layout(item)
        start = item.aligned - item.allocated + item.offset * self.dtype.itemsize
        return adopt(owned[item.allocated], start, shape, strides, self.dtype)


def _integral(dtype: torch.dtype) -> bool:
    return not dtype.is_floating_point and not dtype.is_complex and dtype is not torch.bool


def _buffers(module: Any, entry: str, provider: Bindings) -> tuple[Any, bool]:
    """Return the bufferized module, and whether it has checks."""
    text = module if isinstance(module, str) else module.operation.get_asm(enable_debug_info=True)
    tool = "tm_tensor." in text
    if tool:
        text = _torch_mlir_opt(text)
    module = pipelines.parse(text, provider=provider)
    function = find(module, entry, provider).operation
    guarded = contains(module, "cf.assert", provider)
    ir = provider.ir
    with module.context:
        if tool:
            _mark_fresh(module, provider)
        # An argument belongs to the caller: without this the bufferizer takes it for scratch memory.
        count = len(function.regions[0].blocks[0].arguments)
        keep = ir.DictAttr.get({"bufferization.writable": ir.BoolAttr.get(False)})
        function.attributes["arg_attrs"] = ir.ArrayAttr.get([keep] * count)
        if "sym_visibility" in function.attributes:
            del function.attributes["sym_visibility"]
    return RETURNED_BUFFERS.run(module, CpuOptions(provider)), guarded


def _check_converted(module: Any, provider: Bindings) -> None:
    """Raise Unsupported for an op that MLIR's passes left, which LLVM would refuse: casts of float8, say."""

    def visit(op: Any) -> Any:
        nonlocal left
        left = None if op.name.startswith(("llvm.", "builtin.")) else op
        return provider.ir.WalkResult.INTERRUPT if left else provider.ir.WalkResult.ADVANCE

    left = None
    module.operation.walk(visit)
    if left:
        types = ", ".join(str(value.type) for value in (*left.operands, *left.results))
        raise Unsupported(f"MLIR has no conversion of {left.name} of {types} to LLVM's types", stage="compile")


def _mark_fresh(module: Any, provider: Bindings) -> None:
    """Say of each tensor made from a buffer that nothing else is: true, the tool has just allocated them all."""
    ir = provider.ir

    def visit(op: Any) -> Any:
        if op.name == "bufferization.to_tensor":
            op.attributes["restrict"] = ir.UnitAttr.get()
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)


def _torch_mlir_opt(text: str) -> str:
    """Run torch-mlir's own lowering of its own ops in its command-line tool and return the module's text."""
    beside = Path(bindings("torch_mlir").library_path).parent / "torch-mlir-opt"
    tool = str(beside) if beside.exists() else shutil.which("torch-mlir-opt")
    if not tool:
        raise TorchstoneError("the module needs torch-mlir-opt: pip install torch-mlir", stage="compile")
    command = [tool, f"--pass-pipeline={_TOOL_PIPELINE}", "--mlir-print-debuginfo"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise TorchstoneError(f"torch-mlir-opt failed: {done.stderr.strip()[:2000]}", stage="compile")
    return done.stdout


def allocator() -> dict[str, int]:
    """Return the addresses of the functions that kernels allocate and free with."""
    libc = ctypes.CDLL(None)
    names = {"_mlir_memref_to_llvm_alloc": libc.malloc, "_mlir_memref_to_llvm_free": libc.free}
    return {name: ctypes.cast(function, ctypes.c_void_p).value or 0 for name, function in names.items()}


def _release(address: int) -> Any:
    free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(allocator()["_mlir_memref_to_llvm_free"])
    return lambda: free(address)

"""IREE on the CPU, by way of iree-turbine's importer of exported programs.

The compiler runs in the worker: what kills it is told as a crash. Every verdict carries the dispatches that the host
program of the compiled module submits to the CPU device, and what that program moves or fills without a dispatch.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import ctypes
import os
import re
import warnings
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from torchstone.conformance.backends.composite import composite_ops_known
from torchstone.conformance.backends.export_support import Exported
from torchstone.conformance.backends.exporting import DECOMPOSED, UNDECOMPOSED, Exporting, Layer
from torchstone.conformance.backends.native_output import stderr_of_failure
from torchstone.conformance.backends.protocol import BackendError, BackendUnsupported, counted
from torchstone.conformance.tensor_bytes import packed_bytes

if TYPE_CHECKING:
    from torch import Tensor

TARGET, TRANSFERS, VMVX = "llvm-cpu", "transfers", "vmvx"
FLAGS = (
    "--iree-input-type=torch",
    "--iree-hal-target-device=local",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-llvmcpu-debug-symbols=false",
    "--iree-input-demote-f64-to-f32=false",  # it would compute float64 in float32
)
_DECLINED = re.compile(
    r"failed to legalize|[Uu]nsupported|not supported|[Uu]nimplemented|not implemented|unhandled|only support|"
    r"unregistered dialect"  # types that the importer writes and IREE is built without, as those of sparse tensors
)
_OP = re.compile(r"torch\.((?:aten|prims?|torchvision)\.\w+(?:\.\w+)?)|'([a-z_]+\.[\w.]+)' op")
_PLACE = re.compile(r"\S*source\.mlir:\d+:\d+: |loc\(unknown\): ")
_ERROR = 2
_CALLED_NAME = re.compile(r"lookup\.function\([^)]*?, %(\w+)\)")
_NAMES = re.compile(r"vm\.rodata private @(_utf8_\w+) [^\n]*? \"([^\"\n]*)\"\n")
_MOVED = re.compile(r"@hal\.(?:command_buffer|device\.queue)\.(copy|fill|update)\w*\(")


class Iree(Exporting):
    name = "iree"
    executors = (TARGET, TRANSFERS)
    options = (DECOMPOSED, UNDECOMPOSED)
    decomposes_itself = False
    packages = (
        ("iree-base-compiler", "iree.compiler"),
        ("iree-base-runtime", "iree.runtime"),
        ("iree-turbine", "iree.turbine"),
    )

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        return _Executable(self.captured(fn, args))

    def compile_dynamic(
        self, fn: Callable[..., Any], args: tuple[Tensor, ...], dims: tuple[tuple[int, ...], ...]
    ) -> Callable[..., Any]:
        """Compile for sizes that may vary in ``dims[i]`` of argument ``i``."""
        return _Executable(self.captured(fn, args, dims))

    def decompositions(self) -> dict[Any, Any]:
        """Return what iree-turbine decomposes of a module before it imports it; of an exported program, nothing."""
        return _decompositions()

    def layers(self) -> tuple[Layer, ...]:
        """Return what iree-turbine imports, by torch-mlir, and IREE's code for its own virtual machine."""
        imported = "iree-turbine's import, lowered by torch-mlir and run on torchstone's runtime"
        return (
            Layer("iree-turbine", imported, self._by_torch_mlir),
            Layer("IREE", "IREE's code for its reference backend, VMVX", self._vmvx),
        )

    def _by_torch_mlir(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        from torchstone.conformance.backends.adapters.torch_mlir import executable, linalg_of

        exported = self.captured(fn, args)
        return executable(exported, linalg_of(_import(exported.program)))

    def _vmvx(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        return _Executable(self.captured(fn, args), VMVX)


class _Executable:
    """A loaded module as a callable with the program's results."""

    def __init__(self, exported: Exported, target: str = TARGET) -> None:
        self.exported = exported
        binary, host = _compile(_import(exported.program), target)
        self.evidence = {"ran": _ran(host)}
        try:
            self.context, self.main = _load(binary)
        except Exception as error:
            raise BackendError(f"loading: {_words(error)}", "compile") from error

    def __call__(self, *args: Tensor) -> Any:
        import iree.runtime as rt

        given = rt.VmVariantList(len(args))
        for tensor in args:
            given.push_ref(_value(tensor))
        results = rt.VmVariantList(len(self.exported.outputs))
        try:
            self.context.invoke(self.main, given, results)
        except Exception as error:
            raise _failure([_words(error)], "run") from error
        wanted = self.exported.outputs
        if len(results) != len(wanted):
            raise BackendError(f"gives {len(results)} results, the program has {len(wanted)}", "run")
        views = [results.get_as_object(index, rt.HalBufferView) for index in range(len(results))]
        return self.exported.finish(args, [_tensor(view, want.dtype) for view, want in zip(views, wanted, strict=True)])


@cache
def _decompositions() -> dict[Any, Any]:
    """What iree-turbine decomposes before it imports."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from iree.turbine.aot.decompositions import current_aot_decompositions

        return current_aot_decompositions()


def _import(program: Any) -> str:
    """The module in torch-mlir's dialect, as text."""
    import torch
    from iree.turbine import aot

    with warnings.catch_warnings(), composite_ops_known():
        warnings.simplefilter("ignore")
        try:
            return str(aot.export(program).mlir_module)
        except NotImplementedError as error:
            raise BackendUnsupported(f"importer: {error}", "lower") from error
        except KeyError as error:  # its tables of dtypes
            if not isinstance(error.args[0], torch.dtype):
                raise BackendError(f"importer: {_words(error)}", "lower") from error
            raise BackendUnsupported(f"importer: it has no {error}", "lower") from error
        except Exception as error:
            raise _failure([f"importer: {_words(error)}"], "lower") from error


def _compile(source: str, target: str) -> tuple[bytes, str]:
    """The module in bytecode, and its host program in MLIR's vm dialect."""
    from iree.compiler.api import Output, Session, Source

    session = Session()
    session.set_flags(*FLAGS, f"--iree-hal-local-target-device-backends={target}")
    invocation = session.invocation()
    said: list[str] = []
    listener = _listen(invocation, said)
    try:
        if not (invocation.parse_source(Source.wrap_buffer(session, source.encode() + b"\0")) and invocation.execute()):
            # The linker prints for itself.
            printed = stderr_of_failure(invocation.execute) if any("check above" in text for text in said) else []
            raise _failure(printed + said or ["no message"], "compile")
        with Output.open_membuffer() as text, Output.open_membuffer() as binary:
            invocation.output_ir(text)
            invocation.output_vm_bytecode(binary)
            return bytes(binary.map_memory()), bytes(text.map_memory()).decode()
    finally:
        invocation.close()
        session.close()
        del listener


def _listen(invocation: Any, said: list[str]) -> Any:
    """Collect MLIR's errors; the callback returned must outlive the invocation.

    The C API has this, IREE's Python has only a switch that prints to stderr.
    """
    signature = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t, ctypes.c_void_p)

    @signature
    def listener(severity: int, message: Any, size: int, _: Any) -> None:
        if severity == _ERROR:
            text = ctypes.string_at(message, size)
            said.append(text.decode(errors="replace"))
            os.write(2, text[:500] + b"\n")  # the last words if the compiler crashes

    enable = invocation._local_dylib.ireeCompilerInvocationEnableCallbackDiagnostics
    enable.argtypes, enable.restype = [ctypes.c_void_p, ctypes.c_int, signature, ctypes.c_void_p], None
    enable(invocation._inv_p, 0, listener, None)
    return listener


def _ran(host: str) -> dict[str, list[str]]:
    """The dispatches of a host program, by what its executables call them, and its transfers."""
    names = dict(_NAMES.findall(host))
    dispatches = [
        re.sub(r"^main(\$async)?_dispatch_\d+_?", "", names.get(name, name)) or "dispatch"
        for name in _CALLED_NAME.findall(host)
    ]
    moves = _MOVED.findall(host)
    ran = {TARGET: dispatches, TRANSFERS: moves}
    return {who: counted(ops) for who, ops in ran.items() if ops}


@cache
def _device() -> tuple[Any, Any]:
    import iree.runtime as rt

    return rt.VmInstance(), rt.get_device("local-sync")


def _load(binary: bytes) -> tuple[Any, Any]:
    import iree.runtime as rt

    instance, device = _device()
    module = rt.VmModule.copy_buffer(instance, binary)
    return rt.VmContext(instance, [rt.create_hal_module(instance, device), module]), module.lookup_function("main")


@cache
def _types() -> dict[Any, int]:
    """The element type of each dtype; IREE's integers have no sign."""
    import torch
    from iree.runtime import HalElementType as E

    types = {
        torch.float32: E.FLOAT_32, torch.float64: E.FLOAT_64, torch.float16: E.FLOAT_16, torch.bfloat16: E.BFLOAT_16,
        torch.int64: E.INT_64, torch.int32: E.INT_32, torch.int16: E.INT_16, torch.int8: E.INT_8,
        torch.uint64: E.INT_64, torch.uint32: E.INT_32, torch.uint16: E.INT_16, torch.uint8: E.INT_8,
        torch.bool: E.BOOL_8, torch.complex64: E.COMPLEX_64, torch.complex128: E.COMPLEX_128,
        torch.float8_e4m3fn: E.FLOAT_8_E4M3_FN, torch.float8_e4m3fnuz: E.FLOAT_8_E4M3_FNUZ,
        torch.float8_e5m2: E.FLOAT_8_E5M2, torch.float8_e5m2fnuz: E.FLOAT_8_E5M2_FNUZ,
        torch.float8_e8m0fnu: E.FLOAT_8_E8M0_FNU,
    }  # fmt: skip
    return {dtype: int(kind) for dtype, kind in types.items()}


def _value(tensor: Tensor) -> Any:
    """A copy in a buffer of IREE's own; the bytes are the same."""
    import iree.runtime as rt
    import numpy

    if tensor.dtype not in _types():
        raise BackendUnsupported(f"no element type for {tensor.dtype}", "run")
    flat = packed_bytes(tensor).numpy()
    _, device = _device()
    buffer = device.allocator.allocate_buffer_copy(
        memory_type=rt.MemoryType.DEVICE_LOCAL,
        allowed_usage=rt.BufferUsage.DEFAULT | rt.BufferUsage.MAPPING,
        device=device,
        buffer=numpy.ascontiguousarray(flat),
    )
    return rt.HalBufferView(buffer, list(tensor.shape), _types()[tensor.dtype])


def _tensor(view: Any, dtype: Any) -> Tensor:
    """A copy in a tensor of the dtype wanted if that is what the elements are, else of the dtype they are of."""
    import numpy
    import torch

    kind = view.element_type
    if _types().get(dtype) != kind:
        dtype = next(dtype for dtype, known in _types().items() if known == kind)
    out = torch.empty(list(view.shape), dtype=dtype)
    if out.numel():
        out.reshape(-1).view(torch.uint8).numpy()[...] = view.map().asarray([view.byte_length], numpy.dtype("uint8"))
    return out


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _failure(said: list[str], stage: str) -> BackendError | BackendUnsupported:
    """Tell what is declined from what fails, by the messages; line numbers of the imported text say nothing."""
    declined = next((text for text in said if _DECLINED.search(text)), None)
    text = declined or said[0]
    named = _OP.search(text)
    op = next((name for name in named.groups() if name), "") if named else ""
    text = " ".join(_PLACE.sub("", text).partition("see current operation:")[0].split())[:400]
    if declined is None:
        return BackendError(f"{op}: {text}" if op else text, stage)
    return BackendUnsupported(f"{op}: {text}" if op else text, stage, op)

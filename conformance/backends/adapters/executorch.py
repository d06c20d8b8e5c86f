"""ExecuTorch on the CPU: edge programs with what XNNPACK takes delegated to it, run by ExecuTorch's own runtime.

What the edge dialect does not admit and what the runtime has no kernel for is ``unsupported``. Every verdict carries
the kernels and the delegate's ops that ran, out of the runtime's own trace of the call.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import logging
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torchstone.conformance.backends.composite import composite_ops_known
from torchstone.conformance.backends.export_support import Exported
from torchstone.conformance.backends.exporting import Exporting, Layer
from torchstone.conformance.backends.native_output import stderr_of_failure
from torchstone.conformance.backends.protocol import BackendError, BackendUnsupported, counted

if TYPE_CHECKING:
    from torch import Tensor

KERNELS, DELEGATE = "kernels", "XnnpackBackend"
_DECLINED = re.compile(
    r"not in Core ATen opset|Missing out variants|[Mm]issing operator|Unhandled dtype|"
    r"Check failed \([^)]*(?:dtype|_type)|Expect \w+ tensor to be|"
    r"data-dependent expression|[Nn]ot supported|[Uu]nsupported|[Nn]ot implemented|NotImplementedError"
)
_OP = re.compile(r"aten(?:::|\.)([a-z_]\w*(?:\.\w+)?)")
# The runtime's log lines; what it says of the CPU is none of the program's.
_LOG = re.compile(r"^\[(?!cpuinfo)\w+\.\w+:\d+\] (.*)$")


class ExecuTorch(Exporting):
    name = "executorch"
    executors = (KERNELS, DELEGATE)
    packages = (("executorch", "executorch"),)

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        exported = self.captured(fn, tuple(map(_dense, args)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its API is experimental, it says at every use
            return _Executable(exported, _emitted(_lowered(exported.program)))

    def layers(self) -> tuple[Layer, ...]:
        """Return the edge program, run by PyTorch, and the kernels without the delegate."""
        return (
            Layer("edge", "the edge program, run by PyTorch", self._edge),
            Layer("kernels", "ExecuTorch's own kernels, nothing delegated", self._undelegated),
        )

    def _edge(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        import torch

        exported = self.captured(fn, tuple(map(_dense, args)))
        module = _lowered(exported.program, delegate=False).exported_program().module()
        numbers = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)

        def run(*tensors: Tensor) -> Any:
            given = zip(module(*map(_dense, tensors)), exported.outputs, strict=True)
            return exported.finish(tensors, [value for value, want in given if isinstance(want, numbers)])

        return run

    def _undelegated(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        exported = self.captured(fn, tuple(map(_dense, args)))
        return _Executable(exported, _emitted(_lowered(exported.program, delegate=False)))


class _Executable:
    """A loaded program as a callable with the program's results."""

    def __init__(self, exported: Exported, program: bytes) -> None:
        from executorch.extension.pybindings import portable_lib

        self.exported = exported
        self.evidence: dict[str, Any] = {}
        self.bytes = program  # the runtime reads them where they are
        load = portable_lib._load_for_executorch_from_buffer
        try:
            self.module = load(program, enable_etdump=True)
        except Exception as error:
            raise _failure(error, "compile", stderr_of_failure(load, program)) from error

    def __call__(self, *args: Tensor) -> Any:
        import torch

        given = [_dense(tensor) for tensor in args]
        try:
            values = self.module.forward(given)
        except Exception as error:
            raise _failure(error, "run", stderr_of_failure(self.module.forward, given)) from error
        if not self.evidence:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # its reader of traces uses what Python has deprecated
                self.evidence = {"ran": _ran(self.module)}
        kinds = {int: torch.int64, float: torch.float64, bool: torch.bool}
        tensors = [
            value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=kinds[type(value)])
            for value in values
        ]
        return self.exported.finish(args, tensors)


def _dense(tensor: Tensor) -> Tensor:
    """The tensor in row-major memory, as the runtime wants its inputs."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def _lowered(program: Any, *, delegate: bool = True) -> Any:
    """The program in the edge dialect, with what XNNPACK takes delegated to it."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    logging.getLogger("executorch").setLevel(logging.ERROR)
    try:
        with composite_ops_known():
            return to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()] if delegate else None)
    except Exception as error:
        raise _failure(error, "lower") from error


def _emitted(edge: Any) -> bytes:
    try:
        return edge.to_executorch().buffer
    except Exception as error:
        raise _failure(error, "lower") from error


def _ran(module: Any) -> dict[str, list[str]]:
    """The kernels and the delegate's ops that ran, out of the runtime's trace."""
    from executorch.devtools.etdump.serialize import deserialize_from_etdump_flatcc

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace")
        module.write_etdump_result_to_file(path)
        with open(path, "rb") as file:
            trace = deserialize_from_etdump_flatcc(file.read())
    kernels: list[str] = []
    delegated: list[str] = []
    for run in trace.run_data:
        for event in filter(None, (event.profile_event for event in run.events or ())):
            if event.delegate_debug_id_str or event.delegate_debug_id_int not in (None, -1):
                delegated.append(re.sub(r" #\d+$", "", event.delegate_debug_id_str or event.name))
            elif event.name and event.name.startswith("native_call_"):
                kernels.append(event.name.removeprefix("native_call_"))
    return {who: counted(ops) for who, ops in ((KERNELS, kernels), (DELEGATE, delegated)) if ops}


def _failure(error: Exception, stage: str, printed: Sequence[str] = ()) -> BackendError | BackendUnsupported:
    """Tell what is declined from what fails, by what the runtime printed and the chain of messages."""
    said = [match[1] for line in printed if (match := _LOG.match(line))]
    cause: BaseException | None = error
    while cause is not None and len(said) < 20:
        said.append(f"{type(cause).__name__}: {cause}")
        cause = cause.__cause__ or cause.__context__
    declined = next((text for text in said if _DECLINED.search(text)), None)
    text = " ".join((declined or "; ".join(said)).split())[:400]
    if declined is None:
        return BackendError(text, stage)
    named = _OP.search(declined) or _OP.search(" ".join(said))
    op = f"aten.{named[1]}" if named else ""
    return BackendUnsupported(f"{op}: {text}" if op else text, stage, op)

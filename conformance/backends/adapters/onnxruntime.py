"""ONNX Runtime on the CPU, by way of PyTorch's own exporter to ONNX.

What the exporter has no ONNX function for, or says that it does not implement, and what the runtime has no kernel for,
is ``unsupported``. A model that ONNX's own checker rejects is the exporter's error, at ``lower``; where one declares
another dtype than the program has, the evidence says so, in ``exported``. Every verdict carries the nodes that ran and
the provider that ran them, out of the runtime's own profile of the call.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import contextlib
import json
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torchstone.compiler._torch import onnx_exporter
from torchstone.conformance.backends.composite import composite_ops_known
from torchstone.conformance.backends.export_support import Exported
from torchstone.conformance.backends.exporting import Exporting, Layer
from torchstone.conformance.backends.protocol import BackendError, BackendUnsupported

if TYPE_CHECKING:
    from torch import Tensor

PROVIDER = "CPUExecutionProvider"
_DECLINED = re.compile(
    r"NOT_IMPLEMENTED|Could not find an implementation|No ONNX function|not supported|Unsupported|"
    r"[Nn]ot implemented|NotImplementedError|\bonly\b[^.:;]* supported|data-dependent expression"
)
_OP = re.compile(r"(?:aten|prims|torchvision)[.:]+([\w.]+)|implementation for (\w+)\(")


class OnnxRuntime(Exporting):
    name = "onnxruntime"
    executors = (PROVIDER,)
    packages = (("onnxruntime", "onnxruntime"), ("onnx", "onnx"), ("onnxscript", "onnxscript"))

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        exported = self.captured(fn, args)
        return _Executable(exported, _to_onnx(exported.program))

    def decompositions(self) -> dict[Any, Any]:
        """Return what torch.onnx has PyTorch decompose: ops that it has no ONNX function for."""
        return onnx_exporter.decompositions()

    def layers(self) -> tuple[Layer, ...]:
        """Return the exported model, run by ONNX's own evaluator."""
        return (Layer("torch.onnx", "the ONNX model, run by ONNX's reference evaluator", self._evaluated, cheap=True),)

    def _evaluated(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        exported = self.captured(fn, args)
        model = _to_onnx(exported.program)
        try:
            _session(model)
        except BackendUnsupported:
            pass
        except BackendError as error:
            if error.stage == "lower":  # the evaluator runs models that ONNX's checker rejects: it asks no types
                raise
        return evaluator(exported, model)


class _Executable:
    """An inference session as a callable with the program's results."""

    def __init__(self, exported: Exported, model: bytes) -> None:
        self.exported = exported
        self.evidence: dict[str, Any] = {}
        self.session = _session(model, profiled=True)
        self.inputs = self.session.get_inputs()
        outputs = self.session.get_outputs()
        self.outputs = [output.name for output in outputs]
        signature = exported.program.graph_signature.input_specs
        count = sum(spec.kind.name == "USER_INPUT" for spec in signature)
        if len(self.inputs) != count:
            raise BackendError(f"the model has {len(self.inputs)} inputs, the program {count}", "compile")
        if others := _other_dtypes(exported, [output.type for output in outputs]):
            self.evidence["exported"] = others

    def __call__(self, *args: Tensor) -> Any:
        import torch

        given = {item.name: _value(tensor) for item, tensor in zip(self.inputs, args, strict=True)}
        try:
            values = self.session.run_with_ort_values(self.outputs, given)
        except Exception as error:
            raise _failure(error, "run") from error
        if "ran" not in self.evidence:
            self.evidence["ran"] = _ran(self.session.end_profiling())
        tensors = [torch.from_dlpack(value).clone() for value in values]
        wanted = [want for want in self.exported.outputs if isinstance(want, torch.Tensor)]
        if len(wanted) == len(tensors):
            tensors = [_shaped(tensor, want) for tensor, want in zip(tensors, wanted, strict=True)]
        return self.exported.finish(args, tensors)


def _session(model: bytes, profiled: bool = False) -> Any:
    """An inference session for a model. One that ONNX's own checker rejects as well is the exporter's error."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.enable_profiling = profiled
    options.profile_file_prefix = os.path.join(os.environ.get("TMPDIR", "/tmp"), "ort")
    try:
        return onnxruntime.InferenceSession(model, options, providers=[PROVIDER])
    except Exception as error:
        said = _failure(error, "compile")
        invalid = _invalid(model) if isinstance(said, BackendError) else ""
        raise (BackendError(f"torch.onnx exports an invalid model: {invalid}", "lower") if invalid else said) from error


def evaluator(exported: Exported, model: bytes) -> Callable[..., Any]:
    """Return an ONNX model as a callable with the program's results, run by ``onnx.reference``.

    What the evaluator has no implementation for is unsupported.
    """
    import onnx
    import torch
    from onnx.reference import ReferenceEvaluator

    try:
        session = ReferenceEvaluator(onnx.load_model_from_string(model))
    except Exception as error:
        raise BackendUnsupported(f"ONNX's reference evaluator: {type(error).__name__}: {error}", "compile") from error
    wanted = [want for want in exported.outputs if isinstance(want, torch.Tensor)]

    def run(*args: Tensor) -> Any:
        given = {name: _array(tensor) for name, tensor in zip(session.input_names, args, strict=True)}
        try:
            values = session.run(None, given)
        except Exception as error:
            raise BackendUnsupported(f"ONNX's reference evaluator: {type(error).__name__}: {error}", "run") from error
        tensors = [_of_array(value) for value in values]
        if len(wanted) == len(tensors):
            tensors = [_shaped(tensor, want) for tensor, want in zip(tensors, wanted, strict=True)]
        return exported.finish(args, tensors)

    return run


def _array(tensor: Tensor) -> Any:
    """The tensor as NumPy has it; a complex one is pairs in ONNX, and NumPy has bfloat16 from ml_dtypes."""
    import ml_dtypes
    import torch

    tensor = tensor.detach().contiguous().resolve_conj().resolve_neg()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def _of_array(value: Any) -> Tensor:
    import ml_dtypes
    import numpy
    import torch

    array = numpy.array(value)  # a copy: the evaluator may give what it was given
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(numpy.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _invalid(model: bytes) -> str:
    """What ONNX's own checker has against a model; an empty string if nothing."""
    import onnx

    try:
        onnx.checker.check_model(model, full_check=True)
    except Exception as error:
        return " ".join(str(error).split())[:400]
    return ""


def _other_dtypes(exported: Exported, types: list[str]) -> list[str]:
    """The results that the model declares as of another dtype than the program's; complex ones are pairs of floats."""
    wanted = [str(want.dtype).removeprefix("torch.") for want in exported.outputs if hasattr(want, "dtype")]
    given = [re.sub(r"^tensor\((\w+)\)$", r"\1", kind) for kind in types]
    if len(wanted) != len(given):  # numbers are among them
        return []
    names = {"float": "float32", "double": "float64"}
    return [
        f"output {index} is {names.get(kind, kind)} in the model, {want} in the program"
        for index, (want, kind) in enumerate(zip(wanted, given, strict=True))
        if want.replace("_", "") != names.get(kind, kind) and not want.startswith("complex")
    ]


def _value(tensor: Tensor) -> Any:
    """The tensor as ONNX Runtime takes it; a complex one is pairs there."""
    import torch
    from onnxruntime import OrtValue

    tensor = tensor.detach().contiguous().resolve_conj().resolve_neg()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.dtype == torch.bool:  # which not every release takes by DLPack
        return OrtValue.ortvalue_from_numpy(tensor.numpy())
    return OrtValue.from_dlpack(tensor)


def _shaped(tensor: Tensor, want: Tensor) -> Tensor:
    """Undo what ONNX has no type for: a complex tensor is one of pairs there."""
    import torch

    if want.is_complex() and not tensor.is_complex():
        return torch.view_as_complex(tensor.contiguous())
    return tensor.to(torch.bool) if want.dtype == torch.bool and tensor.dtype == torch.uint8 else tensor


def _ran(profile: str) -> dict[str, list[str]]:
    """Which nodes each provider ran, out of the runtime's profile; the file is removed."""
    with open(profile) as file:
        events = json.load(file)
    with contextlib.suppress(OSError):
        os.unlink(profile)
    ran: dict[str, Counter[str]] = {}
    for event in events:
        told = event.get("args", {})
        if event.get("cat") == "Node" and "provider" in told:
            ran.setdefault(told["provider"], Counter())[told.get("op_name", "?")] += 1
    return {provider: [f"{op} x{n}" if n > 1 else op for op, n in ops.items()] for provider, ops in ran.items()}


def _to_onnx(program: Any) -> bytes:
    with warnings.catch_warnings(), composite_ops_known():
        warnings.simplefilter("ignore")
        try:
            return onnx_exporter.export(program).model_proto.SerializeToString()
        except Exception as error:
            raise _failure(error, "lower") from error


def _failure(error: Exception, stage: str) -> BackendError | BackendUnsupported:
    """Tell what is declined from what fails, by the chain of messages."""
    import torch

    said: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(said) < 6:
        if isinstance(cause, KeyError) and isinstance(cause.args[0], torch.dtype):  # the exporter's table of dtypes
            return BackendUnsupported(f"ONNX has no {cause.args[0]}", stage)
        said.append(f"{type(cause).__name__}: {cause}")
        cause = cause.__cause__
    declined = next((text for text in reversed(said) if _DECLINED.search(text)), None)
    text = " ".join((declined or said[-1]).split())[:500]
    if declined is None:
        return BackendError(text, stage)
    op = _OP.search(declined)
    return BackendUnsupported(text, stage, op=next((name for name in op.groups() if name), "") if op else "")

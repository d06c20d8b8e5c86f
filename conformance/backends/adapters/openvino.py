"""OpenVINO on the CPU, by its own conversion of exported programs.

Floats are computed as they are declared: without the hint the CPU plugin may take float32 for bfloat16. Every verdict
carries the nodes that ran and how, out of the plugin's own counters.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from torchstone.conformance.backends.composite import composite_ops_known
from torchstone.conformance.backends.export_support import Exported
from torchstone.conformance.backends.exporting import Exporting, Layer
from torchstone.conformance.backends.protocol import BackendError, BackendUnsupported
from torchstone.conformance.tensor_bytes import packed_bytes

if TYPE_CHECKING:
    from torch import Tensor

_DECLINED = re.compile(
    r"No conversion rule|wasn't fully converted|not supported|[Uu]nsupported|not implemented|cannot be converted"
)
_OP = re.compile(r"\b(?:aten|prims)[.:]+([\w.]+)")
_HINTS = {"INFERENCE_NUM_THREADS": 1, "PERF_COUNT": True, "EXECUTION_MODE_HINT": "ACCURACY"}


class OpenVino(Exporting):
    name = "openvino"
    executors = ("CPU",)
    packages = (("openvino", "openvino"),)

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        return _Executable(self.captured(fn, args), args)

    def decompositions(self) -> Any:
        """Return what OpenVINO's conversion has PyTorch decompose: all but the ops that it converts."""
        from openvino.frontend.pytorch.torchdynamo.export_decompositions import ops_to_not_decompose
        from torch.export.decomp_utils import CustomDecompTable

        table = CustomDecompTable()
        for op in ops_to_not_decompose():
            table.pop(op, None)
        return table

    def layers(self) -> tuple[Layer, ...]:
        """Return the converted model, run by the reference implementations that OpenVINO folds constants with."""
        what = "the converted model, run by OpenVINO's reference implementations"
        return (Layer("conversion", what, self._evaluated, cheap=True),)

    def _evaluated(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        exported = self.captured(fn, args)
        return evaluator(exported, _model(exported, args))


class _Executable:
    """A compiled model as a callable with the program's results."""

    def __init__(self, exported: Exported, args: tuple[Tensor, ...]) -> None:

        self.exported = exported
        self.evidence: dict[str, Any] = {}
        model = _model(exported, args)
        try:
            self.compiled = _core().compile_model(model, "CPU", _HINTS)
        except Exception as error:
            raise _failure(error, "compile") from error
        # An input that nothing depends on is none of the model's; one that only moves has other names besides its own.
        self.places = _places(exported, self.compiled.inputs)

    def __call__(self, *args: Tensor) -> Any:
        request = self.compiled.create_infer_request()
        given = {name: _value(args[place]) for name, place in self.places.items()}
        try:
            request.infer(given)
        except Exception as error:
            raise _failure(error, "run") from error
        if not self.evidence:
            ran = Counter(f"{node.node_type} ({node.exec_type})" for node in request.profiling_info if _executed(node))
            self.evidence = {"ran": {"CPU": [f"{name} x{n}" if n > 1 else name for name, n in ran.items()]}}
        return self.exported.finish(args, [_tensor(value) for value in request.output_tensors])


def evaluator(exported: Exported, model: Any) -> Callable[..., Any]:
    """Return a model as a callable with the program's results, each node run by OpenVINO's reference implementation.

    What has none is unsupported.
    """
    openvino = _openvino()
    places = list(_places(exported, model.inputs).values())
    if any(item.partial_shape.is_dynamic for item in model.outputs):
        raise BackendUnsupported("the model's results are of sizes that are not known", "compile")

    def run(*args: Tensor) -> Any:
        results = [openvino.Tensor(item.element_type, item.shape) for item in model.outputs]
        try:
            done = model.evaluate(results, [_value(args[place]) for place in places])
        except RuntimeError as error:  # an op without one, mostly
            raise BackendUnsupported(f"OpenVINO's reference implementations: {error}"[:500], "run") from error
        if not done:
            raise BackendUnsupported("OpenVINO has no reference implementation of an op of the model", "run")
        return exported.finish(args, [_tensor(value) for value in results])

    return run


def _model(exported: Exported, args: tuple[Tensor, ...]) -> Any:
    """The program as OpenVINO converts it."""
    for tensor in (*args, *(want for want in exported.outputs if hasattr(want, "dtype"))):
        if tensor.dtype not in _types():
            raise BackendUnsupported(f"no type for {tensor.dtype}", "lower")
    with warnings.catch_warnings(), composite_ops_known():
        warnings.simplefilter("ignore")
        try:
            return _converted(exported.program, args)
        except Exception as error:
            raise _failure(error, "lower") from error


def _places(exported: Exported, inputs: Any) -> dict[str, int]:
    """Which argument each of a model's inputs is, by the name of the input, in the program's order."""
    names = [s.arg.name for s in exported.program.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    known = [set(item.names) for item in inputs]
    places = {name: place for place, name in enumerate(names) if any(name in own for own in known)}
    if len(places) != len(known):
        raise BackendError(f"the model's inputs {known} are none of the program's", "compile")
    return places


@cache
def _openvino() -> Any:
    """OpenVINO, without its telemetry, which otherwise starts processes to call home, nine for each program."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    return openvino


def _converted(program: Any, args: tuple[Tensor, ...]) -> Any:
    """The model, with the sizes of its inputs. They cannot be told at once of a model that has lost an input."""
    openvino = _openvino()
    shapes = [openvino.PartialShape(list(tensor.shape)) for tensor in args]
    try:
        return openvino.convert_model(program, input=shapes)
    except Exception as error:
        if "non-existent input" not in str(error):
            raise
    names = [spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
    model = openvino.convert_model(program)
    known = set().union(*(item.names for item in model.inputs))
    model.reshape({name: shape for name, shape in zip(names, shapes, strict=True) if name in known})
    return model


def _executed(node: Any) -> bool:
    return node.status == node.Status.EXECUTED


@cache
def _core() -> Any:
    return _openvino().Core()


@cache
def _types() -> dict[Any, Any]:
    """The element type of each dtype."""
    import torch

    Type = _openvino().Type
    return {
        torch.float32: Type.f32, torch.float64: Type.f64, torch.float16: Type.f16, torch.bfloat16: Type.bf16,
        torch.int64: Type.i64, torch.int32: Type.i32, torch.int16: Type.i16, torch.int8: Type.i8,
        torch.uint8: Type.u8, torch.uint16: Type.u16, torch.uint32: Type.u32, torch.uint64: Type.u64,
        torch.bool: Type.boolean,
    }  # fmt: skip


def _value(tensor: Tensor) -> Any:
    """A copy in a tensor of OpenVINO's own; the bytes are the same."""
    openvino = _openvino()
    own = openvino.Tensor(_types()[tensor.dtype], openvino.Shape(list(tensor.shape)))
    if tensor.numel():
        _bytes(own)[...] = packed_bytes(tensor).numpy()
    return own


def _bytes(tensor: Any) -> Any:
    import numpy

    return tensor.data.reshape(-1).view(numpy.uint8)


def _tensor(value: Any) -> Tensor:
    import torch

    dtype = next(dtype for dtype, kind in _types().items() if kind == value.element_type)
    out = torch.empty(list(value.shape), dtype=dtype)
    if out.numel():
        out.reshape(-1).view(torch.uint8).numpy()[...] = _bytes(value)
    return out


def _failure(error: Exception, stage: str) -> BackendError | BackendUnsupported:
    """Tell what is declined from what fails, by the message."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    if not _DECLINED.search(text):
        return BackendError(text[:500], stage)
    op = _OP.search(text)
    return BackendUnsupported(text[:500], stage, op=op.group(1) if op else "")

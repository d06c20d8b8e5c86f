"""torch-mlir as three backends: its official FX importer to linalg, TOSA or StableHLO, run on torchstone's CPU runtime.

torch-mlir's own reference runtime is not in the wheel; what is on trial is its import and lowering. An op that its
lowering rejects is ``unsupported`` with the op's name; a result that our runtime cannot execute is an ``error`` at
the compile stage.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

from torchstone.conformance.backends.export_support import Exported
from torchstone.conformance.backends.exporting import DECOMPOSED, UNDECOMPOSED, Exporting, Layer
from torchstone.conformance.backends.protocol import BackendError, BackendUnsupported, counted

if TYPE_CHECKING:
    from torch import Tensor

# How the dialect that torch-mlir ends in becomes linalg on tensors; each is the dialect's own upstream conversion.
TO_LINALG = {
    "linalg-on-tensors": "",
    "tosa": (
        "func.func(tosa-to-linalg-named,tosa-to-linalg,tosa-to-tensor,tosa-to-arith{include-apply-rescale=true},"
        "tosa-to-scf),canonicalize"
    ),
    "stablehlo": "func.func(chlo-legalize-to-stablehlo),stablehlo-legalize-to-linalg,canonicalize",
}
DECLINED = re.compile(
    r"failed to legalize|unsupported|not supported|does not support|unimplemented|not implemented|unhandled|"
    r"does not conform|only support",
    re.IGNORECASE,
)


class _TorchMlir(Exporting):
    """One of torch-mlir's output types."""

    output_type = ""
    shares_with = "torch-mlir-linalg"
    executors = ("torch-mlir",)
    options = (DECOMPOSED, UNDECOMPOSED)
    decomposes_itself = False
    packages = (("torch-mlir", "torch_mlir.fx"),)
    install = "pip install torch-mlir"

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        exported, module = self.imported(fn, args)
        return executable(exported, self._lower(module))

    def decompositions(self) -> Mapping[Any, Any]:
        """Return what torch-mlir's own entry point has PyTorch decompose."""
        return _module("extras.fx_decomp_util").get_decomposition_table()

    def imported(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> tuple[Exported, Any]:
        """Return the program and its module in torch-mlir's output type."""
        exported = self.captured(fn, args)
        fx, compiler_utils = _module("fx"), _module("compiler_utils")
        context = _module("ir").Context()
        _module("dialects.torch").register_dialect(context)
        importer = _module("extras.fx_importer").FxImporter(context=context)
        with _diagnostics(context) as said, _own_folder(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                module = fx.export_and_import(
                    exported.program, output_type=self.output_type, fx_importer=importer, decomposition_table={}
                )
            except compiler_utils.TorchMlirCompilerError as error:
                raise _declined(said, str(error)) from error
            except NotImplementedError as error:
                raise BackendUnsupported(f"importer: {error}", "lower") from error
            except KeyError as error:  # the importer's table of dtypes
                raise BackendUnsupported(f"importer: it has no {error}", "lower") from error
            except AssertionError as error:
                if "ml_dtypes" not in str(error):
                    raise BackendError(f"importer: AssertionError: {error}", "lower") from error
                reason = "importer: constants of this dtype need the package ml_dtypes: pip install ml_dtypes"
                raise BackendUnsupported(reason, "lower") from error
            except Exception as error:
                raise BackendError(f"importer: {type(error).__name__}: {error}", "lower") from error
        return exported, module

    def _lower(self, module: Any) -> Any:
        """Return the module in linalg on tensors."""
        if TO_LINALG[self.output_type]:
            with _diagnostics(module.context) as said:
                _run(TO_LINALG[self.output_type], module, said)
        return module


def executable(exported: Exported, module: Any) -> Callable[..., Any]:
    """Return a module in linalg on tensors, of torch-mlir's context, as a callable with the program's results."""
    _call_expm1(module)
    return _Executable(exported, module)


def linalg_of(text: str) -> Any:
    """Return in linalg on tensors what is in torch-mlir's own dialect, as an importer writes it.

    Raises ``BackendUnsupported`` for what torch-mlir cannot read or lower.
    """
    ir, compiler_utils = _module("ir"), _module("compiler_utils")
    context = ir.Context()
    _module("dialects.torch").register_dialect(context)
    pipeline = "builtin.module(torchdynamo-export-to-torch-backend-pipeline{extra-library=})"
    with _diagnostics(context) as said, _own_folder():
        try:
            module = ir.Module.parse(text, context)
            compiler_utils.run_pipeline_with_repro_report(module, pipeline, "to torch-mlir's backend contract")
            kind = compiler_utils.OutputType.LINALG_ON_TENSORS
            return compiler_utils.lower_mlir_module(False, kind, module)
        except (ir.MLIRError, compiler_utils.TorchMlirCompilerError) as error:
            raise BackendUnsupported(f"torch-mlir: {'; '.join(said[:2]) or error}"[:600], "lower") from error


class TorchMlirLinalg(_TorchMlir):
    name = "torch-mlir-linalg"
    output_type = "linalg-on-tensors"
    shares_with = "torch-mlir-stablehlo"


class TorchMlirTosa(_TorchMlir):
    name = "torch-mlir-tosa"
    output_type = "tosa"


class TorchMlirStablehlo(_TorchMlir):
    name = "torch-mlir-stablehlo"
    output_type = "stablehlo"

    def layers(self) -> tuple[Layer, ...]:
        """Return torch-mlir's StableHLO, run by StableHLO's own interpreter."""
        what = "torch-mlir's StableHLO, run by StableHLO's reference interpreter"
        return (Layer("torch-mlir", what, self._interpreted, cheap=True),)

    def _interpreted(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        from torchstone.compiler.runtime.stablehlo_interpreter import Interpreter

        exported, module = self.imported(fn, args)
        with _diagnostics(module.context) as said:
            _register_stablehlo()
            _run("func.func(chlo-legalize-to-stablehlo)", module, said)
        dtypes = [want.dtype for want in exported.outputs if hasattr(want, "dtype")]
        try:
            interpreter = Interpreter(str(module))
        except Exception as error:  # what is not StableHLO it cannot read
            raise BackendUnsupported(f"StableHLO's interpreter: {error}", "compile") from error

        def run(*tensors: Tensor) -> Any:
            try:
                results = interpreter([tensor.detach().contiguous() for tensor in tensors])
            except Exception as error:  # of ops and types that it has not
                raise BackendUnsupported(str(error)[:500], "run") from error
            return exported.finish(tensors, [_as_dtype(r, d) for r, d in zip(results, dtypes, strict=False)])

        return run

    def _lower(self, module: Any) -> Any:
        _register_stablehlo()
        module = super()._lower(module)
        if left := re.search(r"\b(?:stablehlo|chlo)\.\w+", str(module)):
            raise BackendUnsupported(f"{left.group()} has no conversion to linalg", "compile", op=left.group())
        return module


class _Executable:
    """The lowered module as a callable with the program's results."""

    def __init__(self, exported: Exported, module: Any) -> None:
        from torchstone.compiler.diagnostics import TorchstoneError, Unsupported
        from torchstone.compiler.mlir import bindings
        from torchstone.compiler.runtime.cpu.allocating_kernel import load_returning

        self.exported = exported
        # MLIR's integers are signless: the exported program knows which of them were unsigned.
        dtypes = [getattr(value, "dtype", None) for value in exported.outputs]
        ops = counted(_COMPUTES.findall(str(module)))
        self.evidence = {"ran": {"torch-mlir": ops} if ops else {}}
        try:
            self.kernel = load_returning(module, result_dtypes=dtypes, provider=bindings("torch_mlir"))
        except Unsupported as error:  # by our runtime, which is no fault of torch-mlir's
            raise BackendUnsupported(f"torchstone's runtime: {error}", "compile") from error
        except TorchstoneError as error:
            # What MLIR reports of the module comes first: it is what MLIR's own tools say.
            said = [diagnostic.message for diagnostic in getattr(error.__cause__, "error_diagnostics", ())]
            raise BackendError("; ".join(said[:2]) or f"on torchstone's runtime: {error}", "compile") from error

    def __call__(self, *args: Tensor) -> Any:
        from torchstone.compiler.diagnostics import TorchstoneError

        try:
            results: list[Any] = list(self.kernel(args))
        except TorchstoneError as error:
            raise BackendError(f"on torchstone's runtime: {error}", "run") from error
        return self.exported.finish(args, results)


def _as_dtype(tensor: Tensor, dtype: Any) -> Tensor:
    """MLIR's integers are signless: the exported program knows which of them were unsigned."""
    same = tensor.dtype.itemsize == dtype.itemsize and not (tensor.dtype.is_floating_point or dtype.is_floating_point)
    return tensor.view(dtype) if same and not tensor.is_complex() else tensor


# The ops of a lowered module that compute tensors; nothing but what is lowered from it runs.
_COMPUTES = re.compile(
    r"(?<=[= ])(?:linalg|tm_tensor)\.(?!yield|index)\w+(?= )|\b(?:tensor\.(?:generate|concat|pad|"
    r"insert_slice|collapse_shape|expand_shape|from_elements)|scf\.(?:for|while))(?= )"
)


def _module(name: str) -> Any:
    """Import a module of torch-mlir; its native parts have no types."""
    return importlib.import_module(f"torch_mlir.{name}")


@contextmanager
def _own_folder() -> Iterator[None]:
    """Keep what torch-mlir writes of a failure apart: one file name for all, which may be another user's."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(tempfile, "tempdir", folder):
        yield


@contextmanager
def _diagnostics(context: Any) -> Iterator[list[str]]:
    """Collect MLIR's messages, which otherwise go to the process's stderr."""
    said: list[str] = []

    def listen(diagnostic: Any) -> bool:
        said.append(str(diagnostic.message))
        return True

    handler = context.attach_diagnostic_handler(listen)
    try:
        yield said
    finally:
        handler.detach()


def _call_expm1(module: Any) -> None:
    """Let the C library compute ``math.expm1``, in float32 at least.

    What our runtime lowers math by is MLIR's conversion to LLVM, which makes ``exp(x) - 1`` of it: near 0 that loses
    every digit, and torch-mlir asked for the function that does not.
    """
    ir = _module("ir")
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "math.expm1":
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    with module.context:
        float32, float64 = ir.F32Type.get(), ir.F64Type.get()
        for op in found:
            (value,), (result,) = op.operands, op.results
            wide = float64 if value.type == float64 else float32
            with ir.InsertionPoint(op), op.location:
                given = value if value.type == wide else _created(ir, "arith.extf", wide, value)
                name = ir.FlatSymbolRefAttr.get("expm1" if wide == float64 else "expm1f")
                called = _created(ir, "func.call", wide, given, callee=name)
                result.replace_all_uses_with(
                    called if value.type == wide else _created(ir, "arith.truncf", value.type, called)
                )
            op.erase()
            declared = f"func.func private @{name.value}({wide}) -> {wide}"
            if name.value not in ir.SymbolTable(module.operation):
                ir.InsertionPoint.at_block_begin(module.body).insert(ir.Operation.parse(declared))


def _created(ir: Any, op: str, result: Any, operand: Any, **attributes: Any) -> Any:
    return ir.Operation.create(op, results=[result], operands=[operand], attributes=attributes).result


def _run(pipeline: str, module: Any, said: list[str]) -> None:
    with module.context:
        try:
            _module("passmanager").PassManager.parse(f"builtin.module({pipeline})").run(module.operation)
        except _module("ir").MLIRError as error:
            raise _declined(said, str(error), stage="compile") from error


def _declined(said: list[str], error: str, stage: str = "lower") -> BackendUnsupported | BackendError:
    """Tell an op that is rejected from a lowering that broke, by what MLIR said."""
    message = "; ".join(said[:2]) or next((line for line in error.splitlines() if line.strip()), "no message")
    message = message[:600]
    if not DECLINED.search(message):
        return BackendError(message, stage)
    op = re.search(r'name = "torch\.(aten\.[\w.]+)"', message) or re.search(r"'(?:torch\.)?([\w.]+)'", message)
    return BackendUnsupported(message, stage, op=op.group(1) if op else "")


def _register_stablehlo() -> None:
    if not _REGISTERED:
        _module("_mlir_libs._stablehlo").register_stablehlo_passes()
        _REGISTERED.append(True)


_REGISTERED: list[bool] = []

"""Runs a StableHLO module by StableHLO's reference interpreter: slow, and what the specification says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchstone.compiler import mlir
from torchstone.compiler.diagnostics import TorchstoneError
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dtypes import DType
from torchstone.compiler.lowering.mlir_passes import pipelines
from torchstone.compiler.lowering.stablehlo.dialect import register
from torchstone.compiler.lowering.stablehlo.emitter import StablehloEmitter, dtype_of, ranked
from torchstone.compiler.runtime.cpu.bridge import torch_dtype

_ENTRY = "program"


class Interpreter:
    """Callable on a sequence of torch tensors, one for each argument of ``main``; gives a tuple, one for each result.

    The interpreter's Python interface takes and gives no complex numbers and no bfloat16: they go in and out as pairs
    and as bits. Raises TorchstoneError (stage ``run``) with the interpreter's words.
    """

    def __init__(self, module: Any) -> None:
        self._bindings = register()
        self._module = pipelines.parse(module)
        (main,) = (f for f in self._module.body.operations if _symbol(f) == "main")
        kind = main.operation.attributes["function_type"].value
        with mlir.context():
            self._inputs = [dtype_of(t) for t in kind.inputs]
            self._results = [dtype_of(t) for t in kind.results]
        self._wrap(main, kind)

    def __call__(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        with mlir.context(), mlir.ir.Location.unknown():
            args = [
                _attribute(t, d) for t, dtype in zip(tensors, self._inputs, strict=True) for t, d in _parts(t, dtype)
            ]
            try:
                results = iter(self._bindings.eval_module(self._module, args))
            except (ValueError, RuntimeError) as error:
                raise TorchstoneError(f"StableHLO's interpreter: {error}", stage="run") from error
            return tuple(_whole(results, dtype) for dtype in self._results)

    def _wrap(self, main: Any, kind: Any) -> None:
        """Put a function before ``main`` that takes and gives what the interface can."""
        ir = mlir.ir
        with mlir.context(), ir.Location.unknown():
            inputs, results = (
                [ranked(t.shape, d) for t in types for d in _passed(dtype_of(t))]
                for types in (kind.inputs, kind.results)
            )
            main.operation.attributes["sym_name"] = ir.StringAttr.get(_ENTRY)
            with ir.InsertionPoint(self._module.body):
                outer = mlir.func.FuncOp("main", (inputs, results))
            with ir.InsertionPoint(outer.add_entry_block()):
                e = StablehloEmitter.bare()
                given = iter(outer.arguments)
                args = [_packed(e, given, t) for t in kind.inputs]
                called = mlir.func.CallOp(list(kind.results), _ENTRY, args)
                mlir.func.ReturnOp([part for r in called.results for part in _unpacked(e, r)])


def _symbol(function: Any) -> str:
    return function.operation.attributes["sym_name"].value


def _passed(dtype: DType) -> list[DType]:
    """Return the dtypes that an element of this one goes in and out as."""
    return [dtype.real] * 2 if dtype.is_complex else [dt.uint16] if dtype == dt.bfloat16 else [dtype]


def _packed(e: Any, given: Any, kind: Any) -> Any:
    dtype = dtype_of(kind)
    if dtype.is_complex:
        return e.emit("complex", kind, next(given), next(given))
    return e.emit("bitcast_convert", kind, next(given)) if dtype == dt.bfloat16 else next(given)


def _unpacked(e: Any, x: Any) -> list[Any]:
    (part, *_), dtype = _passed(dtype_of(x.type)), dtype_of(x.type)
    kind = ranked(x.type.shape, part)
    if dtype.is_complex:
        return [e.emit("real", kind, x), e.emit("imag", kind, x)]
    return [e.emit("bitcast_convert", kind, x)] if dtype == dt.bfloat16 else [x]


def _parts(x: torch.Tensor, dtype: DType) -> list[tuple[torch.Tensor, DType]]:
    x = x.detach().resolve_conj().resolve_neg()
    if dtype.is_complex:
        return [(x.real, dtype.real), (x.imag, dtype.real)]
    return [(x.contiguous().view(torch.uint16), dt.uint16)] if dtype == dt.bfloat16 else [(x, dtype)]


def _attribute(x: torch.Tensor, dtype: DType) -> Any:
    kind = ranked(tuple(x.shape), dtype)
    if not x.numel():
        return mlir.ir.Attribute.parse(f"dense<> : {kind}")
    return mlir.ir.DenseElementsAttr.get(x.contiguous().numpy(), type=kind)


def _whole(results: Any, dtype: DType) -> torch.Tensor:
    parts = [_tensor(next(results), d) for d in _passed(dtype)]
    if dtype.is_complex:
        return torch.complex(*parts)
    return parts[0].view(torch.bfloat16) if dtype == dt.bfloat16 else parts[0]


def _tensor(attribute: Any, dtype: DType) -> torch.Tensor:
    import numpy as np

    kind = attribute.type
    if 0 in kind.shape:
        return torch.empty(list(kind.shape), dtype=torch_dtype(dtype))
    return torch.from_numpy(np.array(mlir.ir.DenseElementsAttr(attribute)).reshape(kind.shape)).to(torch_dtype(dtype))

"""The profile our TOSA is validated against, and the way from TOSA to linalg on tensors.

TOSA specification 1.1 (draft), profiles PRO-INT and PRO-FP, level 8K, with the extensions named below: EXT-INT64 for
PyTorch's default integer, EXT-INT16 and EXT-BF16 to move and round those dtypes, EXT-DYNAMIC for a padding value that
is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torchstone.compiler import mlir
from torchstone.compiler.diagnostics import TorchstoneError, Unsupported
from torchstone.compiler.lowering.mlir_passes import pipelines
from torchstone.compiler.lowering.mlir_passes.sums import widen
from torchstone.compiler.lowering.tosa.corrections import as_specified
from torchstone.compiler.passes import Pass, Pipeline

EXTENSIONS = ("int16", "int64", "bf16", "dynamic")

VALIDATE = (
    f"tosa-attach-target{{profiles=pro_int,pro_fp extensions={','.join(EXTENSIONS)} "
    "specification_version=1.1.draft level=8k},tosa-validate{strict-op-spec-alignment=true}"
)

TO_LINALG = "func.func(tosa-to-linalg-named,tosa-to-linalg,tosa-to-arith,tosa-to-tensor,tosa-to-scf)"


# Kinds of op that the validator passed in this process: types and attributes are unique in the shared context, so that
# comparing them is quick and keeping them costs little.
_PASSED: set[Any] = set()
_MOST = 4096


def validate(module: Any) -> None:
    """Run ``tosa-validate``; Unsupported (stage ``lower``) with its message when it refuses the module."""
    sample, kinds = representatives(module)
    if not kinds:
        return
    try:
        pipelines.run_text(VALIDATE, sample, label="tosa-validate")
    except TorchstoneError as error:
        raise Unsupported(f"tosa-validate refuses the program: {error.message}", stage="lower") from None
    if len(_PASSED) > _MOST:
        _PASSED.clear()
    _PASSED.update(kinds)


def representatives(module: Any) -> tuple[Any, set[Any]]:
    """Return a module with one op of each kind in ``module`` that has not passed yet, and those kinds.

    A kind is a name, types, attributes and constant operands. ``tosa-validate`` looks at one op at a time, and takes a
    millisecond for it: equal ops need not all be looked at.
    """
    ir = mlir.ir
    (source,) = module.body.operations
    kinds: set[Any] = set()
    with mlir.context(), source.location:
        sample = ir.Module.create()
        with ir.InsertionPoint(sample.body):
            function = mlir.func.FuncOp("main", ir.FunctionType.get([], []))
        block = function.add_entry_block()
        for argument in source.regions[0].blocks[0].arguments:
            block.add_argument(argument.type, argument.location)
        with ir.InsertionPoint(block):
            for op in source.regions[0].blocks[0].operations:
                constants = [_constant(v) for v in op.operands]
                kind = _kind(op.operation, constants)
                if kind is None or kind in _PASSED or kind in kinds:
                    continue
                kinds.add(kind)
                copy = op.operation.clone()
                for index, (constant, operand) in enumerate(zip(constants, op.operands, strict=True)):
                    new = constant.clone(ip=ir.InsertionPoint(copy)) if constant else None
                    copy.operands[index] = new.results[0] if new else block.add_argument(operand.type, operand.location)
            mlir.func.ReturnOp([])
        types = [a.type for a in block.arguments]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
    return sample, kinds


def _kind(op: Any, constants: list[Any]) -> Any:
    """Return what the validator sees of an op; None for what is not TOSA's, and shapes, which go with their users."""
    if not op.name.startswith("tosa.") or op.name == "tosa.const_shape":
        return None
    types = tuple(v.type for v in (*op.operands, *op.results))
    if op.name == "tosa.const":
        return (op.name, *types)
    attributes = [(name, op.attributes[name]) for name in op.attributes]
    return (op.name, *types, *attributes, *(c and c.attributes["values"] for c in constants))


def _constant(value: Any) -> Any:
    """Return the operation of a constant operand, else None."""
    operation = getattr(value.owner, "operation", None)  # None: the owner is a block
    return operation if operation is not None and operation.name.startswith("tosa.const") else None


def to_linalg(module: Any) -> None:
    """Lower a TOSA module to linalg, arith, math and tensor with upstream's passes, in place."""
    TOSA_TO_LINALG.run(module)


def _in_place(change: Callable[[Any], None]) -> Callable[[Any, Any], Any]:
    def run(module: Any, _: Any) -> Any:
        change(module)
        return module

    return run


def _run_to_linalg(module: Any) -> None:
    pipelines.run_text(TO_LINALG, module, label="tosa-to-linalg")


TOSA_TO_LINALG = Pipeline(
    "tosa-to-linalg",
    (
        Pass("as-specified", "TOSA that is lowered to something else is written otherwise", _in_place(as_specified)),
        Pass("tosa-to-linalg", "TOSA becomes linalg on tensors", _in_place(_run_to_linalg), mlir=TO_LINALG),
        Pass("widen", "sums are kept in float64, and extrema start at infinity", _in_place(widen)),
    ),
)

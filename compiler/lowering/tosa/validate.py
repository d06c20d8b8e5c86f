"""The profile our TOSA is validated against, and the way from TOSA to linalg on tensors.

TOSA specification 1.1 (draft), profiles PRO-INT and PRO-FP, level 8K, with the extensions named below: EXT-INT64 for
PyTorch's default integer, EXT-INT16 and EXT-BF16 to move and round those dtypes, EXT-DYNAMIC for a padding value that
is computed.
"""

from __future__ import annotations

from typing import Any

from torchstone.compiler.diagnostics import TorchstoneError, Unsupported
from torchstone.compiler.runtime import mlir, pipelines

EXTENSIONS = ("int16", "int64", "bf16", "dynamic")

VALIDATE = (
    f"tosa-attach-target{{profiles=pro_int,pro_fp extensions={','.join(EXTENSIONS)} "
    "specification_version=1.1.draft level=8k},tosa-validate{strict-op-spec-alignment=true}"
)

TO_LINALG = "func.func(tosa-to-linalg-named,tosa-to-linalg,tosa-to-arith,tosa-to-tensor,tosa-to-scf)"


def validate(module: Any) -> None:
    """Run ``tosa-validate``; Unsupported (stage ``lower``) with its message when it refuses the module."""
    sample = representatives(module)
    try:
        pipelines.run_text(VALIDATE, sample, label="tosa-validate")
    except TorchstoneError as error:
        raise Unsupported(f"tosa-validate refuses the program: {error.message}", stage="lower") from None


def representatives(module: Any) -> Any:
    """Return a module with one op of each kind in ``module``: same name, types, attributes and constant operands.

    ``tosa-validate`` looks at one op at a time, and takes a millisecond for it: equal ops need not all be looked at.
    """
    ir = mlir.ir
    (source,) = module.body.operations
    with mlir.context(), source.location:
        sample = ir.Module.create()
        with ir.InsertionPoint(sample.body):
            function = mlir.func.FuncOp("main", ir.FunctionType.get([], []))
        block = function.add_entry_block()
        for argument in source.regions[0].blocks[0].arguments:
            block.add_argument(argument.type, argument.location)
        with ir.InsertionPoint(block):
            seen: set[Any] = set()
            for op in source.regions[0].blocks[0].operations:
                if op.operation.name.startswith("tosa.const") or not op.operation.name.startswith("tosa."):
                    continue
                constants = [_constant(v) for v in op.operands]
                values = (c and c.attributes["values"] for c in constants)
                types = (v.type for v in (*op.operands, *op.results))
                key = (op.operation.name, *types, *(op.attributes[name] for name in op.attributes), *values)
                if key in seen:
                    continue
                seen.add(key)
                operands = [
                    c.clone().results[0] if c else block.add_argument(v.type, v.location)
                    for c, v in zip(constants, op.operands, strict=True)
                ]
                copy = op.operation.clone()
                for index, operand in enumerate(operands):
                    copy.operands[index] = operand
            mlir.func.ReturnOp([])
        types = [a.type for a in block.arguments]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, []))
    return sample


def _constant(value: Any) -> Any:
    """Return the operation of a constant operand, else None."""
    operation = getattr(value.owner, "operation", None)  # None: the owner is a block
    return operation if operation is not None and operation.name.startswith("tosa.const") else None


def to_linalg(module: Any) -> None:
    """Lower a TOSA module to linalg, arith, math and tensor with upstream's passes, in place."""
    pipelines.run_text(TO_LINALG, module, label="tosa-to-linalg")

"""Put a function on tensors into destination form: buffers in, buffers of the caller out, nothing returned.

    func.func @main(%x: tensor<4xf32>) -> tensor<4xf32>
becomes
    func.func @main(%x: memref<4xf32>, %out: memref<4xf32>)

so that no result is allocated by the kernel, and inputs are never written. ``strided`` inputs take any strides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torchstone.compiler.diagnostics import TorchstoneError
from torchstone.compiler.mlir import Bindings

# On a function in destination form: how many of its last buffers are results.
_RESULTS = "torchstone.results"
# On a function whose buffers are static and contiguous: MLIR passes a pointer for each, not a descriptor.
BARE = "llvm.bareptr"


@dataclass(frozen=True, slots=True)
class Boundary:
    """How the function is called: ``bare`` means one pointer a tensor, else a flattened memref descriptor each.

    ``guarded`` functions take one more integer at the end: the address of the error slot (int32, 0 on entry).
    """

    bare: bool
    guarded: bool


def find(module: Any, entry: str, provider: Bindings) -> Any:
    """Return the function called ``entry``, or the only public one; TorchstoneError when there is neither."""
    functions = [op for op in module.body.operations if op.operation.name == "func.func"]
    named = [op for op in functions if op.operation.attributes["sym_name"].value == entry]
    public = [op for op in functions if "sym_visibility" not in op.operation.attributes]
    if named or len(public) == 1:
        return (named or public)[0]
    names = ", ".join(op.operation.attributes["sym_name"].value for op in functions)
    raise TorchstoneError(f"the module has no function {entry} (it has {names or 'none'})", stage="compile")


def contains(module: Any, name: str, provider: Bindings) -> bool:
    """Say whether an operation called ``name`` is anywhere in the module."""
    found = False

    def visit(op: Any) -> Any:
        nonlocal found
        found = found or op.name == name
        return provider.ir.WalkResult.INTERRUPT if found else provider.ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def to_destination(module: Any, *, entry: str, strided: bool, provider: Bindings) -> Boundary:
    """Rewrite ``entry`` of ``module`` in place and return how it is to be called; the entry is renamed ``main``."""
    ir, bufferization = provider.ir, provider.bufferization
    function = find(module, entry, provider).operation
    block = function.regions[0].blocks[0]
    guarded = contains(module, "cf.assert", provider)
    inputs = [_buffer(a.type, strided=strided, provider=provider) for a in block.arguments]
    result_types = ir.FunctionType(function.attributes["function_type"].value).results
    outputs = [_buffer(t, strided=False, provider=provider) for t in result_types]
    extra = [ir.IntegerType.get_signless(64, module.context)] if guarded else []
    with module.context, function.location:
        arguments = list(block.arguments)
        buffers = [block.add_argument(t, function.location) for t in (*inputs, *outputs, *extra)]
        with ir.InsertionPoint.at_block_begin(block):
            for argument, buffer in zip(arguments, buffers, strict=False):
                tensor = bufferization.ToTensorOp(argument.type, buffer, restrict=True)
                argument.replace_all_uses_with(tensor.result)
        for _ in arguments:
            block.erase_argument(0)
        returned = block.operations[len(block.operations) - 1]
        with ir.InsertionPoint(returned):
            for value, buffer in zip(returned.operands, buffers[len(inputs) :], strict=False):
                bufferization.MaterializeInDestinationOp(None, value, buffer, restrict=True, writable=True)
            provider.func.ReturnOp([])
        returned.operation.erase()
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([*inputs, *outputs, *extra], []))
        function.attributes["sym_name"] = ir.StringAttr.get("main")
        for name in ("arg_attrs", "res_attrs", "sym_visibility"):
            if name in function.attributes:
                del function.attributes[name]
    # MLIR passes a buffer without elements by descriptor whatever it is told, and then every other one too.
    bare = not strided and all(t.has_static_shape and 0 not in t.shape for t in (*inputs, *outputs))
    with module.context:
        function.attributes[_RESULTS] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), len(outputs))
        if bare:
            function.attributes[BARE] = ir.UnitAttr.get()
    return Boundary(bare, guarded)


def keep_copied_results_apart(module: Any, provider: Bindings) -> None:
    """Give what was computed in the buffer of a result, and is not that result, a buffer of its own, in place.

    Eliminating empty tensors takes the buffer of a result for every value that it was made from by updates. Where
    bufferization then updates a copy, an earlier value stays in that buffer, and may be read after the result is there:
    it may be a result itself.
    """
    ir, memref = provider.ir, provider.memref
    for function in module.body.operations:
        if _RESULTS not in function.operation.attributes:
            continue
        block = function.operation.regions[0].blocks[0]
        count = ir.IntegerAttr(function.operation.attributes[_RESULTS]).value
        buffers = [a for a in block.arguments if isinstance(a.type, ir.MemRefType)]
        copies = [op.operation for op in block.operations if op.operation.name == "memref.copy"]
        # What the function does last is what was materialize_in_destination.
        for output, copy in zip(buffers[len(buffers) - count :], copies[len(copies) - count :], strict=True):
            if copy.operands[1] != output:
                raise TorchstoneError("bufferization lost the copy into a result", stage="compile")
            if _handed_on(copy.operands[0]) == output:
                copy.erase()
                continue
            if all(use.owner.operation == copy for use in output.uses):
                continue
            axes = [i for i in range(output.type.rank) if output.type.is_dynamic_dim(i)]
            with function.location, ir.InsertionPoint.at_block_begin(block):
                sizes = [memref.dim(output, provider.arith.constant(ir.IndexType.get(), i)) for i in axes]
                own = memref.alloc(output.type, sizes, [])
            output.replace_all_uses_except(own, [copy, *(size.owner.operation for size in sizes)])


def _handed_on(value: Any) -> Any:
    """Return the buffer that a value is: loops give back what they are given where each iteration hands it on."""
    while (owner := getattr(value.owner, "operation", None)) is not None and owner.name == "scf.for":
        number = value.result_number
        block = owner.regions[0].blocks[0]
        if _handed_on(block.operations[len(block.operations) - 1].operands[number]) != block.arguments[1 + number]:
            break
        value = owner.operands[3 + number]  # after the bounds and the step
    return value


def separate_results(module: Any, provider: Bindings) -> None:
    """Tell LLVM that each result is memory of its own: what was read need not be read again after a write."""
    ir = provider.ir
    with module.context:
        for op in module.body.operations:
            if _RESULTS not in op.operation.attributes:
                continue
            arguments = op.operation.regions[0].blocks[0].arguments
            pointers = [i for i, a in enumerate(arguments) if str(a.type) == "!llvm.ptr"]
            # In a descriptor the first pointer is for freeing, the second for reading and writing.
            used = pointers if BARE in op.operation.attributes else pointers[1::2]
            count = ir.IntegerAttr(op.operation.attributes[_RESULTS]).value
            results = used[len(used) - count :]
            own = [{"llvm.noalias": ir.UnitAttr.get()} if i in results else {} for i in range(len(arguments))]
            op.operation.attributes["arg_attrs"] = ir.ArrayAttr.get([ir.DictAttr.get(a) for a in own])
            del op.operation.attributes[_RESULTS]


def _buffer(tensor: Any, *, strided: bool, provider: Bindings) -> Any:
    ir = provider.ir
    if not isinstance(tensor, ir.RankedTensorType):
        raise TorchstoneError(
            f"the kernel has an argument or result that is no ranked tensor: {tensor}", stage="compile"
        )
    layout = None
    if strided and tensor.rank:
        dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
        with tensor.context:
            layout = ir.StridedLayoutAttr.get(0, [dynamic] * tensor.rank)
    with tensor.context, ir.Location.unknown():
        return ir.MemRefType.get(tensor.shape, tensor.element_type, layout)

"""Failed checks become Python errors: a kernel reports the first one in an error slot and returns.

MLIR lowers ``cf.assert`` to ``puts(message); abort()``, which would end the process. In the LLVM dialect each such
block is rewritten to ``*slot = number of the message; free what is allocated; return``. The results are then garbage,
and the caller raises.
"""

from __future__ import annotations

from typing import Any

from torchstone.compiler.mlir import Bindings


def divert_aborts(module: Any, provider: Bindings, entry: str = "main") -> tuple[str, ...]:
    """Rewrite the aborts of ``entry`` in place and return the messages; the slot holds 1 + the index of one.

    The address of the slot is its last argument, an i64. What it returns then is all zeros.
    """
    ir, llvm = provider.ir, provider.llvm
    texts: dict[str, Any] = {}
    main = None
    for op in module.body.operations:
        operation = op.operation
        if operation.name == "llvm.mlir.global":
            texts[operation.attributes["sym_name"].value] = operation.attributes["value"]
        elif operation.name == "llvm.func" and operation.attributes["sym_name"].value == entry:
            main = operation
    assert main is not None, f"the module has no function {entry}"
    messages: list[str] = []
    blocks = list(main.regions[0].blocks)
    flow = _Flow(blocks)
    slot = blocks[0].arguments[len(blocks[0].arguments) - 1]
    with module.context, main.location:
        i32 = ir.IntegerType.get_signless(32)
        pointer = ir.Type.parse("!llvm.ptr")
        result = main.attributes["function_type"].value.return_type
        nothing = str(result) == "!llvm.void"
        for position, block in enumerate(blocks):
            ops = [o.operation for o in block.operations]
            if ops[-1].name != "llvm.unreachable":
                continue
            puts = next(o for o in ops if o.name == "llvm.call" and o.attributes["callee"].value == "puts")
            source = puts.operands[0].owner
            messages.append(_text(texts.get(source.attributes["global_name"].value), ir))
            for operation in reversed(ops):
                operation.erase()
            with ir.InsertionPoint(block):
                number = llvm.ConstantOp(i32, ir.IntegerAttr.get(i32, len(messages)))
                llvm.StoreOp(number, llvm.IntToPtrOp(pointer, slot))
                for release in flow.unreleased(position):
                    release.clone()
                llvm.ReturnOp(arg=None if nothing else llvm.ZeroOp(result).result)
    return tuple(messages)


class _Flow:
    """The blocks of a function, by position, and where it allocates and frees: sets of allocations are bits."""

    def __init__(self, blocks: list[Any]) -> None:
        positions = {block: i for i, block in enumerate(blocks)}
        self.successors = [[positions[s] for s in block.successors] for block in blocks]
        self.allocated, self.released = [0] * len(blocks), [0] * len(blocks)
        self.releases: list[Any] = []
        for position, block in enumerate(blocks):
            for op in block.operations:
                if _calls(op.operation) in ("free", "_mlir_memref_to_llvm_free"):
                    source = getattr(op.operation.operands[0].owner, "operation", None)  # None: the owner is a block
                    if source is not None and _calls(source) in (
                        "malloc",
                        "aligned_alloc",
                        "_mlir_memref_to_llvm_alloc",
                    ):
                        bit = 1 << len(self.releases)
                        self.allocated[positions[source.block]] |= bit
                        self.released[position] |= bit
                        self.releases.append(op.operation)
        self.held = self._held()

    def unreleased(self, block: int) -> list[Any]:
        """Return the releases of what is certainly allocated on the way to a block, and not released yet."""
        return [call for number, call in enumerate(self.releases) if self.held[block] >> number & 1]

    def _held(self) -> list[int]:
        """What each block finds allocated on every way to it, and released on none since."""
        everything = (1 << len(self.releases)) - 1
        found = [everything] * len(self.successors)
        found[0] = 0
        pending = [0]
        met = [False] * len(self.successors)
        while pending:
            block = pending.pop()
            met[block] = True
            leaves = (found[block] | self.allocated[block]) & ~self.released[block]
            for successor in self.successors[block]:
                if found[successor] & leaves != found[successor] or not met[successor]:
                    found[successor] &= leaves
                    pending.append(successor)
        return found


def _calls(op: Any) -> str:
    """Return the name of the function an operation calls, nothing where it calls none."""
    if op.name != "llvm.call" or "callee" not in op.attributes:
        return ""
    return op.attributes["callee"].value


def _text(attribute: Any, ir: Any) -> str:
    """Decode the constant of a message: a string, or the dense bytes upstream now makes of one."""
    if isinstance(attribute, ir.StringAttr):
        raw = attribute.value_bytes
    elif isinstance(attribute, ir.DenseElementsAttr) and str(attribute.type.element_type) == "i8":
        raw = bytes(int(b) & 0xFF for b in ir.DenseIntElementsAttr(attribute))
    else:
        return "a check failed"
    return raw.rstrip(b"\0").decode(errors="replace")

"""An LLVM-dialect module -> machine code -> functions called by address, in process.

Nothing here knows torch. An ``Engine`` owns its code: function addresses dangle once it is gone, so whoever keeps a
``Function`` keeps its engine too (``Function`` does).
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from threading import Lock
from typing import Any

from torchstone.compiler import optimization
from torchstone.compiler.diagnostics import TorchstoneError
from torchstone.compiler.ir.dims import Dim
from torchstone.compiler.lowering.mlir_passes import rounding
from torchstone.compiler.mlir import Bindings, StringRef, bindings
from torchstone.compiler.runtime.cpu import level as levels

# LLVM -O0 skips the IR optimizer, not the code generator; it halves the compile time of a small kernel.
FAST_COMPILE, FAST_CODE = 0, 3
# Up to this many iterations of its mean loop nest a kernel is compiled for compile time. A call of so many is 2 to 45
# ms slower then (a product, softmax, GELU of 2**20 floats); LLVM's optimizations of them take 15 to 66 ms.
SMALL_WORK = 1 << 20
# What compiling with LLVM's optimizations takes, in times of the quick compilation; 4.6 measured for softmax.
THOROUGH = 5.0


# The code generator without its optimizations, for the kernels that are compiled for compile time: a third less of it.
# LLVM has them as options of the process, so they are set before each module's code is made.
_QUICK = {
    "fast-isel": "true", "regalloc": "fast", "optimize-regalloc": "false",
    **{f"disable-{name}": "true" for name in (
        "lsr", "cgp", "early-ifcvt", "machine-licm", "machine-cse", "machine-sink", "branch-fold", "tail-duplicate",
        "block-placement", "copyprop", "postra-machine-sink", "constant-hoisting", "partial-libcall-inlining",
        "merge-icmps", "postra-machine-licm", "machine-dce", "ssc", "peephole",
    )},
}  # fmt: skip
_THOROUGH = {name: "false" if value == "true" else "true" for name, value in _QUICK.items()} | {"regalloc": "default"}
# Loops of more steps stay loops until they are vectors: unrolled to the end they take four times as long (56 floats).
_QUICK["unroll-full-max-count"] = _THOROUGH["unroll-full-max-count"] = "8"
_generating = Lock()


class _EngineHandle(ctypes.Structure):
    """``MlirExecutionEngine`` of the C API."""

    _fields_ = (("ptr", ctypes.c_void_p),)


MOST_ARGUMENTS = 1024
"""What ctypes can pass. A function of more, pointers and integers of their size, takes the address of an array."""


class Function:
    """A compiled function, to be called with what its ctypes ``arguments`` take. Keeps its engine alive."""

    __slots__ = ("address", "call", "engine")

    def __init__(self, engine: Engine, address: int, arguments: Sequence[Any], result: Any) -> None:
        self.engine = engine
        self.address = address
        if len(arguments) <= MOST_ARGUMENTS or result is not None:
            self.call = ctypes.CFUNCTYPE(result, *arguments)(address)
            return
        array = ctypes.c_size_t * len(arguments)
        call = ctypes.CFUNCTYPE(result, ctypes.POINTER(ctypes.c_size_t))(address)
        self.call = lambda *values: call(array(*values))


class Engine:
    """The machine code of one module.

    ``module`` holds only the LLVM dialect; it is changed: of its functions only ``entries`` can be reached afterwards,
    through a table of pointers. (For each public function the engine would compile a second one that unpacks arguments
    from an array, which costs more than a small kernel itself.) ``symbols`` maps a name that the code calls to an
    address; other names are looked up in the process, and by default those that LLVM itself may call are in it. Raises
    TorchstoneError (stage ``compile``) for a symbol that does not exist.
    """

    def __init__(
        self,
        module: Any,
        *,
        entries: Sequence[str] = ("main",),
        opt_level: int = FAST_CODE,
        symbols: dict[str, int] | None = None,
        provider: Bindings | None = None,
    ) -> None:
        self.provider = provider or bindings()
        self.level = levels.level()
        symbols = helpers(self.provider) if symbols is None else symbols
        # LLVM reports a missing symbol on stderr alone, at the first lookup, as an address of 0: ask before it does.
        missing = [name for name in _declared(module) if name not in symbols and not _in_process(name)]
        if missing:
            raise TorchstoneError(
                f"the compiled code needs {', '.join(missing)}, which nothing provides", stage="compile"
            )
        _export(module, entries, self.provider, quick=opt_level == FAST_COMPILE, level=self.level)
        self._table: int | None = None
        self._options = _QUICK if opt_level == FAST_COMPILE else _THOROUGH
        try:
            with _generating:
                _configure(self.provider, self._options)
            self._engine = self.provider.execution_engine.ExecutionEngine(module, opt_level=opt_level)
        except RuntimeError as error:
            raise TorchstoneError(f"LLVM could not compile the module: {error}", stage="compile") from error
        for name, address in symbols.items():
            self._engine.raw_register_runtime(name, ctypes.c_void_p(address))

    def function(self, arguments: int | Sequence[Any], result: Any = None, *, index: int = 0) -> Function:
        """Return one of the entries.

        ``arguments`` are its ctypes, or the number of its pointer-sized integers; ``result`` is None or a ctype.
        """
        if self._table is None:
            with _generating:
                _configure(self.provider, self._options)
                self._table = _lookup(self.provider)(_handle(self._engine), StringRef.of(_TABLE))
        if not self._table:
            raise TorchstoneError("the machine code of the module could not be linked", stage="compile")
        address = ctypes.c_size_t.from_address(self._table + index * ctypes.sizeof(ctypes.c_size_t)).value
        types = [ctypes.c_size_t] * arguments if isinstance(arguments, int) else arguments
        return Function(self, address, types, result)


_TABLE = "torchstone_entries"


# What code generation uses of an x86-64, as LLVM names it, and as Linux does where that is another name.
_X86 = """
    avx avx2 fma f16c bmi:bmi1 bmi2 lzcnt:abm popcnt movbe avx512f avx512dq avx512ifma avx512cd avx512bw avx512vl
    avx512vbmi avx512vbmi2:avx512_vbmi2 avx512vnni:avx512_vnni avx512bitalg:avx512_bitalg
    avx512vpopcntdq:avx512_vpopcntdq avx512fp16:avx512_fp16 avxvnni:avx_vnni amx-tile:amx_tile amx-int8:amx_int8
    amx-bf16:amx_bf16 gfni vaes vpclmulqdq aes pclmul:pclmulqdq sha:sha_ni
"""


def features(flags: set[str]) -> str:
    """Features for LLVM of an x86-64 with these flags of Linux, without what flushes subnormals; "" where nothing does.

    Those are the roundings to bfloat16: LLVM holds a bfloat16 that goes from one block to the next as a float32, and
    rounds it back by such an instruction.
    """
    if not flags & {"avx512_bf16", "avx_ne_convert"}:
        return ""
    pairs = (name.partition(":") for name in _X86.split())
    named = ("+" + name if (flag or name) in flags else "-" + name for name, _, flag in pairs)
    return ",".join([*named, "-avx512bf16", "-avxneconvert"])


@cache
def _features() -> str:
    """``features`` of the processor at hand."""
    return features(set(levels.flags()))


def _passed(quick: bool, level: str) -> str:
    """Attributes of functions: quick leaves out LLVM's optimizations of machine code, else vectors are the widest.

    A level is the processor of that name to LLVM, which has no instruction beyond it.
    """
    passed = '"optnone", "noinline"' if quick else '["prefer-vector-width", "512"]'
    if level != levels.NATIVE:
        return f'{passed}, ["target-cpu", "{level}"], ["target-features", ""]'
    return passed + (f', ["target-features", "{_features()}"]' if _features() else "")


def _export(module: Any, entries: Sequence[str], provider: Bindings, *, quick: bool, level: str) -> None:
    """Make every function internal, and the entries' addresses the value of one exported array."""
    ir, llvm = provider.ir, provider.llvm
    with module.context, ir.Location.unknown():
        internal = ir.Attribute.parse("#llvm.linkage<internal>")
        passed = ir.Attribute.parse(f"[{_passed(quick, level)}]")
        for op in module.body.operations:
            operation = op.operation
            if operation.name == "llvm.func" and operation.regions[0].blocks:
                operation.attributes["linkage"] = internal
                operation.attributes["passthrough"] = passed
        functions = {
            o.operation.attributes["sym_name"].value: o.operation
            for o in module.body.operations
            if o.operation.name == "llvm.func"
        }
        entries = [_taking_an_array(module, functions[entry], entry, provider) for entry in entries]
        pointer = ir.Type.parse("!llvm.ptr")
        array = ir.Type.parse(f"!llvm.array<{len(entries)} x ptr>")
        with ir.InsertionPoint(module.body):
            cell = llvm.GlobalOp(
                global_type=ir.TypeAttr.get(array),
                sym_name=_TABLE,
                linkage=ir.Attribute.parse("#llvm.linkage<external>"),
                constant=True,
            )
            with ir.InsertionPoint(cell.regions[0].blocks.append()):
                table = llvm.UndefOp(array).result
                for index, entry in enumerate(entries):
                    at = ir.DenseI64ArrayAttr.get([index])
                    table = llvm.InsertValueOp(table, llvm.AddressOfOp(pointer, entry).res, at).res
                llvm.ReturnOp(arg=table)


def _taking_an_array(module: Any, function: Any, entry: str, provider: Bindings) -> str:
    """The name of a function that can be called for ``entry``: itself, or where ctypes has not the room for all its
    arguments one that reads them from an array."""
    ir = provider.ir
    types = [str(argument.type) for argument in function.regions[0].blocks[0].arguments]
    if len(types) <= MOST_ARGUMENTS or not str(function.attributes["function_type"]).startswith("!llvm.func<void"):
        return entry
    reads = "".join(
        f"%p{n} = llvm.getelementptr %all[{n}] : (!llvm.ptr) -> !llvm.ptr, i64\n"
        f"%v{n} = llvm.load %p{n} : !llvm.ptr -> {kind}\n"
        for n, kind in enumerate(types)
    )
    values = ", ".join(f"%v{n}" for n in range(len(types)))
    adapter = ir.Module.parse(f"""
        llvm.func @{entry}({", ".join(types)})
        llvm.func internal @{entry}_of_array(%all: !llvm.ptr) {{
            {reads}
            llvm.call @{entry}({values}) : ({", ".join(types)}) -> ()
            llvm.return
        }}""")
    module.body.append(adapter.body.operations[1].detach_from_parent())
    return f"{entry}_of_array"


def _configure(provider: Bindings, options: Mapping[str, str]) -> None:
    """Set options of LLVM's code generator, of which the process has one set."""
    if _set and _set[0] is options:
        return
    _set[:] = [options]
    words = [b"torchstone", *(f"-{name}={value}".encode() for name, value in options.items())]
    parse = provider.capi.LLVMParseCommandLineOptions
    parse.restype, parse.argtypes = None, [ctypes.c_int, ctypes.POINTER(ctypes.c_char_p), ctypes.c_char_p]
    parse(len(words), (ctypes.c_char_p * len(words))(*words), None)


_set: list[Mapping[str, str]] = []


def helpers(provider: Bindings) -> dict[str, int]:
    """Return the addresses of the functions that the code generator calls and the process may lack."""
    return _helpers(provider, levels.level())


@cache
def _helpers(provider: Bindings, level: str) -> dict[str, int]:
    """``helpers`` made of code for the level that is held to as they are asked for."""
    module = provider.ir.Module.parse(rounding.SOURCE, provider.shared_context)
    engine = Engine(module, entries=list(rounding.NAMES.values()), symbols={}, provider=provider)
    _KEPT.append(engine)
    return {symbol: engine.function(1, index=index).address for index, symbol in enumerate(rounding.NAMES)}


_KEPT: list[Engine] = []


@cache
def _lookup(provider: Bindings) -> Any:
    # The Python method finds only functions wrapped for packed arguments; the C API finds the function itself.
    lookup = provider.capi.mlirExecutionEngineLookup
    lookup.restype = ctypes.c_void_p
    lookup.argtypes = [_EngineHandle, StringRef]
    return lookup


def _handle(engine: Any) -> _EngineHandle:
    capsule = engine._CAPIPtr
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return _EngineHandle(pointer(capsule, name(capsule)))


def _declared(module: Any) -> list[str]:
    """Return the names of the functions that the module calls and does not define."""
    names = []
    for op in module.body.operations:
        operation = op.operation
        if operation.name == "llvm.func" and not operation.regions[0].blocks:
            names.append(operation.attributes["sym_name"].value)
    return names


@lru_cache(maxsize=4096)
def _in_process(name: str) -> bool:
    try:
        ctypes.CDLL(None)[name]
    except AttributeError:
        return False
    return True


def opt_level(work: Dim | None) -> int:
    """Return the LLVM level for a kernel of ``work`` iterations a loop nest.

    None is for what will never be known; what is known when it is called is compiled quickly first.
    """
    large = work is None or (isinstance(work, int) and work > SMALL_WORK)
    return FAST_CODE if large or optimization.at_once() else FAST_COMPILE

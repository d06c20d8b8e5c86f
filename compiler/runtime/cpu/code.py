"""Functions on tensors -> machine code, one by one or many at once.

A module has a price of its own, in MLIR's passes, in LLVM's, in linking it and in tearing it down: several times that
of the code of a small kernel. Inside ``together()`` functions wait, and are compiled as one module.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torchstone.compiler.diagnostics import TorchstoneError
from torchstone.compiler.lowering.mlir_passes import pipelines
from torchstone.compiler.lowering.mlir_passes.cpu import CPU, CpuOptions
from torchstone.compiler.lowering.mlir_passes.destination import Boundary, find, to_destination
from torchstone.compiler.mlir import Bindings
from torchstone.compiler.passes import timed
from torchstone.compiler.runtime.cpu import cache, jit
from torchstone.compiler.runtime.cpu.cache import Made
from torchstone.compiler.runtime.cpu.checks import divert_aborts
from torchstone.compiler.runtime.cpu.level import level

_waiting: ContextVar[list[Code] | None] = ContextVar("waiting", default=None)


class Code:
    """The function ``entry`` of a module (or its text), in destination form, compiled now or with those it waits with.

    The module stays as it is. ``strided`` inputs take any strides; ``ranks`` are those of all arguments and results.
    ``fused`` says that elementwise ops share loop nests already. Raises TorchstoneError (stage ``compile``), or, when
    it waits, ``function`` does.
    """

    def __init__(
        self,
        module: Any,
        *,
        entry: str,
        strided: bool,
        ranks: Sequence[int],
        fused: bool,
        opt_level: int,
        provider: Bindings,
    ) -> None:
        self.source, self.entry, self.strided, self.fused = module, entry, strided, fused
        self.opt_level, self.provider = opt_level, provider
        self.error: TorchstoneError | None = None
        self.messages: tuple[str, ...] = ()
        # What compiling it took: its share, of what was compiled together.
        self.seconds = 0.0
        self.module: Any = None
        self._ranks = ranks
        self._function: jit.Function | None = None
        options = (entry, strided, fused, opt_level, level(), provider.provider, *ranks)
        self.key = cache.key_of(module, *options) if cache.enabled() else None
        waiting = _waiting.get()
        known = None if self.key is None else cache.CACHE.find(self.key)
        # The one that waits already to become the same machine code.
        self._twin = next((c for c in waiting or () if c.key == self.key is not None and c.module is not None), None)
        if known is not None:
            self.link(*known)
        elif self._twin is None:
            self.prepare()
        if waiting is not None:
            waiting.append(self)
        elif known is None:
            _compile([self])

    def prepare(self) -> None:
        """Set ``module`` to a fresh module of the function in destination form."""
        self.module = pipelines.parse(self.source, provider=self.provider)
        self.boundary = to_destination(self.module, entry=self.entry, strided=self.strided, provider=self.provider)

    def settle(self) -> None:
        """Take what became of the twin."""
        if (twin := self._twin) is not None and self._function is None:
            self._function, self.error = twin._function, twin.error
            self.boundary, self.messages, self.seconds = twin.boundary, twin.messages, twin.seconds
        self._twin = None

    @property
    def function(self) -> jit.Function:
        """The machine code."""
        if self._function is None and self.error is None:
            compile_waiting()
        if self.error is not None:
            raise self.error
        assert self._function is not None
        return self._function

    def link(self, engine: jit.Engine, made: Made) -> None:
        """Take a function of an engine."""
        self.take(made, engine.function(self.count(made.boundary), index=made.index))

    def take(self, made: Made, function: jit.Function) -> None:
        """Be this function."""
        self.boundary, self.messages, self.seconds = made.boundary, made.messages, made.seconds
        self._function = function
        self.module = None

    def count(self, boundary: Boundary) -> int:
        """Return how many arguments the machine code takes."""
        return (len(self._ranks) if boundary.bare else sum(3 + 2 * r for r in self._ranks)) + boundary.guarded


@contextmanager
def together() -> Iterator[list[Code]]:
    """Let functions made in the block wait for its end, and compile them as one module then.

    Gives the list of them, in order. The ``error`` of one that cannot be compiled is left to whoever asks for it.
    """
    codes: list[Code] = []
    token = _waiting.set(codes)
    try:
        yield codes
        compile_waiting()
    finally:
        _waiting.reset(token)


def compile_waiting() -> None:
    """Compile what waits in this context."""
    pending = [code for code in _waiting.get() or () if code._function is None and code.error is None]
    groups: dict[Any, list[Code]] = {}
    for code in pending:
        if code._twin is None:
            # Functions of one module share how much is spent on them.
            alone = id(code) if _has_helpers(code) else 0
            groups.setdefault((code.opt_level, id(code.provider), alone), []).append(code)
    for codes in groups.values():
        try:
            _compile(codes)
        except TorchstoneError as error:
            if len(codes) == 1:
                codes[0].error = error
                continue
            for code in codes:  # whose fault it was: one by one
                code.prepare()
                try:
                    _compile([code])
                except TorchstoneError as own:
                    code.error = own
    for code in pending:
        code.settle()


def _compile(codes: Sequence[Code]) -> None:
    first = codes[0]
    names = [f"main{i}" for i in range(len(codes))] if len(codes) > 1 else ["main"]
    begin = time.perf_counter()
    module = _merged(codes, names) if len(codes) > 1 else first.module
    messages = lower(module, codes, names)
    with timed("machine-code", "llvm"):
        engine = jit.Engine(module, entries=names, opt_level=first.opt_level, provider=first.provider)
        functions = [engine.function(code.count(code.boundary), index=index) for index, code in enumerate(codes)]
    seconds = (time.perf_counter() - begin) / len(codes)
    made = [Made(index, code.boundary, messages[index], seconds) for index, code in enumerate(codes)]
    for code, mine, function in zip(codes, made, functions, strict=True):
        code.take(mine, function)
    if keyed := {code.key: mine for code, mine in zip(codes, made, strict=True) if code.key is not None}:
        cache.CACHE.add(engine, keyed)


def lower(module: Any, codes: Sequence[Code], names: Sequence[str]) -> list[tuple[str, ...]]:
    """Take a module of functions to the LLVM dialect; return the messages of the checks of each."""
    first, provider = codes[0], codes[0].provider
    CPU.run(
        module,
        CpuOptions(
            provider,
            helpers=first.boundary.guarded and _has_helpers(first),
            fused=all(code.fused for code in codes),
            optimized=first.opt_level == jit.FAST_CODE,
        ),
    )
    return [
        divert_aborts(module, provider, name) if code.boundary.guarded else ()
        for code, name in zip(codes, names, strict=True)
    ]


def _has_helpers(code: Code) -> bool:
    """Say whether the module holds functions with a body beside the entry, or anything else with a name of its own."""
    return any(
        op.operation.name != "func.func" or (len(op.operation.regions[0].blocks) > 0 and _name(op) != "main")
        for op in code.module.body.operations
    )


def _name(op: Any) -> str:
    return op.operation.attributes["sym_name"].value


def _merged(codes: Sequence[Code], names: Sequence[str]) -> Any:
    """Move the entries into one module, and the declarations of what they call, each once."""
    provider = codes[0].provider
    ir = provider.ir
    with provider.shared_context, ir.Location.unknown():
        module = ir.Module.create()
        declared: set[str] = set()
        for code, name in zip(codes, names, strict=True):
            entry = find(code.module, "main", provider).operation
            for op in list(code.module.body.operations):
                if op.operation == entry or _name(op) not in declared:
                    declared.add(_name(op))
                    op.operation.detach_from_parent()
                    module.body.append(op)
            entry.attributes["sym_name"] = ir.StringAttr.get(name)
    return module

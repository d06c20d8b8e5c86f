"""What the CPU runtime makes of a module: the pipelines from linalg on tensors to the LLVM dialect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torchstone.compiler.lowering.mlir_passes import pipelines
from torchstone.compiler.lowering.mlir_passes.buffers import finish_buffers, finish_returned_buffers
from torchstone.compiler.lowering.mlir_passes.destination import keep_copied_results_apart, separate_results
from torchstone.compiler.lowering.mlir_passes.outline import keep_outlined, outline_nests
from torchstone.compiler.lowering.mlir_passes.row_fusion import fuse_rows
from torchstone.compiler.lowering.mlir_passes.unfused import drop_idle_nests, separate_empty_tensors
from torchstone.compiler.mlir import Bindings
from torchstone.compiler.passes import Pass, Pipeline


@dataclass(slots=True)
class CpuOptions:
    """How a module becomes CPU code.

    ``helpers``: it holds functions that the entry calls. ``fused``: elementwise ops share loop nests already.
    ``optimized``: the code may take its time to compile. ``used`` are the names of the ops that buffers left.
    """

    provider: Bindings
    helpers: bool = False
    fused: bool = False
    optimized: bool = False
    used: frozenset[str] = frozenset()


def _of_mlir(name: str, what: str, applies: Callable[[CpuOptions], bool] | None = None) -> Pass:
    """Return the pass that runs a pipeline of MLIR's own passes."""

    def run(module: Any, options: CpuOptions) -> Any:
        pipelines.run(name, module, provider=options.provider)
        return module

    more = {"applies": applies} if applies else {}
    return Pass(name, what, run, mlir=pipelines.PIPELINES[name], **more)


def _in_place(change: Callable[[Any, Bindings], Any]) -> Callable[[Any, CpuOptions], Any]:
    def run(module: Any, options: CpuOptions) -> Any:
        change(module, options.provider)
        return module

    return run


def _finish_buffers(module: Any, options: CpuOptions) -> Any:
    options.used = frozenset(finish_buffers(module, options.provider))
    return module


def _to_llvm(module: Any, options: CpuOptions) -> Any:
    pipelines.run_llvm(module, used=options.used, provider=options.provider)
    return module


_OPTIMIZED: Callable[[CpuOptions], bool] = lambda options: options.optimized  # noqa: E731

# For functions in destination form.
CPU = Pipeline(
    "cpu",
    (
        _of_mlir("inline", "functions that the entry calls go into it", lambda options: options.helpers),
        _of_mlir("fuse", "elementwise ops share loop nests", lambda options: not options.fused),
        Pass("drop-idle-nests", "loop nests that give nothing go", _in_place(drop_idle_nests),
             lambda options: not options.fused),
        Pass("separate-empty-tensors", "each op has an empty tensor of its own to write into",
             _in_place(separate_empty_tensors), lambda options: not options.fused),
        _of_mlir("buffers", "tensors become buffers"),
        Pass("keep-copied-results-apart", "a value that outlives a result's buffer gets its own",
             _in_place(keep_copied_results_apart)),
        Pass("fuse-rows", "loop nests share loops over blocks of rows", _in_place(fuse_rows), _OPTIMIZED),
        Pass("finish-buffers", "allocations are freed, strided copies become loops, each bfloat16 is rounded",
             _finish_buffers),
        Pass("outline-nests", "loop nests of a long function become functions", _in_place(outline_nests), _OPTIMIZED),
        Pass("llvm", "loops and buffers become the LLVM dialect", _to_llvm, mlir=pipelines.PIPELINES["llvm"]),
        Pass("separate-results", "LLVM is told that results share no memory", _in_place(separate_results)),
        Pass("keep-outlined", "LLVM is told not to inline what was outlined", _in_place(keep_outlined)),
    ),
)  # fmt: skip

# For functions that return tensors of run-time shape: to buffers, and from there to the LLVM dialect.
RETURNED_BUFFERS = Pipeline(
    "returned-buffers",
    (
        _of_mlir("inline", "functions that the entry calls go into it"),
        _of_mlir("returned-buffers", "tensors become buffers, and results buffers that the caller owns"),
    ),
)
RETURNED_LLVM = Pipeline(
    "returned-llvm",
    (
        Pass(
            "finish-returned-buffers",
            "strided copies become loops, each bfloat16 is rounded",
            _in_place(finish_returned_buffers),
        ),
        _of_mlir("llvm-returned", "loops and buffers become the LLVM dialect"),
    ),
)

"""The named MLIR pass pipelines of the CPU runtime, parsed once a process and run with MLIR errors turned into ours.

A module travels ``tensors`` -> ``buffers`` -> ``llvm``. Each step is a row of ``PIPELINES``; ``run(name, module)``
runs it in place. The order of the rows below is the order of the stages.
"""

from __future__ import annotations

import os
from collections.abc import Set
from functools import cache
from typing import Any

from torchstone.compiler.diagnostics import TorchstoneError, did_you_mean
from torchstone.compiler.mlir import Bindings, bindings

_CLEAN = "canonicalize,cse"

# Destination form: the function's results are buffers of the caller, so nothing that leaves it is allocated in it.
_FUSE = f"func.func({_CLEAN},linalg-fuse-elementwise-ops)"
_BUFFERS = "eliminate-empty-tensors,one-shot-bufferize{bufferize-function-boundaries=true}"

# Results of run-time shape: the function returns buffers that its caller owns; identity layouts keep them contiguous.
_RETURNED_BUFFERS = (
    "convert-shape-to-std,"
    f"{_FUSE},eliminate-empty-tensors,"
    "one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},"
    "buffer-deallocation-pipeline,convert-bufferization-to-memref"
)

# bf16: the truncation instruction flushes subnormals, so it is emulated *and* expanded to integer arithmetic.
# complex: never through libm, whose C ABI for complex<f32> differs from the one LLVM gives a struct of two floats.
_MATH = "func.func(convert-math-to-llvm{{approximate-log1p=false}}),convert-math-to-libm,"
_COMPLEX = f"convert-complex-to-standard,{_MATH}"
_VECTORS = ("func.func(convert-vector-to-scf),", "convert-vector-to-llvm,")
# What is asked of views is worked out while loop nests are single ops: there is less to walk over. In the end ops are
# visited once, users before what they use, so that what nobody uses goes with all that it was made of; and no blocks
# are merged: loops leave none to merge.
_LLVM = (
    "{early}expand-strided-metadata,func.func(convert-linalg-to-loops),lower-affine,convert-scf-to-cf,"
    "func.func(arith-emulate-unsupported-floats{{source-types=bf16 target-type=f32}},"
    "arith-expand{{include-bf16=true}}),"
    "{dialects}{alloc}convert-to-llvm,"
    "reconcile-unrealized-casts,llvm.func(canonicalize{{region-simplify=disabled max-iterations=1 top-down=false}},cse)"
)

# LLVM follows no pointer that is aligned by arithmetic, and would ask of every buffer whether another one overlaps it.
_HEAP = "finalize-memref-to-llvm{use-aligned-alloc=1},"
_RETURNED_HEAP = "finalize-memref-to-llvm{use-generic-functions=1},"


def _llvm(*, dialects: str, alloc: str = "", vectors: tuple[str, str] = ("", "")) -> str:
    early, late = vectors
    return _LLVM.format(early=early, dialects=dialects.format() + late, alloc=alloc)


PIPELINES: dict[str, str] = {
    "buffers": _BUFFERS,
    "returned-buffers": _RETURNED_BUFFERS,
    "deallocate": "buffer-deallocation-pipeline",
    **{
        f"llvm{suffix}{width}{heap}": _llvm(dialects=dialects, alloc=alloc, vectors=vectors)
        for suffix, dialects in (("", ""), ("-math", _MATH), ("-complex", _MATH + _COMPLEX))
        for width, vectors in (("", ("", "")), ("-vectors", _VECTORS))
        for heap, alloc in (("", ""), ("-heap", _HEAP))
    },
    "llvm-returned": _llvm(dialects=_MATH + _COMPLEX, alloc=_RETURNED_HEAP),
    "inline": "inline,symbol-dce",
    "fuse": _FUSE,
}

# What these run on may be another compiler's. A module that a pass shows to be invalid is that compiler's error, which
# must not become a wrong number: a negative padding, say, is a write in front of the buffer.
_VERIFIED = frozenset({"returned-buffers", "llvm-returned"})


@cache
def _manager(pipeline: str, provider: Bindings, verified: bool) -> Any:
    with provider.shared_context:
        manager = provider.passmanager.PassManager.parse(f"builtin.module({pipeline})")
    # Verifying after every pass costs a third of the time; the module is verified before the first one.
    manager.enable_verifier(verified or bool(os.environ.get("TORCHSTONE_VERIFY_PASSES")))
    return manager


def run(name: str, module: Any, *, provider: Bindings | None = None) -> None:
    """Run the pipeline called ``name`` on ``module`` in place.

    The module is verified after every pass where it may be another compiler's, and anywhere with
    TORCHSTONE_VERIFY_PASSES=1 in the environment.
    Raises TorchstoneError (stage ``compile``) with MLIR's messages when a pass fails.
    """
    if name not in PIPELINES:
        raise TorchstoneError(f"unknown pipeline {name!r}{did_you_mean(name, PIPELINES)}", stage="compile")
    run_text(PIPELINES[name], module, label=name, provider=provider, verified=name in _VERIFIED)


def run_llvm(module: Any, *, used: Set[str], provider: Bindings | None = None) -> None:
    """Take a module on buffers to the LLVM dialect in place: the passes that the names of its ops call for."""
    dialects = {name.partition(".")[0] for name in used}
    suffix = "-complex" if "complex" in dialects else "-math" if "math" in dialects else ""
    width = "-vectors" if "vector" in dialects else ""
    heap = "-heap" if "memref.alloc" in used else ""
    run(f"llvm{suffix}{width}{heap}", module, provider=provider)


def run_text(
    pipeline: str, module: Any, *, label: str = "", provider: Bindings | None = None, verified: bool = False
) -> None:
    """Run a pipeline given as text (what ``builtin.module(…)`` encloses); errors as ``run``."""
    provider = provider or bindings()
    try:
        _manager(pipeline, provider, verified).run(module.operation)
    except provider.ir.MLIRError as error:
        raise compile_error(f"pass pipeline {label or pipeline}", error) from error


def compile_error(doing: str, error: Any) -> TorchstoneError:
    """Return our error for an ``MLIRError``: what MLIR reported, each diagnostic on its line with its location."""
    lines = [f"{doing} failed"]
    for diagnostic in getattr(error, "error_diagnostics", None) or ():
        lines.append(f"  {diagnostic.location}: {diagnostic.message}")
        lines.extend(f"    {note.location}: {note.message}" for note in diagnostic.notes[:2])
    if len(lines) == 1:
        lines.append(f"  {error}")
    return TorchstoneError("\n".join(lines[:12]), stage="compile")


def parse(module: Any, *, provider: Bindings | None = None) -> Any:
    """Return a new MLIR module of our context from text, or from a module of any context; errors as ``run``."""
    provider = provider or bindings()
    if isinstance(module, provider.ir.Module) and module.context == provider.shared_context:
        return _copy(module, provider)
    text = module if isinstance(module, str) else module.operation.get_asm(enable_debug_info=True)
    try:
        return provider.ir.Module.parse(text, provider.shared_context)
    except provider.ir.MLIRError as error:
        raise compile_error("parsing the MLIR module", error) from error


def _copy(module: Any, provider: Bindings) -> Any:
    ir = provider.ir
    with module.operation.location:
        copy = ir.Module.create()
    with ir.InsertionPoint(copy.body):
        for op in module.body.operations:
            op.operation.clone()
    return copy

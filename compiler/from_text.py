"""Programs that come as text: a graph at any of our stages, or a module of a target's dialect, taken on from there."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from torchstone.compiler.diagnostics import TorchstoneError, did_you_mean
from torchstone.compiler.driver import Stages, to_target
from torchstone.compiler.ir import Graph, TensorType, parse_graph
from torchstone.compiler.lowering.stablehlo.dialect import register
from torchstone.compiler.lowering.stablehlo.to_linalg import STABLEHLO_TO_LINALG
from torchstone.compiler.lowering.steps import KERNEL_HEADER, join_kernels
from torchstone.compiler.lowering.target import Target
from torchstone.compiler.ops.verifier import verify_graph
from torchstone.compiler.transforms.contract import to_contract, to_flat
from torchstone.compiler.transforms.graph_types import refine

# In the order of the pipeline; a module of MLIR ends it.
GRAPHS = ("aten", "contract", "flat")
MODULES = ("linalg", "tosa", "stablehlo")


def from_text(text: str, stage: str, target: Target, *, library_calls: bool = True) -> Stages:
    """Take the text of a stage through the stages after it and return the text of all of them, ``stage`` included.

    A size written ``?`` in an ``aten`` graph is worked out (see ``shapes.refine``). ParseError says where the text is
    no graph, VerifyError which rule it breaks, Unsupported which op the target does not take.
    """
    if stage in MODULES:
        return Stages(_modules(text, stage))
    if stage not in GRAPHS:
        names = (*GRAPHS, *MODULES)
        raise TorchstoneError(f'no text is taken at stage "{stage}"{did_you_mean(stage, names)}: {", ".join(names)}')
    graph = parse_graph(text)
    texts: dict[str, Callable[[], str]] = {}
    if stage == "aten":
        graph = refine(graph).graph if _is_open(graph) else graph
        texts["aten"] = graph.__str__
        graph, _ = to_contract(graph, target, {}, library_calls=library_calls)
    if stage != "flat":
        texts["contract"] = graph.__str__
        graph, _ = to_flat(graph, target, library_calls=library_calls)
    return Stages({**texts, **_lowered(graph, target)})


def _lowered(flat: Graph, target: Target) -> dict[str, Callable[[], str]]:
    verify_graph(flat)
    lowered = to_target(flat, target)
    lowered.load()
    return {"flat": flat.__str__, **lowered.texts}


def _is_open(graph: Graph) -> bool:
    """Say whether a size is left to be worked out."""
    values = [*graph.args, *(r for op in graph.ops for r in op.results)]
    nested = [g for op in graph.ops for g in op.graphs.values()]
    return any(isinstance(v.type, TensorType) and None in v.type.shape for v in values) or any(map(_is_open, nested))


def _modules(text: str, stage: str) -> dict[str, Callable[[], str]]:
    """Take on the module of a kernel, or those of all kernels that a schedule runs."""
    _, *parts = re.split(KERNEL_HEADER, text)
    if not parts:
        return _module(text, stage)
    kernels = [_module(part, stage) for part in parts]
    return {name: partial(join_kernels, [kernel[name] for kernel in kernels]) for name in kernels[0]}


def _module(text: str, stage: str) -> dict[str, Callable[[], str]]:
    from torchstone.compiler.lowering.mlir_passes import pipelines
    from torchstone.compiler.runtime.cpu.allocating_kernel import load_returning

    if stage == "stablehlo":
        register()
    module = pipelines.parse(text)
    functions = [op for op in module.body.operations if op.operation.name == "func.func"]
    public = [op for op in functions if "sym_visibility" not in op.operation.attributes]
    if len(public) != 1:
        raise TorchstoneError(f"expected a module of one public function, got {len(public)}")
    texts = {stage: lambda: text}
    if stage == "stablehlo":
        STABLEHLO_TO_LINALG.run(module)
        code = str(module)
        texts["linalg"] = lambda: code
    if stage == "tosa":
        from torchstone.compiler.lowering.tosa.validate import to_linalg, validate

        validate(module)
        to_linalg(module)
        linalg = str(module)
        texts["linalg"] = lambda: linalg
    return {**texts, "llvm": load_returning(module).llvm}

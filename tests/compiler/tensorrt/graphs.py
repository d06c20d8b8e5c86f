"""Small FlatIR graphs, run through the TensorRT lowering on the simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchstone.compiler.ir import Graph, TensorType, Value
from torchstone.compiler.ir.dtypes import BY_NAME
from torchstone.compiler.lowering.tensorrt import lower_graph, takes
from torchstone.compiler.ops.verifier import verify_graph
from torchstone.compiler.runtime.tensorrt.engine import EngineKernel
from torchstone.compiler.transforms.builder import Builder
from torchstone.compiler.transforms.expand import expand
from torchstone.compiler.transforms.verify import verify


def dtype_of(tensor: torch.Tensor) -> Any:
    return BY_NAME[str(tensor.dtype).removeprefix("torch.")]


def graph_of(build: Callable[..., Any], types: Sequence[TensorType]) -> Graph:
    """Return the graph that ``build(builder, *arguments)`` makes."""
    graph = Graph("main", [Value(t, f"x{i}") for i, t in enumerate(types)])
    out = build(Builder(graph.ops), *graph.args)
    graph.outputs = out if isinstance(out, tuple) else (out,)
    verify_graph(graph)
    return graph


def legal(graph: Graph) -> Graph:
    """Return the graph with what TensorRT lacks legalized; Unsupported when there is no way."""
    graph = expand(graph, takes)
    verify(graph, takes)
    return graph


def static(build: Callable[..., Any], *tensors: torch.Tensor) -> Graph:
    return graph_of(build, [TensorType(tuple(t.shape), dtype_of(t)) for t in tensors])


def kernel(graph: Graph) -> EngineKernel:
    """Return the engine of a graph, legalized first."""
    return EngineKernel(lower_graph(legal(graph)))

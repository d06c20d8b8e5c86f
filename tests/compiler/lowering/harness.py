"""One primitive as a graph, special values of a dtype, and a comparison with the primitive's evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torchstone.compiler.ir import Graph, Value
from torchstone.compiler.ir.dtypes import DType
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.lowering.linalg import TARGET
from torchstone.compiler.runtime.cpu.bridge import IR_DTYPES, torch_dtype
from torchstone.compiler.runtime.interpreter import evaluate_graph
from torchstone.compiler.transforms.builder import Builder

INF, NAN = float("inf"), float("nan")
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -2.5, 2.0, 3.0, -7.25, 1e-3, 0.1, 10.0, 100.0, -40.0, INF, -INF, NAN]


def primitive(name: str, *types: TensorType, **attributes: Any) -> Graph:
    """Return ``f(*args) = flat.<name>(*args)``."""
    args = [Value(t, f"x{i}") for i, t in enumerate(types)]
    graph = Graph("f", args)
    graph.outputs = Builder(graph.ops).emit(name, *args, **attributes)
    return graph


def of(tensor: torch.Tensor) -> TensorType:
    """Return the static type of a tensor."""
    return TensorType(tuple(tensor.shape), IR_DTYPES[tensor.dtype])


def special(dtype: DType) -> torch.Tensor:
    """Return the values of a dtype where mistakes live: zeros, extremes, subnormals, infinities, NaN."""
    kind = torch_dtype(dtype)
    if dtype.is_bool:
        return torch.tensor([False, True])
    if dtype.is_float:
        info = torch.finfo(kind)
        extremes = [info.max, info.min, info.tiny, info.tiny / 4, info.smallest_normal * 1.5]
        return torch.tensor(FLOATS + extremes, dtype=torch.float64).to(kind)
    if dtype.is_complex:
        parts = torch.tensor([0.0, -0.0, 1.0, -2.5, 0.3, 20.0, INF, NAN], dtype=torch_dtype(dtype.real))
        return torch.complex(*(p.reshape(-1) for p in torch.meshgrid(parts, parts, indexing="ij")))
    info = torch.iinfo(kind)
    values = [0, 1, 2, 3, 5, 7, 8, 31, 100, info.max, info.max - 1, info.min, info.min + 1]
    return torch.tensor([v for v in [*values, -1, -2, -7] if v >= info.min], dtype=kind)


def run(graph: Graph, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Lower and run a graph."""
    return TARGET.lower(graph).load()(tensors)


def evaluate(graph: Graph, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    return evaluate_graph(graph, tensors)


def ulps(got: torch.Tensor, want: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the distance of ``got`` to ``want`` (float64) in units of the last place of ``dtype``; NaN equals NaN."""
    info = torch.finfo(dtype)
    got = got.to(torch.float64)
    size = want.abs().clamp(min=info.tiny).nan_to_num(posinf=info.max).clamp(max=info.max)
    unit = torch.exp2(torch.floor(torch.log2(size))) * info.eps
    distance = (got - want).abs() / unit
    same = (got == want) | (got.isnan() & want.isnan()) | (got.isinf() & (want.abs() > info.max * (1 - info.eps / 4)))
    return torch.where(same, torch.zeros_like(distance), distance.nan_to_num(nan=INF))

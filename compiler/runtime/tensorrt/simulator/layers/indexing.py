"""Layers that read or write at computed places: gather and scatter along one axis. A negative index counts back."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.runtime.tensorrt import rules
from torchstone.compiler.runtime.tensorrt.simulator.enums import GatherMode, LayerType, ScatterMode
from torchstone.compiler.runtime.tensorrt.simulator.tensor import ILayer, ITensor, Parameter, takes
from torchstone.compiler.runtime.tensorrt.simulator.values import Known, require


class IGatherLayer(ILayer):
    """DEFAULT: whole slices of ``axis``; ELEMENT: one element an index. Source: operators documentation, Gather."""

    _TYPE, _KIND = LayerType.GATHER, "Gather"
    axis = Parameter(int)
    mode = Parameter(GatherMode)

    def __init__(self, network: Any, x: ITensor, indices: ITensor, mode: GatherMode, axis: int = 0) -> None:
        super().__init__(network, (x, indices))
        self.mode, self.axis = mode, axis

    def _rule(self, x: Known, indices: Known) -> tuple[Known, ...]:
        takes("gather", rules.LAYERS["Gather"], x)
        takes("gather indices", rules.INTS, indices)
        require(0 <= self.axis < len(x.shape), f"gather: axis {self.axis} out of range for {x}")
        if self.mode is GatherMode.DEFAULT:
            return (Known((*x.shape[: self.axis], *indices.shape, *x.shape[self.axis + 1 :]), x.dtype),)
        require(self.mode is GatherMode.ELEMENT, "gather: mode ND is not simulated")
        require(len(indices.shape) == len(x.shape), f"gather: ELEMENT needs equal ranks, got {x} and {indices}")
        return (Known(indices.shape, x.dtype),)

    def _run(self, x: Any, indices: Any) -> tuple[Any, ...]:
        import torch

        at = indices.to(torch.int64)
        at = torch.where(at < 0, at + x.shape[self.axis], at)
        if self.mode is GatherMode.ELEMENT:
            return (x.gather(self.axis, at),)
        shape = (*x.shape[: self.axis], *at.shape, *x.shape[self.axis + 1 :])
        return (x.index_select(self.axis, at.reshape(-1)).reshape(shape),)


class IScatterLayer(ILayer):
    """ELEMENT: overwrite one element an index along ``axis``. Source: operators documentation, Scatter."""

    _TYPE, _KIND = LayerType.SCATTER, "Scatter"
    axis = Parameter(int)
    mode = Parameter(ScatterMode)

    def __init__(self, network: Any, x: ITensor, indices: ITensor, updates: ITensor, mode: ScatterMode) -> None:
        super().__init__(network, (x, indices, updates))
        self.mode, self.axis = mode, 0

    def _rule(self, x: Known, indices: Known, updates: Known) -> tuple[Known, ...]:
        takes("scatter", rules.LAYERS["Scatter"], x, updates)
        takes("scatter indices", rules.INTS, indices)
        require(self.mode is ScatterMode.ELEMENT, "scatter: mode ND is not simulated")
        require(indices.shape == updates.shape, f"scatter: indices {indices} and updates {updates} must have one shape")
        require(len(indices.shape) == len(x.shape), f"scatter: ranks differ, got {x} and {indices}")
        require(0 <= self.axis < len(x.shape), f"scatter: axis {self.axis} out of range for {x}")
        return (x,)

    def _run(self, x: Any, indices: Any, updates: Any) -> tuple[Any, ...]:
        import torch

        at = indices.to(torch.int64)
        return (x.scatter(self.axis, torch.where(at < 0, at + x.shape[self.axis], at), updates),)

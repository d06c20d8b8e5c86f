"""Layers that combine elements: reduce, top-k, matrix multiply, softmax, cumulative."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.runtime.tensorrt import rules
from torchstone.compiler.runtime.tensorrt.simulator.enums import (
    CumulativeOperation,
    DataType,
    LayerType,
    MatrixOperation,
    ReduceOperation,
    TopKOperation,
)
from torchstone.compiler.runtime.tensorrt.simulator.layers.elementwise import in_float
from torchstone.compiler.runtime.tensorrt.simulator.tensor import ILayer, ITensor, Parameter, broadcast, takes
from torchstone.compiler.runtime.tensorrt.simulator.values import Known, require


def axes_of(mask: int, rank: int) -> tuple[int, ...]:
    """Return the dims whose bits are set."""
    return tuple(d for d in range(rank) if mask >> d & 1)


class IReduceLayer(ILayer):
    """Reduction over the dims of a bit mask. Source: operators documentation, Reduce; NvInfer.h for empty volumes.

    16-bit floats accumulate in float32. Undocumented, and taken at its worst: MAX and MIN drop a NaN.
    """

    _TYPE, _KIND = LayerType.REDUCE, "Reduce"
    op = Parameter(ReduceOperation)
    axes = Parameter(int)
    keep_dims = Parameter(bool)

    def __init__(self, network: Any, x: ITensor, op: ReduceOperation, axes: int, keep_dims: bool) -> None:
        super().__init__(network, (x,))
        self.op, self.axes, self.keep_dims = op, axes, keep_dims

    def _rule(self, x: Known) -> tuple[Known, ...]:
        takes("reduce", rules.LAYERS["Reduce"], x)
        rank = len(x.shape)
        require(rank >= 1, f"reduce: takes at least one dim, got {x}")
        require(self.op is not ReduceOperation.NONE, "reduce: NONE is for multi-device networks")
        require(0 < self.axes < 1 << rank, f"reduce: axes mask {self.axes:#b} must name dims of {x}")
        dims = axes_of(self.axes, rank)
        kept = (1 if d in dims else s for d, s in enumerate(x.shape) if self.keep_dims or d not in dims)
        return (Known(tuple(kept), x.dtype),)

    def _run(self, x: Any) -> tuple[Any, ...]:
        return (in_float(self._reduce, x),)

    def _reduce(self, x: Any) -> Any:
        import torch

        dims, op = axes_of(self.axes, x.dim()), self.op
        if op is ReduceOperation.SUM:
            return torch.sum(x, dims, keepdim=self.keep_dims, dtype=x.dtype)
        if op is ReduceOperation.AVG:
            count = torch.tensor(1, dtype=x.dtype)
            for d in dims:
                count = count * x.shape[d]
            total = torch.sum(x, dims, keepdim=self.keep_dims, dtype=x.dtype)
            return total / count if x.is_floating_point() else torch.div(total, count.clamp(1), rounding_mode="trunc")
        if op is ReduceOperation.PROD:
            for d in reversed(dims):
                x = torch.prod(x, d, keepdim=self.keep_dims, dtype=x.dtype)
            return x
        largest = op is ReduceOperation.MAX
        info = torch.finfo(x.dtype) if x.is_floating_point() else torch.iinfo(x.dtype)
        worst = (
            (float("-inf") if largest else float("inf"))
            if x.is_floating_point()
            else (info.min if largest else info.max)
        )
        if x.is_floating_point():
            x = torch.where(x != x, torch.full_like(x, worst), x)
        if any(x.shape[d] == 0 for d in dims):
            shape = [1 if d in dims else s for d, s in enumerate(x.shape) if self.keep_dims or d not in dims]
            return torch.full(shape, worst, dtype=x.dtype)
        return (torch.amax if largest else torch.amin)(x, dims, keepdim=self.keep_dims)


class ITopKLayer(ILayer):
    """The k first elements in order, and their indices. Source: operators documentation, TopK.

    Which of two equal elements comes first is not documented: here, the one with the higher index.
    """

    _TYPE, _KIND = LayerType.TOPK, "TopK"
    op = Parameter(TopKOperation)
    k = Parameter(int)
    axes = Parameter(int)
    indices_type = Parameter(DataType)

    def __init__(self, network: Any, x: ITensor, op: TopKOperation, k: int, axes: int, indices_type: DataType) -> None:
        super().__init__(network, (x,), 2)
        self.op, self.k, self.axes, self.indices_type = op, k, axes, indices_type

    def _rule(self, x: Known) -> tuple[Known, ...]:
        takes("topk", rules.LAYERS["TopK"], x)
        dims = axes_of(self.axes, len(x.shape))
        require(len(dims) == 1, f"topk: axes mask {self.axes:#b} must name exactly one dim of {x}")
        require(dims[0] >= len(x.shape) - 4, f"topk: dim {dims[0]} must be one of the last four of {x}")
        size = x.shape[dims[0]]
        require(0 < self.k <= rules.MAX_TOPK, f"topk: k must be at most {rules.MAX_TOPK}, got {self.k}")
        require(size == -1 or self.k <= size, f"topk: k {self.k} is above the size {size} of {x}")
        require(self.indices_type.name in rules.INTS, f"topk: indices cannot be {self.indices_type.name}")
        shape = tuple(self.k if d == dims[0] else s for d, s in enumerate(x.shape))
        return Known(shape, x.dtype), Known(shape, self.indices_type)

    def _run(self, x: Any) -> tuple[Any, ...]:
        import torch

        (dim,) = axes_of(self.axes, x.dim())
        order = torch.argsort(x.flip(dim), dim=dim, descending=self.op is TopKOperation.MAX, stable=True)
        indices = (x.shape[dim] - 1 - order).narrow(dim, 0, self.k)
        narrow = torch.int32 if self.indices_type is DataType.INT32 else torch.int64
        return x.gather(dim, indices), indices.to(narrow)


class IMatrixMultiplyLayer(ILayer):
    """Products of the last two dims, the others broadcast. 16-bit floats accumulate in float32.

    Source: operators documentation, MatrixMultiply. Mode VECTOR is not simulated.
    """

    _TYPE, _KIND = LayerType.MATRIX_MULTIPLY, "MatrixMultiply"
    op0 = Parameter(MatrixOperation)
    op1 = Parameter(MatrixOperation)

    def __init__(self, network: Any, a: ITensor, op0: MatrixOperation, b: ITensor, op1: MatrixOperation) -> None:
        super().__init__(network, (a, b))
        self.op0, self.op1 = op0, op1

    def _rule(self, a: Known, b: Known) -> tuple[Known, ...]:
        takes("matrix multiply", rules.LAYERS["MatrixMultiply"], a, b)
        shapes = []
        for known, op in ((a, self.op0), (b, self.op1)):
            require(op is not MatrixOperation.VECTOR, "matrix multiply: VECTOR is not simulated")
            require(len(known.shape) >= 2, f"matrix multiply: takes at least 2 dims, got {known}")
            rows, cols = known.shape[-2:]
            shapes.append((cols, rows) if op is MatrixOperation.TRANSPOSE else (rows, cols))
        (m, k0), (k1, n) = shapes
        require(k0 == k1 or -1 in (k0, k1), f"matrix multiply: inner sizes differ, got {k0} and {k1}")
        batch = broadcast("matrix multiply", Known(a.shape[:-2], a.dtype), Known(b.shape[:-2], b.dtype))
        return (Known((*batch, m, n), a.dtype),)

    def _run(self, a: Any, b: Any) -> tuple[Any, ...]:
        import torch

        a = a.transpose(-1, -2) if self.op0 is MatrixOperation.TRANSPOSE else a
        b = b.transpose(-1, -2) if self.op1 is MatrixOperation.TRANSPOSE else b
        return (in_float(torch.matmul, a, b),)


class ISoftMaxLayer(ILayer):
    """Softmax over the one dim of a bit mask. Source: operators documentation, SoftMax.

    What stands beside an infinity is left open: here a number over infinity is 0.
    """

    _TYPE, _KIND = LayerType.SOFTMAX, "SoftMax"
    axes = Parameter(int)

    def __init__(self, network: Any, x: ITensor) -> None:
        super().__init__(network, (x,))
        self.axes = 1 << max(0, len(x._infer().shape) - 3)

    def _rule(self, x: Known) -> tuple[Known, ...]:
        takes("softmax", rules.LAYERS["SoftMax"], x)
        require(
            len(axes_of(self.axes, len(x.shape))) == 1, f"softmax: axes mask {self.axes:#b} must name one dim of {x}"
        )
        return (x,)

    def _run(self, x: Any) -> tuple[Any, ...]:
        import torch

        (dim,) = axes_of(self.axes, x.dim())

        def shares(x: Any) -> Any:
            infinite, numbers = x == torch.inf, x.isnan().any(dim, keepdim=True).logical_not()
            beside = torch.where(infinite, torch.nan, 0.0)
            return torch.where(infinite.any(dim, keepdim=True) & numbers, beside, torch.softmax(x, dim))

        return (in_float(shares, x),)


class INormalizationLayer(ILayer):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the dims of a bit mask.

    Source: NvInfer.h, INormalizationLayer, and the operators documentation, Normalization: scale and bias have the
    sizes of those dims and 1 for the others.
    """

    _TYPE, _KIND = LayerType.NORMALIZATION, "Normalization"
    axes = Parameter(int)
    epsilon = Parameter(float)
    num_groups = Parameter(int)

    def __init__(self, network: Any, x: ITensor, scale: ITensor, bias: ITensor, axes: int) -> None:
        super().__init__(network, (x, scale, bias))
        self.axes, self.epsilon, self.num_groups = axes, 1e-5, 1

    def _rule(self, x: Known, scale: Known, bias: Known) -> tuple[Known, ...]:
        takes("normalization", rules.LAYERS["Normalization"], x)
        require(self.num_groups == 1, "normalization: groups are not simulated")
        axes = axes_of(self.axes, len(x.shape))
        require(bool(axes), f"normalization: axes mask {self.axes:#b} must name dims of {x}")
        shape = tuple(size if d in axes else 1 for d, size in enumerate(x.shape))
        for name, given in (("scale", scale), ("bias", bias)):
            fits = given.dtype == x.dtype and tuple(given.shape) == shape
            require(fits, f"normalization: the {name} of {x} must have the sizes {list(shape)}, got {given}")
        return (x,)

    def _run(self, x: Any, scale: Any, bias: Any) -> tuple[Any, ...]:
        axes = tuple(axes_of(self.axes, x.dim()))

        def run(x: Any, scale: Any, bias: Any) -> Any:
            centered = x - x.mean(axes, keepdim=True)
            return centered / ((centered**2).mean(axes, keepdim=True) + self.epsilon).sqrt() * scale + bias

        return (in_float(run, x, scale, bias),)


class ICumulativeLayer(ILayer):
    """Prefix sum along an axis given as a constant 0-D tensor. Source: ICumulativeLayer; TensorRT 10.5 and later."""

    _TYPE, _KIND = LayerType.CUMULATIVE, "Cumulative"
    op = Parameter(CumulativeOperation)
    exclusive = Parameter(bool)
    reverse = Parameter(bool)

    def __init__(self, network: Any, x: ITensor, axis: ITensor, op: Any, exclusive: bool, reverse: bool) -> None:
        super().__init__(network, (x, axis))
        self.op, self.exclusive, self.reverse = op, exclusive, reverse

    def _rule(self, x: Known, axis: Known) -> tuple[Known, ...]:
        takes("cumulative", rules.LAYERS["Cumulative"], x)
        require(
            axis.folded is not None and not axis.shape, f"cumulative: the axis must be a constant scalar, got {axis}"
        )
        at = int(axis.folded.value) if axis.folded is not None else -1
        require(0 <= at < len(x.shape), f"cumulative: axis {at} out of range for {x}")
        return (x,)

    def _run(self, x: Any, axis: Any) -> tuple[Any, ...]:
        return (in_float(lambda t: self._sum(t, int(axis)), x),)

    def _sum(self, x: Any, dim: int) -> Any:
        import torch

        y = x.flip(dim) if self.reverse else x
        out = torch.cumsum(y, dim, dtype=x.dtype)
        out = out - y if self.exclusive else out
        return out.flip(dim) if self.reverse else out

"""Layers that move or make elements: concatenation, constant, fill, shape, shuffle, slice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torchstone.compiler.runtime.tensorrt import rules
from torchstone.compiler.runtime.tensorrt.simulator.enums import DataType, FillOperation, LayerType, SampleMode
from torchstone.compiler.runtime.tensorrt.simulator.tensor import ILayer, ITensor, Parameter, takes
from torchstone.compiler.runtime.tensorrt.simulator.values import (
    Dims,
    Folded,
    Known,
    Permutation,
    Weights,
    require,
    torch_dtype,
)


def sizes_of(kind: str, known: Known) -> tuple[int, ...]:
    """Return the sizes that a 1-D shape tensor holds, -1 for each that is not known at build time."""
    require(known.dtype in (DataType.INT32, DataType.INT64), f"{kind}: a shape tensor must be INT32/INT64, got {known}")
    require(len(known.shape) == 1 and known.shape[0] >= 0, f"{kind}: a shape tensor must be 1-D, got {known}")
    return (-1,) * known.shape[0] if known.folded is None else tuple(known.folded.value.tolist())


class IShuffleLayer(ILayer):
    """Transpose, reshape, transpose. Source: operators documentation, Shuffle.

    In ``reshape_dims`` -1 infers one size and, while ``zero_is_placeholder``, 0 copies the input's.
    """

    _TYPE, _KIND = LayerType.SHUFFLE, "Shuffle"
    first_transpose = Parameter(Permutation)
    second_transpose = Parameter(Permutation)
    reshape_dims = Parameter(Dims)
    zero_is_placeholder = Parameter(bool)

    def __init__(self, network: Any, x: ITensor) -> None:
        super().__init__(network, (x,))
        self.first_transpose = self.second_transpose = self.reshape_dims = None
        self.zero_is_placeholder = True

    def _permuted(self, shape: Sequence[int], permutation: Permutation | None) -> tuple[int, ...]:
        if permutation is None:
            return tuple(shape)
        require(
            sorted(permutation) == list(range(len(shape))), f"shuffle: {permutation} does not permute {tuple(shape)}"
        )
        return tuple(shape[p] for p in permutation)

    def _rule(self, x: Known, shape: Known | None = None) -> tuple[Known, ...]:
        takes("shuffle", rules.LAYERS["Shuffle"], x)
        sizes = self._permuted(x.shape, self.first_transpose)
        if shape is not None:
            # A -1 in a run-time shape tensor is a size that is known only then, not one to infer.
            target = sizes_of("shuffle", shape)
            sizes = target if -1 in target else self._reshaped(sizes, target)
        elif self.reshape_dims is not None:
            sizes = self._reshaped(sizes, self.reshape_dims)
        return (Known(self._permuted(sizes, self.second_transpose), x.dtype),)

    def _reshaped(self, sizes: tuple[int, ...], target: Sequence[int]) -> tuple[int, ...]:
        out = list(target)
        if self.zero_is_placeholder:
            for i, size in enumerate(out):
                require(size != 0 or i < len(sizes), f"shuffle: no input dim {i} to copy for {tuple(target)}")
                out[i] = sizes[i] if size == 0 else size
        require(list(target).count(-1) <= 1, f"shuffle: at most one size can be inferred, got {tuple(target)}")
        if -1 in sizes:
            return tuple(out)
        if -1 in target:
            rest = math.prod(s for s in out if s != -1)
            require(rest > 0 and math.prod(sizes) % rest == 0, f"shuffle: cannot reshape {sizes} to {tuple(target)}")
            out[out.index(-1)] = math.prod(sizes) // rest
        require(math.prod(sizes) == math.prod(out), f"shuffle: reshape changes volume, {sizes} to {tuple(target)}")
        return tuple(out)

    def _run(self, x: Any, shape: Any = None) -> tuple[Any, ...]:
        if self.first_transpose is not None:
            x = x.permute(*self.first_transpose)
        target = shape.tolist() if shape is not None else self.reshape_dims
        if target is not None:
            x = x.reshape(self._reshaped(tuple(x.shape), target))
        return (x if self.second_transpose is None else x.permute(*self.second_transpose),)


class ISliceLayer(ILayer):
    """Strided copy; a stride may be negative or 0. Source: operators documentation, Slice.

    Inputs 1 to 3 replace start, shape and stride; input 4 is the value of mode FILL.
    """

    _TYPE, _KIND = LayerType.SLICE, "Slice"
    start = Parameter(Dims)
    shape = Parameter(Dims)
    stride = Parameter(Dims)
    mode = Parameter(SampleMode)

    def __init__(self, network: Any, x: ITensor, start: Any, shape: Any, stride: Any) -> None:
        super().__init__(network, (x,))
        self.mode = SampleMode.STRICT_BOUNDS
        self.start, self.shape, self.stride = start, shape, stride

    def _rule(self, x: Known, *rest: Known | None) -> tuple[Known, ...]:
        takes("slice", rules.LAYERS["Slice"], x)
        start, shape, stride, value = (*rest, *(None,) * (4 - len(rest)))
        parts = (("start", start, self.start), ("shape", shape, self.shape), ("stride", stride, self.stride))
        found: dict[str, tuple[int, ...]] = {}
        known = {name for name, tensor, _ in parts if tensor is None or tensor.folded is not None}
        for name, tensor, dims in parts:
            found[name] = dims if tensor is None else sizes_of("slice", tensor)
            require(
                len(found[name]) == len(x.shape), f"slice: {name} {tuple(found[name])} must have {len(x.shape)} sizes"
            )
        if "shape" in known:
            require(all(s >= 0 for s in found["shape"]), f"slice: negative size in {tuple(found['shape'])}")
        if self.mode is SampleMode.FILL:
            require(value is not None, "slice: mode FILL needs the fill value as input 4")
            assert value is not None
            require(
                value.dtype == x.dtype and not value.shape, f"slice: the fill value must be a {x.dtype.name} scalar"
            )
        else:
            require(value is None, f"slice: input 4 is for mode FILL only, not {self.mode.name}")
            require(self.mode is SampleMode.STRICT_BOUNDS, f"slice: mode {self.mode.name} is not simulated")
            if known == {"start", "shape", "stride"}:
                self._in_bounds(x, found["start"], found["shape"], found["stride"])
        return (Known(tuple(found["shape"]), x.dtype),)

    def _in_bounds(self, x: Known, start: Sequence[int], shape: Sequence[int], stride: Sequence[int]) -> None:
        for d, (size, a, n, s) in enumerate(zip(x.shape, start, shape, stride, strict=True)):
            last = a + (n - 1) * s
            inside = n == 0 or size == -1 or (0 <= a < size and 0 <= last < size)
            require(inside, f"slice: out of bounds in dim {d}: start {a}, size {n}, stride {s} of {x}")

    def _run(self, x: Any, *rest: Any) -> tuple[Any, ...]:
        import torch

        parts: list[Any] = [*rest, *[None] * (4 - len(rest))]
        start, shape, stride, value = parts
        start = self.start if start is None else start.tolist()
        shape = self.shape if shape is None else shape.tolist()
        stride = self.stride if stride is None else stride.tolist()
        inside = torch.ones((), dtype=torch.bool)
        for d, (a, n, s) in enumerate(zip(start, shape, stride, strict=True)):
            at = a + s * torch.arange(n)
            ok = (at >= 0) & (at < x.shape[d])
            if self.mode is not SampleMode.FILL and not bool(ok.all()):
                raise RuntimeError(f"{self.name}: slice out of bounds in dim {d}: start {a}, size {n}, stride {s}")
            if self.mode is SampleMode.FILL:
                inside = inside & ok.reshape([-1 if i == d else 1 for i in range(x.dim())])
                if x.shape[d] == 0:
                    x = value.expand([1 if i == d else size for i, size in enumerate(x.shape)])
                at = at.clamp(0, x.shape[d] - 1)
            x = x.index_select(d, at)
        return (x if self.mode is not SampleMode.FILL else torch.where(inside, x, value),)


class IConcatenationLayer(ILayer):
    """Source: operators documentation, Concatenation. The default axis is ``max(0, rank - 3)``."""

    _TYPE, _KIND = LayerType.CONCATENATION, "Concatenation"
    axis = Parameter(int)

    def __init__(self, network: Any, inputs: Sequence[ITensor]) -> None:
        super().__init__(network, inputs)
        self.axis = max(0, len(inputs[0]._infer().shape) - 3)

    def _rule(self, *inputs: Known) -> tuple[Known, ...]:
        takes("concatenation", rules.LAYERS["Concatenation"], *inputs)
        rank = len(inputs[0].shape)
        require(0 <= self.axis < rank, f"concatenation: axis {self.axis} out of range for {inputs[0]}")
        total = 0
        for known in inputs:
            require(len(known.shape) == rank, f"concatenation: ranks differ, got {inputs[0]} and {known}")
            total = -1 if -1 in (total, known.shape[self.axis]) else total + known.shape[self.axis]
        sizes = []
        for d, column in enumerate(zip(*(k.shape for k in inputs), strict=True)):
            fixed = {s for s in column if s != -1}
            require(d == self.axis or len(fixed) <= 1, f"concatenation: sizes differ in dim {d}: {sorted(fixed)}")
            sizes.append(total if d == self.axis else (fixed.pop() if fixed else -1))
        return (Known(tuple(sizes), inputs[0].dtype),)

    def _run(self, *inputs: Any) -> tuple[Any, ...]:
        import torch

        return (torch.cat(inputs, self.axis),)


class IConstantLayer(ILayer):
    """Source: operators documentation, Constant: no BOOL, no UINT8."""

    _TYPE, _KIND = LayerType.CONSTANT, "Constant"
    shape = Parameter(Dims)
    weights = Parameter(lambda w: w)

    def __init__(self, network: Any, shape: Any, weights: Weights) -> None:
        super().__init__(network, ())
        self.shape, self.weights = shape, weights

    def _rule(self) -> tuple[Known, ...]:
        dtype = self.weights.dtype
        require(dtype.name in rules.LAYERS["Constant"], f"constant: does not support {dtype.name}")
        count = math.prod(self.shape)
        require(count == self.weights.size, f"constant: {self.weights.size} weights for shape {tuple(self.shape)}")
        small = count <= 2 * rules.MAX_DIMS and dtype in (DataType.INT32, DataType.INT64)
        return (Known(tuple(self.shape), dtype, Folded(lambda: self.weights.tensor(self.shape)) if small else None),)

    def _run(self) -> tuple[Any, ...]:
        return (self.weights.tensor(self.shape),)


class IFillLayer(ILayer):
    """LINSPACE with alpha and beta as inputs 1 (scalar) and 2 (one a dim). Source: operators documentation, Fill."""

    _TYPE, _KIND = LayerType.FILL, "Fill"
    shape = Parameter(Dims)
    operation = Parameter(FillOperation)
    to_type = Parameter(DataType)

    def __init__(self, network: Any, shape: Any, op: FillOperation, output_type: DataType) -> None:
        super().__init__(network, ())
        self.shape, self.operation, self.to_type = shape, op, output_type

    def _rule(
        self, shape: Known | None = None, alpha: Known | None = None, beta: Known | None = None
    ) -> tuple[Known, ...]:
        require(self.operation is FillOperation.LINSPACE, f"fill: {self.operation.name} is not simulated")
        require(self.to_type.name in rules.FILL["LINSPACE"], f"fill: LINSPACE does not give {self.to_type.name}")
        sizes = tuple(self.shape) if shape is None else sizes_of("fill", shape)
        require(alpha is not None and beta is not None, "fill: alpha and beta as attributes are not simulated")
        assert alpha is not None and beta is not None
        require(
            alpha.dtype == beta.dtype == self.to_type,
            f"fill: alpha {alpha} and beta {beta} must be {self.to_type.name}",
        )
        require(not alpha.shape, f"fill: alpha must be a scalar, got {alpha}")
        require(beta.shape == (len(sizes),), f"fill: beta must have {len(sizes)} elements, got {beta}")
        return (Known(sizes, self.to_type),)

    def _run(self, shape: Any = None, alpha: Any = None, beta: Any = None) -> tuple[Any, ...]:
        import torch

        sizes = list(self.shape) if shape is None else shape.tolist()
        out = alpha.expand(sizes).clone()
        for d, size in enumerate(sizes):
            ramp = torch.arange(size, dtype=torch_dtype(self.to_type)) * beta[d]
            out = out + ramp.reshape([-1 if i == d else 1 for i in range(len(sizes))])
        return (out,)


class IShapeLayer(ILayer):
    """The sizes of a tensor as a 1-D INT64 tensor."""

    _TYPE, _KIND = LayerType.SHAPE, "Shape"

    def _rule(self, x: Known) -> tuple[Known, ...]:
        folded = None if -1 in x.shape else Folded(lambda: _sizes(x.shape))
        return (Known((len(x.shape),), DataType.INT64, folded),)

    def _run(self, x: Any) -> tuple[Any, ...]:
        return (_sizes(tuple(x.shape)),)


def _sizes(shape: tuple[int, ...]) -> Any:
    import torch

    return torch.tensor(shape, dtype=torch.int64)

"""Layers with sliding windows over two or three dims of space: convolution and pooling.

Padding is explicit and sizes round down: mode EXPLICIT_ROUND_DOWN, the default, the only one simulated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torchstone.compiler.runtime.tensorrt import rules
from torchstone.compiler.runtime.tensorrt.simulator.enums import LayerType, PoolingType
from torchstone.compiler.runtime.tensorrt.simulator.layers.elementwise import in_float
from torchstone.compiler.runtime.tensorrt.simulator.tensor import ILayer, ITensor, Parameter, takes
from torchstone.compiler.runtime.tensorrt.simulator.values import Dims, Known, Weights, require


def _space(kind: str, x: Known, window: Sequence[int]) -> int:
    """Return the number of dims of space: NvInfer.h, "Only 2D or 3D convolution is supported", and so for pooling."""
    require(len(window) in (2, 3), f"{kind}: a window over 2 or 3 dims is supported, got {tuple(window)}")
    require(len(x.shape) == len(window) + 2, f"{kind}: {x} must have {len(window) + 2} dims for window {tuple(window)}")
    return len(window)


def _sized(kind: str, space: int, least: int, **parameters: Sequence[int]) -> None:
    for name, values in parameters.items():
        fits = len(values) == space and all(v >= least for v in values)
        require(fits, f"{kind}: {name} {tuple(values)} must have {space} entries of at least {least}")


def _counts(
    kind: str, sizes: Sequence[int], window: Sequence[int], low: Sequence[int], high: Sequence[int],
    stride: Sequence[int], dilation: Sequence[int],
) -> tuple[int, ...]:  # fmt: skip
    """Return how many windows there are: ``floor((low + size + high - reach) / stride) + 1``."""
    counts = []
    for size, length, before, after, step, apart in zip(sizes, window, low, high, stride, dilation, strict=True):
        reach = (length - 1) * apart + 1
        require(
            size == -1 or before + size + after >= reach,
            f"{kind}: a window that reaches over {reach} does not fit into {size} padded by {before} and {after}",
        )
        counts.append(-1 if size == -1 else (before + size + after - reach) // step + 1)
    return tuple(counts)


def _amounts(low: Sequence[int], high: Sequence[int]) -> list[int]:
    """Return padding in the order of ``torch.nn.functional.pad``."""
    return [n for pair in zip(reversed(low), reversed(high), strict=True) for n in pair]


class IConvolutionLayer(ILayer):
    """Correlation of [n, c, *space] with a kernel [o, c / groups, *window].

    Source: NvInfer.h, IConvolutionLayer. Input 1 is the kernel and input 2 the bias: the weights of one that is used
    must be empty. 16-bit floats accumulate in float32.
    """

    _TYPE, _KIND = LayerType.CONVOLUTION, "Convolution"
    num_output_maps = Parameter(int)
    kernel_size_nd = Parameter(Dims)
    kernel = Parameter(lambda w: w)
    bias = Parameter(lambda w: w)
    num_groups = Parameter(int)
    stride_nd = Parameter(Dims)
    dilation_nd = Parameter(Dims)
    pre_padding = Parameter(Dims)
    post_padding = Parameter(Dims)

    def __init__(self, network: Any, x: ITensor, maps: int, window: Any, kernel: Weights, bias: Weights) -> None:
        super().__init__(network, (x,))
        known = x._infer()
        takes("convolution", rules.LAYERS["Convolution"], known)
        self.kernel_size_nd, self.num_output_maps, self.kernel, self.bias = window, maps, kernel, bias
        space = _space("convolution", known, self.kernel_size_nd)
        require(known.shape[1] != -1, f"convolution: the channels must be known at build time, got {known}")
        self.num_groups = 1
        self.stride_nd = self.dilation_nd = (1,) * space
        self.pre_padding = self.post_padding = (0,) * space

    def _rule(self, x: Known, kernel: Known | None = None, bias: Known | None = None) -> tuple[Known, ...]:
        takes("convolution", rules.LAYERS["Convolution"], *(k for k in (x, kernel, bias) if k is not None))
        space = _space("convolution", x, self.kernel_size_nd)
        _sized(
            "convolution", space, 1, kernel_size_nd=self.kernel_size_nd, stride_nd=self.stride_nd,
            dilation_nd=self.dilation_nd,
        )  # fmt: skip
        _sized("convolution", space, 0, pre_padding=self.pre_padding, post_padding=self.post_padding)
        channels, maps, groups = x.shape[1], self.num_output_maps, self.num_groups
        whole = min(channels, maps, groups) > 0 and channels % groups == 0 and maps % groups == 0
        require(whole, f"convolution: {channels} channels to {maps} maps in {groups} groups")
        for name, tensor, weights, shape in (
            ("kernel", kernel, self.kernel, self._kernel_shape(channels)), ("bias", bias, self.bias, (maps,)),
        ):  # fmt: skip
            if tensor is not None:
                require(weights.size == 0, f"convolution: the weights of a {name} that is an input must be empty")
                require(tensor.shape == shape, f"convolution: the {name} must be {shape}, got {tensor}")
                continue
            right = weights.size == math.prod(shape) and weights.dtype == x.dtype
            absent = name == "bias" and weights.size == 0
            require(right or absent, f"convolution: {weights.size} {weights.dtype.name} weights for {name} {shape}")
        counts = _counts(
            "convolution", x.shape[2:], self.kernel_size_nd, self.pre_padding, self.post_padding, self.stride_nd,
            self.dilation_nd,
        )  # fmt: skip
        return (Known((x.shape[0], maps, *counts), x.dtype),)

    def _kernel_shape(self, channels: int) -> tuple[int, ...]:
        return (self.num_output_maps, channels // self.num_groups, *self.kernel_size_nd)

    def _run(self, x: Any, kernel: Any = None, bias: Any = None) -> tuple[Any, ...]:
        import torch

        if kernel is None:
            kernel = self.kernel.tensor(self._kernel_shape(x.shape[1]))
        if bias is None and self.bias.size:
            bias = self.bias.tensor((self.num_output_maps,))

        def run(x: Any, kernel: Any, *bias: Any) -> Any:
            padded = torch.nn.functional.pad(x, _amounts(self.pre_padding, self.post_padding))
            space = len(self.kernel_size_nd)
            return torch.convolution(
                padded, kernel, bias[0] if bias else None, self.stride_nd, (0,) * space, self.dilation_nd, False,
                (0,) * space, self.num_groups,
            )  # fmt: skip

        return (in_float(run, x, kernel, *(() if bias is None else (bias,))),)


class IPoolingLayer(ILayer):
    """The largest element, or the average, of each window of [n, c, *space].

    Source: NvInfer.h, IPoolingLayer: padding is -inf for MAX, and 0 for AVERAGE, which counts it or not. Undocumented,
    and taken at its worst: MAX drops a NaN, and the average of a window of nothing but padding is 0.
    """

    _TYPE, _KIND = LayerType.POOLING, "Pooling"
    _pooling = Parameter(PoolingType)  # in the bindings it is ``type``, which hides that of the layer
    window_size_nd = Parameter(Dims)
    stride_nd = Parameter(Dims)
    pre_padding = Parameter(Dims)
    post_padding = Parameter(Dims)
    average_count_excludes_padding = Parameter(bool)

    def __init__(self, network: Any, x: ITensor, kind: PoolingType, window: Any) -> None:
        super().__init__(network, (x,))
        self._pooling = kind
        takes("pooling", rules.LAYERS["Pooling"], x._infer())
        self.window_size_nd = window
        space = _space("pooling", x._infer(), self.window_size_nd)
        self.stride_nd = (1,) * space
        self.pre_padding = self.post_padding = (0,) * space
        self.average_count_excludes_padding = True

    def _rule(self, x: Known) -> tuple[Known, ...]:
        takes("pooling", rules.LAYERS["Pooling"], x)
        known = self._pooling in (PoolingType.MAX, PoolingType.AVERAGE)
        require(known, f"pooling: {self._pooling.name} is not simulated")
        space = _space("pooling", x, self.window_size_nd)
        _sized("pooling", space, 1, window_size_nd=self.window_size_nd, stride_nd=self.stride_nd)
        _sized("pooling", space, 0, pre_padding=self.pre_padding, post_padding=self.post_padding)
        counts = _counts(
            "pooling", x.shape[2:], self.window_size_nd, self.pre_padding, self.post_padding, self.stride_nd,
            (1,) * space,
        )  # fmt: skip
        return (Known((*x.shape[:2], *counts), x.dtype),)

    def _windows(self, x: Any, value: float) -> Any:
        """[n, c, *space] -> [n, c, *windows, elements], with ``value`` for padding."""
        import torch

        x = torch.nn.functional.pad(x, _amounts(self.pre_padding, self.post_padding), value=value)
        for d, (size, step) in enumerate(zip(self.window_size_nd, self.stride_nd, strict=True), 2):
            x = x.unfold(d, size, step)
        return x.flatten(2 + len(self.window_size_nd))

    def _run(self, x: Any) -> tuple[Any, ...]:
        import torch

        if self._pooling is PoolingType.MAX:
            return (self._windows(torch.where(x != x, -torch.inf, x), -torch.inf).amax(-1),)

        def average(x: Any) -> Any:
            counted = self._windows(torch.ones_like(x), 0 if self.average_count_excludes_padding else 1).sum(-1)
            return self._windows(x, 0).sum(-1) / counted.clamp(1)

        return (in_float(average, x),)

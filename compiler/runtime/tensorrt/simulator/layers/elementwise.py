"""Layers that map elements: activation, cast, elementwise, identity, scale, select, unary.

Where TensorRT documents no behaviour, the simulator takes the one least convenient to PyTorch semantics, so that a
lowering that relies on it is caught: MAX and MIN drop a NaN, integer division by zero gives -1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torchstone.compiler.runtime.tensorrt import rules
from torchstone.compiler.runtime.tensorrt.simulator.enums import (
    ActivationType,
    DataType,
    ElementWiseOperation,
    LayerType,
    ScaleMode,
    UnaryOperation,
)
from torchstone.compiler.runtime.tensorrt.simulator.tensor import ILayer, ITensor, Parameter, broadcast, takes
from torchstone.compiler.runtime.tensorrt.simulator.values import Known, Weights, require, torch_dtype


def in_float(fn: Callable[..., Any], *tensors: Any) -> Any:
    """Apply ``fn``, 16-bit floats in float32 with the result rounded once."""
    import torch

    half = (torch.float16, torch.bfloat16)
    wide = [t.float() if t.dtype in half else t for t in tensors]
    out = fn(*wide)
    return out.to(tensors[0].dtype) if tensors[0].dtype in half and out.dtype == torch.float32 else out


def _int_divide(a: Any, b: Any, rounding: str) -> Any:
    import torch

    safe = torch.div(a, torch.where(b == 0, torch.ones_like(b), b), rounding_mode=rounding)
    return torch.where(b == 0, torch.full_like(safe, -1), safe)


def _div(a: Any, b: Any) -> Any:
    return a / b if a.is_floating_point() else _int_divide(a, b, "trunc")


def _floor_div(a: Any, b: Any) -> Any:
    return (a / b).floor() if a.is_floating_point() else _int_divide(a, b, "floor")


def _binary(op: ElementWiseOperation) -> Callable[[Any, Any], Any]:
    import torch

    e = ElementWiseOperation
    return {
        e.SUM: torch.add, e.PROD: torch.mul, e.SUB: torch.sub, e.DIV: _div, e.POW: torch.pow, e.FLOOR_DIV: _floor_div,
        e.MAX: torch.fmax, e.MIN: torch.fmin,
        e.AND: torch.logical_and, e.OR: torch.logical_or, e.XOR: torch.logical_xor,
        e.EQUAL: torch.eq, e.GREATER: torch.gt, e.LESS: torch.lt,
    }[op]  # fmt: skip


class IElementWiseLayer(ILayer):
    """Binary operation with broadcasting between inputs of one rank. Source: operators documentation, ElementWise."""

    _TYPE, _KIND = LayerType.ELEMENTWISE, "ElementWise"
    op = Parameter(ElementWiseOperation)

    def __init__(self, network: Any, a: ITensor, b: ITensor, op: ElementWiseOperation) -> None:
        super().__init__(network, (a, b))
        self.op = op

    def _rule(self, a: Known, b: Known) -> tuple[Known, ...]:
        name = self.op.name
        takes(f"elementwise {name}", rules.ELEMENTWISE[name], a, b)
        dtype = DataType.BOOL if name in rules.COMPARISONS else a.dtype
        return (Known(broadcast(f"elementwise {name}", a, b), dtype),)

    def _run(self, a: Any, b: Any) -> tuple[Any, ...]:
        return (in_float(_binary(self.op), a, b),)


def _sign(x: Any) -> Any:
    import torch

    return torch.where(x > 0, torch.ones_like(x), torch.where(x < 0, -torch.ones_like(x), torch.zeros_like(x)))


def _unary(op: UnaryOperation) -> Callable[[Any], Any]:
    import torch

    special = {"RECIP": torch.reciprocal, "NOT": torch.logical_not, "SIGN": _sign, "ERF": torch.special.erf}
    return special.get(op.name) or getattr(torch, op.name.lower())


class IUnaryLayer(ILayer):
    """Source: operators documentation, Unary."""

    _TYPE, _KIND = LayerType.UNARY, "Unary"
    op = Parameter(UnaryOperation)

    def __init__(self, network: Any, x: ITensor, op: UnaryOperation) -> None:
        super().__init__(network, (x,))
        self.op = op

    def _rule(self, x: Known) -> tuple[Known, ...]:
        takes(f"unary {self.op.name}", rules.UNARY[self.op.name], x)
        tests = (UnaryOperation.ISINF, UnaryOperation.ISNAN)
        return (Known(x.shape, DataType.BOOL if self.op in tests else x.dtype),)

    def _run(self, x: Any) -> tuple[Any, ...]:
        return (in_float(_unary(self.op), x),)


def _activation(kind: ActivationType) -> Callable[[Any], Any] | None:
    import torch

    def by_erf(x: Any) -> Any:
        return 0.5 * x * (1 + torch.erf(x * math.sqrt(0.5)))

    def by_tanh(x: Any) -> Any:
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (0.044715 * x**3 + x)))

    a = ActivationType
    known = {a.RELU: torch.relu, a.SIGMOID: torch.sigmoid, a.TANH: torch.tanh, a.GELU_ERF: by_erf, a.GELU_TANH: by_tanh}
    return known.get(kind)


class IActivationLayer(ILayer):
    """RELU, SIGMOID, TANH, GELU_ERF and GELU_TANH. Source: operators documentation, Activation."""

    _TYPE, _KIND = LayerType.ACTIVATION, "Activation"
    _activation = Parameter(ActivationType)  # in the bindings it is ``type``, which hides that of the layer

    def __init__(self, network: Any, x: ITensor, kind: ActivationType) -> None:
        super().__init__(network, (x,))
        self._activation = kind

    def _rule(self, x: Known) -> tuple[Known, ...]:
        takes("activation", rules.LAYERS["Activation"], x)
        require(_activation(self._activation) is not None, f"activation {self._activation.name} is not simulated")
        return (x,)

    def _run(self, x: Any) -> tuple[Any, ...]:
        return (in_float(_activation(self._activation), x),)  # type: ignore[arg-type]


class ICastLayer(ILayer):
    """Conversion. Source: operators documentation, Cast. Float to integer truncates toward zero."""

    _TYPE, _KIND = LayerType.CAST, "Cast"
    to_type = Parameter(DataType)

    def __init__(self, network: Any, x: ITensor, to_type: DataType) -> None:
        super().__init__(network, (x,))
        self.to_type = to_type

    def _rule(self, x: Known) -> tuple[Known, ...]:
        for dtype in (x.dtype, self.to_type):
            require(dtype.name in rules.LAYERS["Cast"], f"cast: {dtype.name} is not simulated")
        return (Known(x.shape, self.to_type),)

    def _run(self, x: Any) -> tuple[Any, ...]:
        return (x.to(torch_dtype(self.to_type)),)


class IIdentityLayer(ILayer):
    _TYPE, _KIND = LayerType.IDENTITY, "Identity"

    def _rule(self, x: Known) -> tuple[Known, ...]:
        return (x,)

    def _run(self, x: Any) -> tuple[Any, ...]:
        return (x,)


class ISelectLayer(ILayer):
    """Source: operators documentation, Select."""

    _TYPE, _KIND = LayerType.SELECT, "Select"

    def _rule(self, condition: Known, a: Known, b: Known) -> tuple[Known, ...]:
        require(condition.dtype is DataType.BOOL, f"select: the condition must be BOOL, got {condition}")
        takes("select", rules.LAYERS["Select"], a, b)
        return (Known(broadcast("select", condition, a, b), a.dtype),)

    def _run(self, condition: Any, a: Any, b: Any) -> tuple[Any, ...]:
        import torch

        return (torch.where(condition, a, b),)


class IScaleLayer(ILayer):
    """x * scale + shift, to a power, with numbers for the whole tensor or one for each channel.

    Source: NvInfer.h, IScaleLayer and addScaleNd: the input has at least 4 dims; weights that are empty do nothing.
    """

    _TYPE, _KIND = LayerType.SCALE, "Scale"
    mode = Parameter(ScaleMode)
    channel_axis = Parameter(int)
    shift = Parameter(lambda w: w)
    scale = Parameter(lambda w: w)
    power = Parameter(lambda w: w)

    def __init__(
        self, network: Any, x: ITensor, mode: ScaleMode, shift: Weights, scale: Weights, power: Weights,
        channel_axis: int,
    ) -> None:  # fmt: skip
        super().__init__(network, (x,))
        self.mode, self.channel_axis = mode, channel_axis
        self.shift, self.scale, self.power = shift, scale, power

    def _rule(self, x: Known) -> tuple[Known, ...]:
        takes("scale", rules.LAYERS["Scale"], x)
        require(len(x.shape) >= 4, f"scale: {x} must have at least 4 dims")
        require(self.mode is not ScaleMode.ELEMENTWISE, "scale: ELEMENTWISE is not simulated")
        require(self.channel_axis in (0, 1), f"scale: the channels must be dim 0 or 1, got {self.channel_axis}")
        require(not self.power.size, "scale: a power is not simulated")
        count = x.shape[self.channel_axis] if self.mode is ScaleMode.CHANNEL else 1
        for name, weights in (("shift", self.shift), ("scale", self.scale)):
            if weights.size:
                fits = weights.size == count and weights.dtype == x.dtype
                require(fits, f"scale: {weights.size} {weights.dtype.name} weights for the {name} of {count} channels")
        return (x,)

    def _run(self, x: Any) -> tuple[Any, ...]:
        shape = [-1 if d == self.channel_axis and self.mode is ScaleMode.CHANNEL else 1 for d in range(x.dim())]

        def run(x: Any) -> Any:
            for weights, op in ((self.scale, "mul"), (self.shift, "add")):
                if weights.size:
                    x = getattr(x, op)(weights.tensor((weights.size,)).to(x.dtype).reshape(shape))
            return x

        return (in_float(run, x),)

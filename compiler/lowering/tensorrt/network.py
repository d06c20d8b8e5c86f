"""What the lowering adds to ``INetworkDefinition``: errors instead of None, named layers, and sizes known at run time.

Everything here speaks the real ``tensorrt`` API, what versions 10.3 and 11 have in common. Tensors are ``ITensor``s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from torchstone.compiler.diagnostics import TorchstoneError, blaming
from torchstone.compiler.ir import Operation
from torchstone.compiler.ir.dims import Dim
from torchstone.compiler.lowering.tensorrt.sizes import Sizes

_NUMPY = {"FLOAT": np.float32, "HALF": np.float16, "INT32": np.int32, "INT64": np.int64}


class Network:
    """Builds one network; ``where`` is put into the names of the layers and into errors."""

    def __init__(self, trt: Any, definition: Any, log: Any) -> None:
        self.trt, self.definition, self.log = trt, definition, log
        self.where = ""
        self.keep: list[Any] = []
        self.origins: dict[str, Operation] = {}
        self._op: Operation | None = None
        self._numbers: dict[tuple[str, tuple[int, ...], str], Any] = {}
        self.sizes = Sizes(self)

    @contextmanager
    def building(self, op: Operation) -> Iterator[None]:
        """Name layers after ``op``, and blame it for errors."""
        before = self.where, self._op
        self.where, self._op = op.name, op
        with blaming(op):
            yield
        self.where, self._op = before

    def added(self, layer: Any, what: str = "") -> Any:
        """Name a new layer and return its output; TorchstoneError with TensorRT's words when it is None or invalid."""
        if layer is None:
            raise TorchstoneError(f"{self.where}: TensorRT refuses the layer: {self.log.take()}", stage="lower")
        number = self.definition.num_layers - 1
        layer.name = f"{number}: {self.where} {what}".rstrip()
        if self._op is not None:
            self.origins[layer.name] = self._op
        tensor = layer.get_output(0)
        tensor.name = f"t{number}"
        try:
            len(tensor.shape)
        except ValueError:  # what the bindings make of an invalid layer that was accepted
            raise TorchstoneError(f"{self.where}: TensorRT refuses: {self.log.take()}", stage="lower") from None
        return tensor

    def type(self, name: str) -> Any:
        return getattr(self.trt.DataType, name)

    def rank(self, x: Any) -> int:
        return len(x.shape)

    # Elementwise

    def unary(self, name: str, x: Any) -> Any:
        """Apply a UnaryOperation."""
        return self.added(self.definition.add_unary(x, getattr(self.trt.UnaryOperation, name)), name)

    def binary(self, name: str, a: Any, b: Any) -> Any:
        """Apply an ElementWiseOperation to tensors of one rank."""
        return self.added(self.definition.add_elementwise(a, b, getattr(self.trt.ElementWiseOperation, name)), name)

    def activation(self, name: str, x: Any) -> Any:
        return self.added(self.definition.add_activation(x, getattr(self.trt.ActivationType, name)), name)

    def select(self, condition: Any, a: Any, b: Any) -> Any:
        return self.added(self.definition.add_select(condition, a, b))

    def cast(self, x: Any, name: str) -> Any:
        return x if x.dtype.name == name else self.added(self.definition.add_cast(x, self.type(name)), name)

    # Constants

    def constant(self, values: Any, shape: Sequence[Any], name: str) -> Any:
        """A constant of any type, of a tuple of values or of one number, which is the same tensor each time.

        BF16 and BOOL, which IConstantLayer lacks or numpy cannot hold, are cast.
        """
        key = (repr(values), tuple(shape), name)  # numbers that are equal differ: 0.0 and -0.0, True and 1
        if key in self._numbers:
            return self._numbers[key]
        held = {"BF16": "FLOAT", "BOOL": "INT32"}.get(name, name)
        exact = np.float32 if held in ("FLOAT", "HALF") else np.int64
        if isinstance(values, tuple):
            array = np.array(values, dtype=exact).reshape(tuple(shape))
        else:
            array = np.full(tuple(shape), values, dtype=exact)
        array = np.ascontiguousarray(array.astype(_NUMPY[held]))
        self.keep.append(array)
        weights = self.trt.Weights(array)
        what = "" if isinstance(values, tuple) else str(values)
        tensor = self.added(self.definition.add_constant(self.trt.Dims(shape), weights), what)
        tensor = self.cast(tensor, name)
        if not isinstance(values, tuple):
            self._numbers[key] = tensor
        return tensor

    def like(self, x: Any, value: Any) -> Any:
        """One ``value`` of the type of ``x`` that broadcasts against it."""
        return self.constant(value, (1,) * self.rank(x), x.dtype.name)

    # Movement

    def shuffle(
        self, x: Any, have: Sequence[Dim], first: Sequence[int] | None, want: Sequence[Dim] | None,
        second: Sequence[int] | None,
    ) -> Any:  # fmt: skip
        """Transpose, reshape and transpose; None does nothing. ``have``: the sizes of ``x`` as the graph has them."""
        permuted = have if first is None else [have[p] for p in first]
        layer = self.definition.add_shuffle(x)
        if layer is not None:
            if first is not None:
                layer.first_transpose = self.trt.Permutation(first)
            if want is not None:
                self._reshape(layer, permuted, want)
            if second is not None:
                layer.second_transpose = self.trt.Permutation(second)
        steps = (None if first is None else _text(first), None if want is None else f"to {_text(want)}")
        return self.added(layer, " ".join(s for s in (*steps, None if second is None else _text(second)) if s))

    def _reshape(self, layer: Any, have: Sequence[Dim], want: Sequence[Dim]) -> None:
        static = _placed(have, want)
        # Else a 0 means a size of zero, never a size to copy.
        layer.zero_is_placeholder = static is not None and 0 in static and 0 not in want
        if static is not None:
            layer.reshape_dims = self.trt.Dims(static)
        else:
            layer.set_input(1, self.sizes.vector(want))

    def reshape(self, x: Any, have: Sequence[Dim], want: Sequence[Dim]) -> Any:
        """Reshape from the sizes of ``x``, as the graph has them, to others of the same number of elements."""
        return self.shuffle(x, have, None, want, None)

    def told(self, x: Any, shape: Sequence[Dim]) -> Any:
        """Return ``x`` with all sizes that the graph knows: TensorRT may not have seen them through a shape tensor."""
        hidden = any(isinstance(want, int) and got == -1 for want, got in zip(shape, x.shape, strict=True))
        return self.reshape(x, shape, shape) if hidden else x

    def slice(self, x: Any, start: Sequence[Dim], shape: Sequence[Dim], stride: Sequence[int], fill: Any = None) -> Any:
        """A strided copy; stride 0 repeats. With ``fill``, a 0-d tensor, places outside of ``x`` take its value."""
        dynamic = [(i, v) for i, v in ((1, self.sizes.vector(start)), (2, self.sizes.vector(shape))) if v is not None]
        static = [[s if isinstance(s, int) else 0 for s in sizes] for sizes in (start, shape, stride)]
        layer = self.definition.add_slice(x, *(self.trt.Dims(s) for s in static))
        if layer is not None:
            for index, sizes in dynamic:
                layer.set_input(index, sizes)
            if fill is not None:
                layer.mode = self.trt.SampleMode.FILL
                layer.set_input(4, fill)
        return self.added(layer, f"start {_text(start)} size {_text(shape)} stride {_text(stride)}")

    def expand(self, x: Any, have: Sequence[Dim], want: Sequence[Dim]) -> Any:
        """Repeat the dims of size 1 in ``have``, the sizes of ``x``, that are not 1 in ``want``."""
        stride = [0 if old == 1 and new != 1 else 1 for old, new in zip(have, want, strict=True)]
        return self.slice(x, (0,) * len(stride), want, stride) if 0 in stride else x

    def concat(self, tensors: Sequence[Any], axis: int) -> Any:
        layer = self.definition.add_concatenation(list(tensors))
        if layer is not None:
            layer.axis = axis
        return self.added(layer, f"axis {axis}")

    def gather(self, x: Any, indices: Any) -> Any:
        """LayerRows of x, by indices in range."""
        return self.added(self.definition.add_gather(x, indices, 0))

    def iota(self, size: Dim, name: str) -> Any:
        """``[0, 1, …]`` of a type LINSPACE gives."""
        sizes, static = self.sizes.vector((size,)), size if isinstance(size, int) else 0
        op = self.trt.FillOperation.LINSPACE
        start, step = self.constant(0, (), name), self.constant(1, (1,), name)
        layer = self.definition.add_fill(self.trt.Dims((static,)), op, self.type(name))
        if layer is not None:
            if sizes is not None:
                layer.set_input(0, sizes)
            layer.set_input(1, start)
            layer.set_input(2, step)
        return self.added(layer)

    def weights(self, tensor: Any, name: str) -> Any:
        """Return Weights of a tensor of torch, kept alive; ``name`` is FLOAT, HALF, INT32 or INT64."""
        array = np.ascontiguousarray(tensor.detach().numpy().astype(_NUMPY[name]))
        self.keep.append(array)
        return self.trt.Weights(array)

    def parameter(self, tensor: Any, name: str) -> Any:
        """A constant with the elements of a tensor of torch. BF16 and BOOL are cast, as in ``constant``."""
        held = {"BF16": "FLOAT", "BOOL": "INT32"}.get(name, name)
        tensor = tensor.float() if name == "BF16" else tensor
        weights = self.weights(tensor, held)
        return self.cast(self.added(self.definition.add_constant(self.trt.Dims(tensor.shape), weights)), name)

    def scale(self, x: Any, scale: Any, shift: Any) -> Any:
        """x * scale + shift with a number of each, tensors of torch, for each element of dim 1."""
        scaled, shifted = (self.weights(v, x.dtype.name) for v in (scale, shift))
        mode = self.trt.ScaleMode.CHANNEL
        nothing = self.trt.Weights(x.dtype)
        layer = self.definition.add_scale_nd(x, mode, shifted, scaled, nothing, channel_axis=1)
        return self.added(layer)

    # Sliding windows

    def convolution(self, x: Any, kernel: Any, bias: Any, groups: int, window: Sequence[int], **parameters: Any) -> Any:
        """Correlate with a kernel, and a bias or None, that are tensors; ``parameters`` as of ``windowed``."""
        maps, empty = kernel.shape[0], self.trt.Weights(x.dtype)
        layer = self.definition.add_convolution_nd(x, maps, self.trt.Dims(window), empty, empty)
        if layer is not None:
            layer.num_groups = groups
            layer.set_input(1, kernel)
            if bias is not None:
                layer.set_input(2, bias)
        return self._windowed(layer, "", window, **parameters)

    def pooling(self, name: str, x: Any, window: Sequence[int], **parameters: Any) -> Any:
        """Apply a PoolingType to each window; an average does not count padding."""
        layer = self.definition.add_pooling_nd(x, getattr(self.trt.PoolingType, name), self.trt.Dims(window))
        if layer is not None:
            layer.average_count_excludes_padding = True
        return self._windowed(layer, name, window, **parameters)

    def _windowed(
        self, layer: Any, what: str, window: Sequence[int], stride: Sequence[int], low: Sequence[int],
        high: Sequence[int], dilation: Sequence[int] | None = None,
    ) -> Any:  # fmt: skip
        if layer is not None:
            layer.stride_nd = self.trt.Dims(stride)
            layer.pre_padding, layer.post_padding = self.trt.Dims(low), self.trt.Dims(high)
            if dilation is not None:
                layer.dilation_nd = self.trt.Dims(dilation)
        text = f"window {_text(window)} stride {_text(stride)} padding {_text(low)} {_text(high)}"
        return self.added(layer, f"{what} {text}".lstrip())

    # Reduction and products

    def reduce(self, name: str, x: Any, dims: Sequence[int], keep: bool = False) -> Any:
        op = getattr(self.trt.ReduceOperation, name)
        return self.added(
            self.definition.add_reduce(x, op, sum(1 << d for d in dims), keep), f"{name} over {list(dims)}"
        )

    def matmul(self, a: Any, b: Any, turned: Sequence[bool] = (False, False)) -> Any:
        """Multiply matrices, the last two dims; those that are ``turned`` are transposed first."""
        ops = [self.trt.MatrixOperation.TRANSPOSE if turn else self.trt.MatrixOperation.NONE for turn in turned]
        layer = self.definition.add_matrix_multiply(a, ops[0], b, ops[1])
        return self.added(layer, f"{ops[0].name} {ops[1].name}" if any(turned) else "")


def _placed(have: Sequence[Dim], want: Sequence[Dim]) -> list[int] | None:
    """Return ``want`` as attributes of a shuffle: 0 copies a size from its place, -1 is inferred. None: it cannot be.

    -1 has no meaning where other sizes are zero, so a size known at run time does not stand beside it.
    """
    unknown = [d for d, size in enumerate(want) if not isinstance(size, int)]
    if unknown and 0 in want:
        return None
    if all(d < len(have) and have[d] == want[d] for d in unknown):
        filler = 0
    elif len(unknown) == 1:
        filler = -1
    else:
        return None
    return [size if isinstance(size, int) else filler for size in want]


def _text(sizes: Sequence[Dim]) -> str:
    return f"[{', '.join(map(str, sizes))}]"

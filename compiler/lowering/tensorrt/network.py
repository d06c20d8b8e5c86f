"""What the lowering adds to ``INetworkDefinition``: errors instead of None, named layers, and sizes known at run time.

Everything here speaks the real ``tensorrt`` API, what versions 10.3 and 11 have in common. Tensors are ``ITensor``s.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from torchstone.compiler.diagnostics import TorchstoneError, blaming
from torchstone.compiler.ir import Operation
from torchstone.compiler.ir.dims import Dim
from torchstone.compiler.lowering.tensorrt.sizes import Sizes
from torchstone.compiler.runtime.tensorrt.transcript import Transcript

_NUMPY = {"FLOAT": np.float32, "HALF": np.float16, "INT32": np.int32, "INT64": np.int64}


class Network:
    """Builds one network; ``where`` is put into the names of the layers and into errors.

    ``transcript`` has every call that adds to the network.
    """

    def __init__(self, trt: Any, definition: Any, log: Any) -> None:
        self.trt, self.definition, self.log = trt, definition, log
        self.where = ""
        self.transcript = Transcript(trt)
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

    def input(self, name: str, dtype: str, shape: Sequence[Dim]) -> Any:
        """Add an input; sizes that are symbols are known at run time, and named after these. None: it is refused."""
        static = [d if isinstance(d, int) else -1 for d in shape]
        tensor = self.definition.add_input(name, self.type(dtype), self.trt.Dims(static))
        names = {d: str(size) for d, size in enumerate(shape) if str(size).isidentifier()}
        self.transcript.add("input", name, self.type(dtype), static, names)
        if tensor is not None:
            for d, symbol in names.items():
                tensor.set_dimension_name(d, symbol)
            self.sizes.bind(tensor, shape)
        return tensor

    def output(self, tensor: Any, name: str) -> None:
        """Name a tensor and mark it as an output; an input, and what is an output already, through an identity."""
        if tensor.is_network_input or tensor.is_network_output:
            tensor = self.add("identity", tensor)
        self.transcript.add("output", tensor, name)
        tensor.name = name
        self.definition.mark_output(tensor)

    def add(
        self, kind: str, *given: Any, what: str = "", inputs: Mapping[int, Any] | None = None, **attributes: Any
    ) -> Any:
        """Add a layer by ``add_<kind>(*given)``, set its attributes and further inputs, and return its output.

        Sizes are sequences of ints and weights arrays of numpy, which stay alive. ``what`` is put into the layer's
        name. TorchstoneError, with TensorRT's words, when the layer is refused or invalid.
        """
        number = self.definition.num_layers
        called = f"{number}: {self.where} {what}".rstrip()
        self.transcript.add(kind, *given, inputs or {}, attributes, called)
        layer = getattr(self.definition, f"add_{kind}")(*map(self._native, given))
        if layer is None:
            raise TorchstoneError(f"{self.where}: TensorRT refuses the layer: {self.log.take()}", stage="lower")
        for name, value in attributes.items():
            permutes = name in ("first_transpose", "second_transpose")
            setattr(layer, name, self.trt.Permutation(value) if permutes else self._native(value))
        for index, further in (inputs or {}).items():
            layer.set_input(index, further)
        layer.name = called
        if self._op is not None:
            self.origins[called] = self._op
        tensor = layer.get_output(0)
        tensor.name = f"t{number}"
        try:
            len(tensor.shape)
        except ValueError:  # what the bindings make of an invalid layer that was accepted
            raise TorchstoneError(f"{self.where}: TensorRT refuses: {self.log.take()}", stage="lower") from None
        return tensor

    def _native(self, value: Any) -> Any:
        """Return sizes as Dims and arrays as Weights."""
        if isinstance(value, np.ndarray):
            return self.trt.Weights(value)
        sizes = isinstance(value, list | tuple) and all(isinstance(size, int) for size in value)
        return self.trt.Dims(value) if sizes else value

    def type(self, name: str) -> Any:
        return getattr(self.trt.DataType, name)

    def rank(self, x: Any) -> int:
        return len(x.shape)

    # Elementwise

    def unary(self, name: str, x: Any) -> Any:
        """Apply a UnaryOperation."""
        return self.add("unary", x, getattr(self.trt.UnaryOperation, name), what=name)

    def binary(self, name: str, a: Any, b: Any) -> Any:
        """Apply an ElementWiseOperation to tensors of one rank."""
        return self.add("elementwise", a, b, getattr(self.trt.ElementWiseOperation, name), what=name)

    def activation(self, name: str, x: Any) -> Any:
        return self.add("activation", x, getattr(self.trt.ActivationType, name), what=name)

    def select(self, condition: Any, a: Any, b: Any) -> Any:
        return self.add("select", condition, a, b)

    def cast(self, x: Any, name: str) -> Any:
        return x if x.dtype.name == name else self.add("cast", x, self.type(name), what=name)

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
        what = "" if isinstance(values, tuple) else str(values)
        tensor = self.add("constant", tuple(shape), array, what=what)
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
        attributes: dict[str, Any] = {"first_transpose": first, "second_transpose": second}
        inputs = {}
        if want is not None:
            static = _placed(permuted, want)
            # Else a 0 means a size of zero, never a size to copy.
            attributes["zero_is_placeholder"] = static is not None and 0 in static and 0 not in want
            attributes["reshape_dims"] = static
            if static is None:
                inputs[1] = self.sizes.vector(want)
        steps = (None if first is None else _text(first), None if want is None else f"to {_text(want)}")
        what = " ".join(s for s in (*steps, None if second is None else _text(second)) if s)
        return self.add(
            "shuffle", x, what=what, inputs=inputs, **{n: v for n, v in attributes.items() if v is not None}
        )

    def reshape(self, x: Any, have: Sequence[Dim], want: Sequence[Dim]) -> Any:
        """Reshape from the sizes of ``x``, as the graph has them, to others of the same number of elements."""
        return self.shuffle(x, have, None, want, None)

    def told(self, x: Any, shape: Sequence[Dim]) -> Any:
        """Return ``x`` with all sizes that the graph knows: TensorRT may not have seen them through a shape tensor."""
        hidden = any(isinstance(want, int) and got == -1 for want, got in zip(shape, x.shape, strict=True))
        return self.reshape(x, shape, shape) if hidden else x

    def slice(self, x: Any, start: Sequence[Dim], shape: Sequence[Dim], stride: Sequence[int], fill: Any = None) -> Any:
        """A strided copy; stride 0 repeats. With ``fill``, a 0-d tensor, places outside of ``x`` take its value."""
        inputs = {i: v for i, v in ((1, self.sizes.vector(start)), (2, self.sizes.vector(shape))) if v is not None}
        static = [[s if isinstance(s, int) else 0 for s in sizes] for sizes in (start, shape, stride)]
        attributes = {}
        if fill is not None:
            attributes["mode"], inputs[4] = self.trt.SampleMode.FILL, fill
        what = f"start {_text(start)} size {_text(shape)} stride {_text(stride)}"
        return self.add("slice", x, *static, what=what, inputs=inputs, **attributes)

    def expand(self, x: Any, have: Sequence[Dim], want: Sequence[Dim]) -> Any:
        """Repeat the dims of size 1 in ``have``, the sizes of ``x``, that are not 1 in ``want``."""
        stride = [0 if old == 1 and new != 1 else 1 for old, new in zip(have, want, strict=True)]
        return self.slice(x, (0,) * len(stride), want, stride) if 0 in stride else x

    def concat(self, tensors: Sequence[Any], axis: int) -> Any:
        return self.add("concatenation", list(tensors), what=f"axis {axis}", axis=axis)

    def gather(self, x: Any, indices: Any) -> Any:
        """LayerRows of x, by indices in range."""
        return self.add("gather", x, indices, 0)

    def iota(self, size: Dim, name: str) -> Any:
        """``[0, 1, …]`` of a type LINSPACE gives."""
        sizes, static = self.sizes.vector((size,)), size if isinstance(size, int) else 0
        op = self.trt.FillOperation.LINSPACE
        start, step = self.constant(0, (), name), self.constant(1, (1,), name)
        inputs = {1: start, 2: step} if sizes is None else {0: sizes, 1: start, 2: step}
        return self.add("fill", (static,), op, self.type(name), inputs=inputs)

    def weights(self, tensor: Any, name: str) -> Any:
        """Return a copy of a tensor of torch as an array; ``name`` is FLOAT, HALF, INT32 or INT64."""
        return np.ascontiguousarray(tensor.detach().numpy().astype(_NUMPY[name]))

    def parameter(self, tensor: Any, name: str) -> Any:
        """A constant with the elements of a tensor of torch. BF16 and BOOL are cast, as in ``constant``."""
        held = {"BF16": "FLOAT", "BOOL": "INT32"}.get(name, name)
        tensor = tensor.float() if name == "BF16" else tensor
        return self.cast(self.add("constant", tuple(tensor.shape), self.weights(tensor, held)), name)

    def scale(self, x: Any, scale: Any, shift: Any) -> Any:
        """x * scale + shift with a number of each, tensors of torch, for each element of dim 1."""
        scaled, shifted = (self.weights(v, x.dtype.name) for v in (scale, shift))
        return self.add("scale_nd", x, self.trt.ScaleMode.CHANNEL, shifted, scaled, self.trt.Weights(x.dtype), 1)

    # Sliding windows

    def convolution(self, x: Any, kernel: Any, bias: Any, groups: int, window: Sequence[int], **parameters: Any) -> Any:
        """Correlate with a kernel, and a bias or None, that are tensors; ``parameters`` as of ``windowed``."""
        maps, empty = kernel.shape[0], self.trt.Weights(x.dtype)
        inputs = {1: kernel} if bias is None else {1: kernel, 2: bias}
        what, placed = self._windows("", window, **parameters)
        return self.add(
            "convolution_nd", x, maps, window, empty, empty, what=what, inputs=inputs, num_groups=groups, **placed
        )

    def pooling(self, name: str, x: Any, window: Sequence[int], **parameters: Any) -> Any:
        """Apply a PoolingType to each window; an average does not count padding."""
        kind = getattr(self.trt.PoolingType, name)
        what, placed = self._windows(name, window, **parameters)
        return self.add("pooling_nd", x, kind, window, what=what, average_count_excludes_padding=True, **placed)

    @staticmethod
    def _windows(
        what: str, window: Sequence[int], stride: Sequence[int], low: Sequence[int], high: Sequence[int],
        dilation: Sequence[int] | None = None,
    ) -> tuple[str, dict[str, Any]]:  # fmt: skip
        """Return the text and the attributes of a layer with windows."""
        attributes: dict[str, Any] = {"stride_nd": stride, "pre_padding": low, "post_padding": high}
        if dilation is not None:
            attributes["dilation_nd"] = dilation
        text = f"window {_text(window)} stride {_text(stride)} padding {_text(low)} {_text(high)}"
        return f"{what} {text}".lstrip(), attributes

    # Reduction and products

    def reduce(self, name: str, x: Any, dims: Sequence[int], keep: bool = False) -> Any:
        op = getattr(self.trt.ReduceOperation, name)
        return self.add("reduce", x, op, sum(1 << d for d in dims), keep, what=f"{name} over {list(dims)}")

    def matmul(self, a: Any, b: Any, turned: Sequence[bool] = (False, False)) -> Any:
        """Multiply matrices, the last two dims; those that are ``turned`` are transposed first."""
        ops = [self.trt.MatrixOperation.TRANSPOSE if turn else self.trt.MatrixOperation.NONE for turn in turned]
        what = f"{ops[0].name} {ops[1].name}" if any(turned) else ""
        return self.add("matrix_multiply", a, ops[0], b, ops[1], what=what)


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

"""``ITensor`` and ``ILayer``: lazily inferred types, parameters that may change after a layer was added."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torchstone.compiler.runtime.tensorrt import rules
from torchstone.compiler.runtime.tensorrt.simulator.enums import DataType, LayerType, TensorLocation
from torchstone.compiler.runtime.tensorrt.simulator.values import Dims, Folded, ILogger, InvalidNetwork, Known, require

if TYPE_CHECKING:
    from torchstone.compiler.runtime.tensorrt.simulator.network import INetworkDefinition

# A tensor larger than this is no shape tensor: TensorRT allows twice the maximum rank.
_MAX_SHAPE_TENSOR = 2 * rules.MAX_DIMS


class ITensor:
    """A network input, or an output of a layer."""

    def __init__(self, network: INetworkDefinition, source: ILayer | None, index: int, known: Known | None) -> None:
        self._network, self._source, self._index, self._known = network, source, index, known
        self._users: list[ILayer] = []
        self._dimension_names: dict[int, str] = {}
        self.name = ""
        self.location = TensorLocation.DEVICE

    def _infer(self) -> Known:
        if self._source is None:
            assert self._known is not None
            return self._known
        return self._source._types()[self._index]

    def _inferred(self) -> Known:
        try:
            return self._infer()
        except InvalidNetwork as error:
            # The bindings hand out dims of length -1 here, and Python refuses them with these words.
            self._network._log(ILogger.ERROR, f"ITensor::getDimensions: Error Code 4: {error}")
            raise ValueError("__len__() should return >= 0") from None

    @property
    def shape(self) -> Dims:
        """The sizes; ValueError (and a logged error) when the network is invalid up to here."""
        return Dims(self._inferred().shape)

    @property
    def dtype(self) -> DataType:
        return self._inferred().dtype

    def set_dimension_name(self, index: int, name: str) -> None:
        self._dimension_names[index] = name

    def get_dimension_name(self, index: int) -> str:
        return self._dimension_names.get(index, "")

    @property
    def is_network_input(self) -> bool:
        return self._source is None

    @property
    def is_network_output(self) -> bool:
        return any(t is self for t in self._network._outputs)

    @property
    def is_shape_tensor(self) -> bool:
        return self._infer().folded is not None


class Parameter:
    """A layer attribute that can be set after the layer was added; setting it makes the layer's output type unknown."""

    def __init__(self, convert: Callable[[Any], Any]) -> None:
        self.convert = convert

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = f"_parameter_{name}"

    def __get__(self, layer: Any, owner: type | None = None) -> Any:
        return self if layer is None else getattr(layer, self.name)

    def __set__(self, layer: ILayer, value: Any) -> None:
        setattr(layer, self.name, None if value is None else self.convert(value))
        layer._changed()


class ILayer:
    """A layer. A subclass gives ``_rule`` (types of the results, or InvalidNetwork) and ``_run`` (the results).

    What it is beside its inputs and names is in its ``Parameter``s: they are what a plan keeps of it.
    """

    _TYPE: LayerType
    _KIND: str

    def __init__(self, network: INetworkDefinition, inputs: Sequence[ITensor | None], outputs: int = 1) -> None:
        self._network = network
        self._inputs: list[ITensor | None] = list(inputs)
        self._outputs = [ITensor(network, self, i, None) for i in range(outputs)]
        self._cache: tuple[Known, ...] | None = None
        self.name = f"(Unnamed Layer* {network.num_layers}) [{self._KIND}]"
        self.metadata = ""
        for i, output in enumerate(self._outputs):
            output.name = f"{self.name}_output_{i}" if i else f"{self.name}_output"
        for tensor in inputs:
            if tensor is not None:
                tensor._users.append(self)

    @property
    def type(self) -> LayerType:
        return self._TYPE

    @property
    def num_inputs(self) -> int:
        return len(self._inputs)

    @property
    def num_outputs(self) -> int:
        return len(self._outputs)

    def get_input(self, index: int) -> ITensor | None:
        return self._inputs[index] if 0 <= index < len(self._inputs) else None

    def get_output(self, index: int) -> ITensor | None:
        return self._outputs[index] if 0 <= index < len(self._outputs) else None

    def get_output_type(self, index: int) -> DataType:
        return self._outputs[index].dtype

    def set_input(self, index: int, tensor: ITensor) -> None:
        while len(self._inputs) <= index:
            self._inputs.append(None)
        self._inputs[index] = tensor
        tensor._users.append(self)
        self._changed()

    def _changed(self) -> None:
        """Forget the inferred types of this layer and of what is computed from it."""
        self._cache = None
        for output in self._outputs:
            for user in output._users:
                if user._cache is not None:
                    user._changed()

    def _types(self) -> tuple[Known, ...]:
        if self._cache is None:
            self._cache = self._infer(self._known_inputs(ITensor._infer))
        return self._cache

    def _known_inputs(self, known: Callable[[ITensor], Known]) -> list[Known | None]:
        return [None if t is None else known(t) for t in self._inputs]

    def _infer(self, inputs: Sequence[Known | None]) -> tuple[Known, ...]:
        """Check the rules and return the output types, folding small integer values."""
        try:
            results = self._rule(*inputs)
        except InvalidNetwork as error:
            raise InvalidNetwork(f"{self.name}: {error}") from None
        for result in results:
            require(len(result.shape) <= rules.MAX_DIMS, f"{self.name}: {result} has more than {rules.MAX_DIMS} dims")
        return tuple(self._fold(inputs, results))

    def _fold(self, inputs: Sequence[Known | None], results: Sequence[Known]) -> Iterator[Known]:
        small = all(_is_small(r) for r in results) and all(i is None or i.folded is not None for i in inputs)
        if not small or any(r.folded is not None for r in results) or not inputs:
            yield from results
            return
        run = Folded(lambda: self._run(*(None if i is None or i.folded is None else i.folded.value for i in inputs)))
        for n, result in enumerate(results):
            yield Known(result.shape, result.dtype, Folded(lambda n=n: run.value[n]))

    def _rule(self, *inputs: Known | None) -> tuple[Known, ...]:
        raise NotImplementedError

    def _run(self, *inputs: Any) -> tuple[Any, ...]:
        raise NotImplementedError


def _is_small(known: Known) -> bool:
    count = 1
    for size in known.shape:
        count *= size
    integral = known.dtype in (DataType.INT32, DataType.INT64, DataType.BOOL)
    return integral and all(s >= 0 for s in known.shape) and count <= _MAX_SHAPE_TENSOR


def takes(kind: str, allowed: frozenset[str], *inputs: Known) -> None:
    """Require that all inputs have one type out of ``allowed``."""
    for known in inputs:
        require(known.dtype == inputs[0].dtype, f"{kind}: input types differ, got {', '.join(map(str, inputs))}")
    names = "/".join(sorted(allowed))
    require(inputs[0].dtype.name in allowed, f"{kind}: takes {names}, got {inputs[0]}")


def broadcast(kind: str, *inputs: Known) -> tuple[int, ...]:
    """Return the common shape: equal ranks, and in each dim equal sizes or 1."""
    ranks = {len(k.shape) for k in inputs}
    require(
        len(ranks) == 1, f"{kind}: inputs must have the same number of dimensions, got {', '.join(map(str, inputs))}"
    )
    sizes = []
    for column in zip(*(k.shape for k in inputs), strict=True):
        wide = {s for s in column if s not in (1, -1)}
        require(len(wide) <= 1, f"{kind}: sizes must match or be 1, got {', '.join(map(str, inputs))}")
        sizes.append(wide.pop() if wide else (-1 if -1 in column else 1))
    return tuple(sizes)

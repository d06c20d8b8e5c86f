"""The plan of a simulated engine: the network as JSON, then the bytes of its weights. Reading one runs nothing of it.

    torchstone simulated plan 1
    {"inputs": [...], "layers": [...], "outputs": [...], "profiles": [...], "bytes": 16}
    <16 bytes of weights>

Tensors are numbered: the inputs, then the outputs of each layer. A layer is the name of its class and its parameters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, TypeAlias

from torchstone.compiler.runtime.tensorrt.simulator.enums import DataType
from torchstone.compiler.runtime.tensorrt.simulator.layers import elementwise, indexing, movement, reduction, windowed
from torchstone.compiler.runtime.tensorrt.simulator.network import INetworkDefinition
from torchstone.compiler.runtime.tensorrt.simulator.tensor import ILayer, ITensor, Parameter
from torchstone.compiler.runtime.tensorrt.simulator.values import (
    Dims,
    ILogger,
    InvalidNetwork,
    Weights,
    require,
    torch_dtype,
)

Profile: TypeAlias = Mapping[str, Sequence[Dims]]

# What Python and PyTorch raise where a plan is not as it was written.
_BREAKS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
MAGIC = b"torchstone simulated plan 1\n"
_LAYERS: dict[str, type[ILayer]] = {
    name: found
    for module in (elementwise, indexing, movement, reduction, windowed)
    for name, found in vars(module).items()
    if isinstance(found, type) and issubclass(found, ILayer) and found is not ILayer
}


def to_bytes(network: INetworkDefinition, profiles: Sequence[Profile]) -> bytes:
    """Return the plan of a network and the min, opt and max shapes of its dynamic inputs in each profile."""
    layers = network._ordered()
    tensors = [*network._inputs, *(t for layer in layers for t in layer._outputs)]
    numbers = {id(t): i for i, t in enumerate(tensors)}
    weights = bytearray()
    data = {
        "inputs": [
            [t.name, int(t.dtype), list(t.shape), [[dim, name] for dim, name in t._dimension_names.items()]]
            for t in network._inputs
        ],
        "layers": [
            {
                "kind": type(layer).__name__,
                "name": layer.name,
                "inputs": [None if t is None else numbers[id(t)] for t in layer._inputs],
                "outputs": [t.name for t in layer._outputs],
                "parameters": {name: _plain(getattr(layer, name), weights) for name in _parameters(type(layer))},
            }
            for layer in layers
        ],
        "outputs": [numbers[id(t)] for t in network._outputs],
        "profiles": profiles,
        "bytes": len(weights),
    }
    return MAGIC + json.dumps(data).encode() + b"\n" + weights


def from_bytes(plan: bytes, logger: ILogger) -> tuple[INetworkDefinition, Sequence[Profile]]:
    """Return the network and the profiles of a plan. InvalidNetwork says why it is none, or which rule it breaks."""
    require(plan.startswith(MAGIC), "not a simulated plan of this version")
    try:
        text, _, weights = plan[len(MAGIC) :].partition(b"\n")
        data = json.loads(text)
        require(len(weights) == data["bytes"], f"{len(weights)} of {data['bytes']} bytes of weights")
        network = INetworkDefinition(logger)
        _read(network, data, weights)
        profiles = [{n: [Dims(shape) for shape in shapes] for n, shapes in p.items()} for p in data["profiles"]]
    except InvalidNetwork:
        raise
    except _BREAKS as error:
        raise InvalidNetwork(f"damaged plan: {type(error).__name__}: {error}") from None
    return network, profiles


def _read(network: INetworkDefinition, data: Mapping[str, Any], weights: bytes) -> None:
    tensors: list[ITensor] = []
    for name, dtype, shape, names in data["inputs"]:
        tensor = network.add_input(name, DataType(dtype), shape)
        require(tensor is not None, f"two inputs {name!r}")
        assert tensor is not None
        for dim, symbol in names:
            tensor.set_dimension_name(dim, symbol)
        tensors.append(tensor)
    for entry in data["layers"]:
        cls = _LAYERS[entry["kind"]]
        layer = cls.__new__(cls)
        inputs = [None if i is None else tensors[i] for i in entry["inputs"]]
        ILayer.__init__(layer, network, inputs, len(entry["outputs"]))
        layer.name = entry["name"]
        for name in _parameters(cls):
            setattr(layer, name, _value(entry["parameters"][name], weights))
        for tensor, name in zip(layer._outputs, entry["outputs"], strict=True):
            tensor.name = name
        require(len(layer._types()) == len(layer._outputs), f"{layer.name}: {len(layer._outputs)} outputs")
        tensors.extend(layer._outputs)
        network._layers.append(layer)
    for number in data["outputs"]:
        network.mark_output(tensors[number])


def _parameters(cls: type[ILayer]) -> list[str]:
    return [name for name, member in vars(cls).items() if isinstance(member, Parameter)]


def _plain(value: Any, weights: bytearray) -> Any:
    """Return a parameter as JSON; the bytes of weights are added to ``weights``."""
    if isinstance(value, Weights):
        start = len(weights)
        weights += value._bytes
        return {"dtype": int(value.dtype), "size": value.size, "start": start}
    return int(value) if isinstance(value, IntEnum) else value


def _value(plain: Any, weights: bytes) -> Any:
    if not isinstance(plain, dict):
        return plain
    dtype, size, start = DataType(plain["dtype"]), plain["size"], plain["start"]
    data = weights[start : start + size * torch_dtype(dtype).itemsize]
    require(start >= 0 and size >= 0 and len(data) == size * torch_dtype(dtype).itemsize, "weights out of range")
    return Weights._of(dtype, size, data)

"""The simulated engine: the network, run layer by layer on the CPU from and to the addresses it is given."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import Any

from torchstone.compiler.runtime.tensorrt.simulator.enums import DataType, TensorIOMode
from torchstone.compiler.runtime.tensorrt.simulator.network import INetworkDefinition
from torchstone.compiler.runtime.tensorrt.simulator.plan import Profile, from_bytes
from torchstone.compiler.runtime.tensorrt.simulator.tensor import ITensor
from torchstone.compiler.runtime.tensorrt.simulator.values import Dims, ILogger, InvalidNetwork, Known, torch_dtype


class IHostMemory(bytes):
    """The bytes of a plan, or of a timing cache."""

    @property
    def nbytes(self) -> int:
        return len(self)


class Runtime:
    """Makes engines out of plans."""

    def __init__(self, logger: ILogger) -> None:
        self.logger = logger

    def deserialize_cuda_engine(self, serialized_engine: Any) -> ICudaEngine | None:
        """Return the engine of a plan, from whatever process; None, with an error logged, for other bytes."""
        try:
            return ICudaEngine(*from_bytes(bytes(serialized_engine), self.logger))
        except InvalidNetwork as error:
            self.logger.log(ILogger.ERROR, f"IRuntime::deserializeCudaEngine: Error Code 1: {error}")
            return None


def inferred(network: INetworkDefinition, shapes: Mapping[str, tuple[int, ...]]) -> dict[int, Known]:
    """Return what is known of each tensor when inputs have these shapes. InvalidNetwork names the layer they break."""
    env = {id(t): Known(shapes.get(t.name, t._infer().shape), t.dtype) for t in network._inputs}
    for layer in network._ordered():
        types = layer._infer(layer._known_inputs(lambda t: env[id(t)]))
        env.update({id(t): k for t, k in zip(layer._outputs, types, strict=True)})
    return env


def check_names(network: INetworkDefinition, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Input dims of one name must have one size."""
    sizes: dict[str, int] = {}
    for tensor in network._inputs:
        for dim, name in tensor._dimension_names.items():
            size = shapes.get(tensor.name, tensor._infer().shape)[dim]
            if sizes.setdefault(name, size) != size:
                raise InvalidNetwork(f"dimension {name} is {sizes[name]} and, in {tensor.name}, {size}")


class ICudaEngine:
    """``profiles`` are the min, opt and max shapes of dynamic inputs, as they were when the engine was built."""

    def __init__(self, network: INetworkDefinition, profiles: Sequence[Profile]) -> None:
        self._network, self._profiles = network, profiles
        self._layers = network._ordered()
        self._tensors = {t.name: t for t in (*network._inputs, *network._outputs)}

    @property
    def num_io_tensors(self) -> int:
        return len(self._tensors)

    @property
    def num_layers(self) -> int:
        return self._network.num_layers

    @property
    def num_optimization_profiles(self) -> int:
        return max(1, len(self._profiles))

    def get_tensor_name(self, index: int) -> str:
        return list(self._tensors)[index]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        if name not in self._tensors:
            return TensorIOMode.NONE
        return TensorIOMode.INPUT if self._tensors[name].is_network_input else TensorIOMode.OUTPUT

    def get_tensor_shape(self, name: str) -> Dims:
        return self._tensors[name].shape

    def get_tensor_dtype(self, name: str) -> DataType:
        return self._tensors[name].dtype

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[Dims]:
        shape = self._tensors[name].shape
        return list(self._profiles[profile_index][name]) if -1 in shape else [shape] * 3

    def create_execution_context(self) -> IExecutionContext:
        return IExecutionContext(self)


class IExecutionContext:
    """Runs the engine. Addresses are CPU addresses, and the stream is ignored: execution is over when it returns."""

    def __init__(self, engine: ICudaEngine) -> None:
        self.engine = engine
        self._profile = 0
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._logger = engine._network._logger

    def _fail(self, method: str, message: str) -> bool:
        self._logger.log(ILogger.ERROR, f"IExecutionContext::{method}: Error Code 3: API Usage Error ({message})")
        return False

    @property
    def active_optimization_profile(self) -> int:
        """Profile 0 is selected by default."""
        return self._profile

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        """Select a profile; the shapes of dynamic inputs have to be set again. False, with an error, for none."""
        if not 0 <= profile_index < self.engine.num_optimization_profiles:
            count = self.engine.num_optimization_profiles
            return self._fail("setOptimizationProfileAsync", f"profile {profile_index} is not one of {count}")
        if profile_index != self._profile:
            self._profile = profile_index
            self._shapes.clear()
        return True

    def set_input_shape(self, name: str, shape: Any) -> bool:
        """Return False, with an error logged, for a shape outside the optimization profile."""
        known, sizes = self.engine._tensors[name]._infer(), tuple(Dims(shape))
        if len(sizes) != len(known.shape) or any(k not in (-1, s) for k, s in zip(known.shape, sizes, strict=True)):
            return self._fail("setInputShape", f"{name}: shape {sizes} does not fit {known}")
        if -1 in known.shape:
            low, _, high = self.engine.get_tensor_profile_shape(name, self._profile)
            if any(not a <= s <= b for a, s, b in zip(low, sizes, high, strict=True)):
                outside = f"{name}: shape {sizes} is outside profile {self._profile}, {low} to {high}"
                return self._fail("setInputShape", outside)
        self._shapes[name] = sizes
        return True

    def set_tensor_address(self, name: str, memory: int) -> bool:
        """An address must not be null, even that of an empty tensor."""
        if not memory:
            return self._fail("setTensorAddress", f"{name}: address is null")
        self._addresses[name] = memory
        return True

    def _input_shape(self, tensor: ITensor) -> tuple[int, ...]:
        shape = self._shapes.get(tensor.name, tensor._infer().shape)
        if -1 in shape:
            raise InvalidNetwork(f"input {tensor.name} has dynamic dims and no shape was set")
        return shape

    def get_tensor_shape(self, name: str) -> Dims:
        """Return the shape, -1 in it where input shapes are not set."""
        tensor = self.engine._tensors[name]
        if tensor.is_network_input:
            return Dims(self._shapes.get(name, tensor._infer().shape))
        if -1 not in tensor._infer().shape:
            return Dims(tensor._infer().shape)
        env = inferred(self.engine._network, self._shapes)
        return Dims(env[id(tensor)].shape)

    def execute_async_v3(self, stream_handle: int) -> bool:
        """Read the inputs, run every layer, write the outputs. False, with an error logged, when it cannot run."""
        import torch

        network = self.engine._network
        missing = [name for name in self.engine._tensors if name not in self._addresses]
        if missing:
            return self._fail("enqueueV3", f"no address set for {', '.join(missing)}")
        try:
            shapes = {t.name: self._input_shape(t) for t in network._inputs}
            check_names(network, shapes)
            env: dict[int, Any] = {id(t): self._view(t, shapes[t.name]) for t in network._inputs}
            for layer in self.engine._layers:
                results = layer._run(*(None if t is None else env[id(t)] for t in layer._inputs))
                env.update({id(t): r for t, r in zip(layer._outputs, results, strict=True)})
        except (InvalidNetwork, RuntimeError) as error:
            return self._fail("enqueueV3", str(error))
        with torch.no_grad():
            for tensor in network._outputs:
                value = env[id(tensor)]
                self._view(tensor, tuple(value.shape)).copy_(value)
        return True

    def _view(self, tensor: ITensor, shape: tuple[int, ...]) -> Any:
        """Return a torch view of the memory at a tensor's address."""
        import torch

        dtype = torch_dtype(tensor.dtype)
        size = math.prod(shape) * dtype.itemsize
        if not size:
            return torch.empty(shape, dtype=dtype)
        memory = (ctypes.c_char * size).from_address(self._addresses[tensor.name])
        return torch.frombuffer(memory, dtype=dtype).reshape(shape)

"""``Builder`` and what it builds from: configuration, optimization profiles, timing caches."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.runtime.tensorrt.simulator.engine import IHostMemory, check_names, inferred
from torchstone.compiler.runtime.tensorrt.simulator.enums import BuilderFlag, DataType, MemoryPoolType
from torchstone.compiler.runtime.tensorrt.simulator.network import INetworkDefinition
from torchstone.compiler.runtime.tensorrt.simulator.plan import to_bytes
from torchstone.compiler.runtime.tensorrt.simulator.values import Dims, ILogger, InvalidNetwork, require


class IOptimizationProfile:
    """The range of sizes of each dynamic input."""

    def __init__(self) -> None:
        self._shapes: dict[str, list[Dims]] = {}

    def set_shape(self, input: str, min: Any, opt: Any, max: Any) -> None:
        low, best, high = Dims(min), Dims(opt), Dims(max)
        ordered = len(low) == len(best) == len(high)
        if not ordered or any(not 0 <= a <= b <= c for a, b, c in zip(low, best, high, strict=True)):
            raise ValueError(f"Shape provided for {input} is inconsistent: min {low}, opt {best}, max {high}")
        self._shapes[input] = [low, best, high]

    def get_shape(self, input: str) -> list[Dims]:
        return self._shapes.get(input, [])


class ITimingCache:
    """Empty, as nothing is timed, but for the header by which a cache of another version or device is told."""

    _HEADER = b"torchstone simulated timing cache 11.4.0 CPU"

    def __init__(self, data: bytes = b"") -> None:
        self._data = data or self._HEADER

    def serialize(self) -> IHostMemory:
        return IHostMemory(self._data)


class IBuilderConfig:
    """Flags as of TensorRT's defaults: TF32 on. Limits of memory are kept, and bind nobody."""

    def __init__(self, logger: ILogger) -> None:
        self._logger = logger
        self.builder_optimization_level = 3
        self._flags = {BuilderFlag.TF32}
        self._limits: dict[MemoryPoolType, int] = {}
        self._profiles: list[IOptimizationProfile] = []
        self._cache: ITimingCache | None = None

    def set_flag(self, flag: BuilderFlag) -> None:
        self._flags.add(flag)

    def clear_flag(self, flag: BuilderFlag) -> None:
        self._flags.discard(flag)

    def get_flag(self, flag: BuilderFlag) -> bool:
        return flag in self._flags

    def set_memory_pool_limit(self, pool: MemoryPoolType, pool_size: int) -> None:
        self._limits[pool] = pool_size

    def get_memory_pool_limit(self, pool: MemoryPoolType) -> int:
        return self._limits.get(pool, 0)

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int:
        self._profiles.append(profile)
        return len(self._profiles) - 1

    @property
    def num_optimization_profiles(self) -> int:
        return len(self._profiles)

    def create_timing_cache(self, serialized_timing_cache: bytes) -> ITimingCache:
        return ITimingCache(bytes(serialized_timing_cache))

    def set_timing_cache(self, cache: ITimingCache, ignore_mismatch: bool) -> bool:
        """Return False, with an error logged, for a cache that was not made here."""
        if cache._data != cache._HEADER:
            self._logger.log(ILogger.ERROR, "IBuilderConfig::setTimingCache: Error Code 3: the header does not fit")
            return False
        self._cache = cache
        return True

    def get_timing_cache(self) -> ITimingCache | None:
        return self._cache


class Builder:
    """Makes networks, and engines out of them. Rules that concern the whole network are checked here."""

    def __init__(self, logger: ILogger) -> None:
        self.logger = logger

    def create_network(self, flags: int = 0) -> INetworkDefinition:
        return INetworkDefinition(self.logger)

    def create_builder_config(self) -> IBuilderConfig:
        return IBuilderConfig(self.logger)

    def create_optimization_profile(self) -> IOptimizationProfile:
        return IOptimizationProfile()

    def build_serialized_network(self, network: INetworkDefinition, config: IBuilderConfig) -> IHostMemory | None:
        """Return the plan, or None with the broken rule logged."""
        try:
            _check(network, config)
            for index, profile in enumerate(config._profiles):
                self._check_shapes(network, profile, index)
        except InvalidNetwork as error:
            self.logger.log(ILogger.ERROR, f"IBuilder::buildSerializedNetwork: Error Code 4: {error}")
            return None
        return IHostMemory(to_bytes(network, [profile._shapes for profile in config._profiles]))

    def _check_shapes(self, network: INetworkDefinition, profile: IOptimizationProfile, index: int) -> None:
        """The network has to hold for the optimal shapes; where it does not for the others, that is a warning."""
        for place, which in enumerate(("kMIN", "kOPT", "kMAX")):
            shapes = {
                t.name: tuple(profile.get_shape(t.name)[place]) for t in network._inputs if -1 in t._infer().shape
            }
            try:
                check_names(network, shapes)
                inferred(network, shapes)
            except InvalidNetwork as error:
                message = f"{which} values for profile {index} violate shape constraints: {error}"
                require(which != "kOPT", message)
                self.logger.log(ILogger.WARNING, message)


def _check(network: INetworkDefinition, config: IBuilderConfig) -> None:
    require(bool(network._outputs), "Network must have at least one output")
    for tensor in network._inputs:
        known = tensor._infer()
        if known.dtype is DataType.UINT8:
            require(False, f"input {tensor.name}: UINT8 is not simulated")
        if -1 not in known.shape:
            continue
        require(bool(config._profiles), f"Network has dynamic input {tensor.name}, but no optimization profile")
        for profile in config._profiles:
            shapes = profile.get_shape(tensor.name)
            require(bool(shapes), f"optimization profile is missing values for dynamic input {tensor.name}")
            for shape in shapes:
                fits = len(shape) == len(known.shape) and all(
                    k in (-1, s) for k, s in zip(known.shape, shape, strict=True)
                )
                require(fits, f"optimization profile shape {tuple(shape)} does not fit input {tensor.name} {known}")
    for layer in network._layers:
        layer._types()

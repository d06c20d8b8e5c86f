"""Build an engine from a network and call it on torch tensors: one code path for TensorRT and for the simulator.

On TensorRT, CUDA tensors are read and written where they are, on the current stream. CPU tensors are copied to the
current GPU and the results back. The simulator reads and writes CPU tensors in place in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchstone.compiler.diagnostics import TorchstoneError, check_error, describe
from torchstone.compiler.ir import Operation
from torchstone.compiler.runtime.tensorrt import Api, engine_cache, timing_cache
from torchstone.compiler.runtime.tensorrt.profiles import Corners, Input, Ranges
from torchstone.compiler.runtime.tensorrt.rules import CARRIERS, DATA_TYPES
from torchstone.compiler.runtime.tensorrt.settings import Settings
from torchstone.compiler.runtime.tensorrt.transcript import Transcript

# TensorRT wants device addresses aligned to this.
_ALIGNMENT = 256
# TF32 rounds what float32 products take; without STRICT_NANS, NaN may be taken for absent.
_FLAGS = {"TF32": False, "STRICT_NANS": True}
_TORCH = {data_type: name for name, data_type in DATA_TYPES.items()}


class Log:
    """The error messages TensorRT logged since they were last taken."""

    def __init__(self, trt: Any) -> None:
        messages: list[str] = []

        class Collector(trt.ILogger):
            def __init__(self) -> None:
                trt.ILogger.__init__(self)

            def log(self, severity: Any, msg: str) -> None:
                if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                    messages.append(msg)

        self.messages = messages
        self.logger = Collector()

    def take(self) -> str:
        """Return the messages as one line and forget them."""
        text = "; ".join(self.messages) or "no message"
        self.messages.clear()
        return text


@dataclass(slots=True)
class Program:
    """A finished network, and how its tensors stand for the graph's.

    ``inputs`` names the network input of each graph argument. An output is the name of a network output, or a
    ``ConstantOutput``: a value that is returned as it is. ``dtypes`` are the graph's, of the network outputs, which may
    carry them in another. ``checks`` maps a 0-d bool output to the message of its failure.
    ``network_inputs`` are the inputs with the sizes that they have in the graph. ``origins`` tells the operation that
    a layer was added for, by the layer's name. ``transcript`` holds what the network was made by.
    """

    api: Api
    log: Log
    builder: Any
    network: Any
    transcript: Transcript
    settings: Settings = field(default_factory=Settings)
    inputs: list[str] = field(default_factory=list)
    outputs: list[str | ConstantOutput] = field(default_factory=list)
    dtypes: dict[str, str] = field(default_factory=dict)
    checks: dict[str, str] = field(default_factory=dict)
    network_inputs: list[Input] = field(default_factory=list)
    origins: dict[str, Operation] = field(default_factory=dict)

    @property
    def dynamic(self) -> bool:
        """Whether an input has a size that is known at run time only."""
        return any(i.dynamic for i in self.network_inputs)

    def ranges(self) -> Ranges:
        return Ranges(self.network_inputs, self.settings.profiles, self.settings.names)


@dataclass(frozen=True, slots=True)
class ConstantOutput:
    value: Any


class EngineKernel:
    """Calls an engine. It is made here, where the ranges of its dynamic sizes are known.

    Else it is made at the first call, for a range around its sizes, and again when a call is outside. The old one is
    dropped. ``builds`` counts those that were not read from the engine cache.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.runtime = str(program.api)
        self.builds = 0
        self._ranges = program.ranges()
        self._context: Any = None
        self._engine: Any = None
        self._runtime: Any = None
        self._null: dict[Any, Any] = {}
        if program.network.num_outputs and (self._ranges.complete or not program.dynamic):
            self._make(self._ranges)

    def __call__(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Run on one tensor for each graph argument; a failed check raises what ``check_error`` makes of it."""
        program = self.program
        produced: dict[str, Any] = {}
        if program.network.num_outputs:
            produced = self._run({n: t for n, t in zip(program.inputs, tensors, strict=True) if n})
        for name, message in program.checks.items():
            if not bool(produced[name]):
                raise check_error(message)
        return tuple(o.value if isinstance(o, ConstantOutput) else self._as_graph(produced, o) for o in program.outputs)

    def _as_graph(self, produced: dict[str, Any], name: str) -> Any:
        import torch

        return produced[name].to(getattr(torch, self.program.dtypes[name]))

    def _run(self, arguments: dict[str, Any]) -> dict[str, Any]:
        import torch

        device = torch.device("cuda", torch.cuda.current_device()) if self.program.api.real else torch.device("cpu")
        home = {t.device for t in arguments.values()}
        inputs = {name: self._prepared(t, device) for name, t in arguments.items()}
        shapes = {name: tuple(t.shape) for name, t in inputs.items()}
        stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
        if self.program.dynamic:
            self._choose(shapes, stream)
        names = [self._engine.get_tensor_name(i) for i in range(self._engine.num_io_tensors)]
        for name in (n for n in names if n in inputs):
            if not self._context.set_input_shape(name, shapes[name]):
                raise self._error("input shape", "run")
            self._bind(name, inputs[name])
        produced = {n: self._empty(n, device) for n in names if n not in inputs}
        for name, tensor in produced.items():
            self._bind(name, tensor)
        if not self._context.execute_async_v3(stream):
            raise self._error("execution", "run")
        if device not in home and len(home) == 1:
            return {name: t.to(next(iter(home))) for name, t in produced.items()}
        return produced

    @staticmethod
    def _prepared(tensor: Any, device: Any) -> Any:
        import torch

        tensor = tensor.detach().resolve_conj().resolve_neg().to(device).contiguous()
        carrier = CARRIERS.get(str(tensor.dtype).removeprefix("torch."))
        tensor = tensor if carrier is None else tensor.to(getattr(torch, _TORCH[carrier]))
        return tensor.clone() if device.type == "cuda" and tensor.data_ptr() % _ALIGNMENT else tensor

    def _empty(self, name: str, device: Any) -> Any:
        import torch

        dtype = _TORCH[self._engine.get_tensor_dtype(name).name]
        return torch.empty(tuple(self._context.get_tensor_shape(name)), dtype=getattr(torch, dtype), device=device)

    def _bind(self, name: str, tensor: Any) -> None:
        import torch

        if not tensor.numel():  # its address may be null, which TensorRT refuses
            if tensor.device not in self._null:
                self._null[tensor.device] = torch.empty(_ALIGNMENT, dtype=torch.uint8, device=tensor.device)
            tensor = self._null[tensor.device]
        if not self._context.set_tensor_address(name, tensor.data_ptr()):
            raise self._error(f"address of {name}", "run")

    def _choose(self, shapes: dict[str, tuple[int, ...]], stream: int) -> None:
        """Take the profile for a call; its work is on the stream of the call, which comes after it."""
        profile = self._ranges.choose(shapes)
        if profile is None:
            self._make(self._ranges.widened(shapes))
            profile = 0
        if profile != self._context.active_optimization_profile and not self._context.set_optimization_profile_async(
            profile, stream
        ):
            raise self._error(f"profile {profile}", "run")

    def _make(self, ranges: Ranges) -> None:
        """Take the engine for these ranges that is kept, or build it."""
        trt, program = self.program.api.module, self.program
        runtime = trt.Runtime(program.log.logger)
        place = self._place(ranges)
        engine = None if place is None else place.load(lambda plan: self._kept(runtime, plan))
        if engine is None:
            if place is not None:
                place.check()
            plan = self._build(ranges)
            program.log.take()  # what was refused on the way, and done otherwise
            engine = runtime.deserialize_cuda_engine(plan)
            if engine is not None:
                self.builds += 1
                if place is not None:
                    place.keep(plan)
        context = engine.create_execution_context() if engine is not None else None
        if context is None:
            raise self._error("loading the engine", "compile")
        self._context, self._engine, self._runtime = context, engine, runtime  # the runtime has to outlive the engine
        self._ranges = ranges

    def _kept(self, runtime: Any, plan: bytes) -> Any:
        """Return the engine of a plan from a file."""
        self.program.log.take()
        engine = runtime.deserialize_cuda_engine(plan)
        if engine is None:
            raise engine_cache.Refused(f"{self.runtime} does not take it: {self.program.log.take()}")
        return engine

    def _place(self, ranges: Ranges) -> engine_cache.Place | None:
        program, settings = self.program, self.program.settings
        if settings.engine_cache is None:
            return None
        made = engine_cache.made_by(program.api)
        told = {"flags": self._flags(), "workspace": settings.workspace, "profiles": ranges.shapes}
        key = engine_cache.key_of(program.transcript.digest(), made, told)
        return engine_cache.Place(settings.engine_cache, made, key)

    def _flags(self) -> dict[str, bool]:
        """Return the flags of this version that are not left as they are."""
        known = self.program.api.module.BuilderFlag
        return {name: wanted for name, wanted in _FLAGS.items() if hasattr(known, name)}

    def _build(self, ranges: Ranges) -> Any:
        """Return the plan of a new engine."""
        trt, program, settings = self.program.api.module, self.program, self.program.settings
        config = program.builder.create_builder_config()
        for flag, wanted in self._flags().items():
            (config.set_flag if wanted else config.clear_flag)(getattr(trt.BuilderFlag, flag))
        if settings.workspace is not None:
            config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, settings.workspace)
        timing_cache.attach(config, trt.__version__, settings.timing_cache)
        for shapes in ranges.shapes:
            if config.add_optimization_profile(self._profile(shapes)) < 0:
                raise self._error("adding an optimization profile", "compile")
        plan = program.builder.build_serialized_network(program.network, config)
        if plan is None:
            raise self._error("building the engine", "compile")
        timing_cache.keep(config, trt.__version__, settings.timing_cache)
        return plan

    def _profile(self, shapes: Mapping[str, Corners]) -> Any:
        profile = self.program.builder.create_optimization_profile()
        for name, (low, opt, high) in shapes.items():
            profile.set_shape(name, low, opt, high)
        return profile

    def _error(self, what: str, stage: str) -> TorchstoneError:
        """Return an error that quotes TensorRT, and the user's line for the layer that it names."""
        said = self.program.log.take()
        named = [name for name in self.program.origins if name in said]
        op = self.program.origins[max(named, key=len)] if named else None
        error = TorchstoneError(f"{self.runtime}: {what} failed: {said}", stage=stage)
        if op is not None:
            error.op, error.where = op.name, describe(op)
        return error


def load(program: Program) -> EngineKernel:
    """Return the kernel of a finished network; TorchstoneError (stage ``compile``) when TensorRT refuses it."""
    return EngineKernel(program)

"""Build an engine from a network and call it on torch tensors: one code path for TensorRT and for the simulator.

On TensorRT, CUDA tensors are read and written where they are, on the current stream. CPU tensors are copied to the
current GPU and the results back. The simulator reads and writes CPU tensors in place in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torchstone.compiler.diagnostics import TorchstoneError, check_error
from torchstone.compiler.runtime.tensorrt import Api
from torchstone.compiler.runtime.tensorrt.rules import DATA_TYPES

# TensorRT wants device addresses aligned to this.
_ALIGNMENT = 256
_timing_caches: dict[str, bytes] = {}
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
    ``ConstantOutput``: a value that is returned as it is. ``checks`` maps a 0-d bool output to the message of its
    failure.
    ``dynamic`` is true when an input has a size known at run time only. ``keep`` holds the arrays of the constants,
    which TensorRT reads while it builds.
    """

    api: Api
    log: Log
    builder: Any
    network: Any
    inputs: list[str] = field(default_factory=list)
    outputs: list[str | ConstantOutput] = field(default_factory=list)
    checks: dict[str, str] = field(default_factory=dict)
    dynamic: bool = False
    keep: list[Any] = field(default_factory=list)

    @property
    def network_inputs(self) -> list[Any]:
        return [self.network.get_input(i) for i in range(self.network.num_inputs)]


@dataclass(frozen=True, slots=True)
class ConstantOutput:
    value: Any


class EngineKernel:
    """Calls an engine. With dynamic sizes, the engine is built at the first call for a range around its sizes.

    The optimization profile of a dynamic dim runs from the smallest size seen to twice the largest, and is tuned for
    the size of the call that built it; a call outside builds an engine for the wider range. The old one is dropped.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.runtime = str(program.api)
        self.builds = 0
        self._ranges: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        self._context: Any = None
        self._engine: Any = None
        self._null: dict[Any, Any] = {}
        if program.network.num_outputs and not program.dynamic:
            self._build({})

    def __call__(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        """Run on one tensor for each graph argument; a failed check raises what ``check_error`` makes of it."""
        program = self.program
        produced: dict[str, Any] = {}
        if program.network.num_outputs:
            produced = self._run({n: t for n, t in zip(program.inputs, tensors, strict=True) if n})
        for name, message in program.checks.items():
            if not bool(produced[name]):
                raise check_error(message)
        return tuple(o.value if isinstance(o, ConstantOutput) else produced[o] for o in program.outputs)

    def _run(self, arguments: dict[str, Any]) -> dict[str, Any]:
        import torch

        device = torch.device("cuda", torch.cuda.current_device()) if self.program.api.real else torch.device("cpu")
        home = {t.device for t in arguments.values()}
        inputs = {name: self._prepared(t, device) for name, t in arguments.items()}
        shapes = {name: tuple(t.shape) for name, t in inputs.items()}
        if self.program.dynamic and not self._covered(shapes):
            self._build(shapes)
        names = [self._engine.get_tensor_name(i) for i in range(self._engine.num_io_tensors)]
        for name in (n for n in names if n in inputs):
            if not self._context.set_input_shape(name, shapes[name]):
                raise self._error("input shape", "run")
            self._bind(name, inputs[name])
        produced = {n: self._empty(n, device) for n in names if n not in inputs}
        for name, tensor in produced.items():
            self._bind(name, tensor)
        stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
        if not self._context.execute_async_v3(stream):
            raise self._error("execution", "run")
        if device not in home and len(home) == 1:
            return {name: t.to(next(iter(home))) for name, t in produced.items()}
        return produced

    @staticmethod
    def _prepared(tensor: Any, device: Any) -> Any:
        tensor = tensor.detach().resolve_conj().resolve_neg().to(device).contiguous()
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

    def _covered(self, shapes: dict[str, tuple[int, ...]]) -> bool:
        def inside(name: str, shape: tuple[int, ...]) -> bool:
            low, high = self._ranges[name]
            return all(a <= s <= b for a, s, b in zip(low, shape, high, strict=True))

        return self._engine is not None and all(inside(name, shape) for name, shape in shapes.items())

    def _build(self, shapes: dict[str, tuple[int, ...]]) -> None:
        trt, program = self.program.api.module, self.program
        config = program.builder.create_builder_config()
        for flag, wanted in (("TF32", False), ("STRICT_NANS", True)):
            if hasattr(trt.BuilderFlag, flag):
                (config.set_flag if wanted else config.clear_flag)(getattr(trt.BuilderFlag, flag))
        cache = config.create_timing_cache(_timing_caches.get(trt.__version__, b""))
        config.set_timing_cache(cache, ignore_mismatch=False)
        if program.dynamic:
            config.add_optimization_profile(self._profile(shapes))
        plan = program.builder.build_serialized_network(program.network, config)
        if plan is None:
            raise self._error("building the engine", "compile")
        _timing_caches[trt.__version__] = bytes(memoryview(config.get_timing_cache().serialize()))
        self._runtime = trt.Runtime(program.log.logger)  # has to outlive the engine
        self._engine = self._runtime.deserialize_cuda_engine(plan)
        self._context = self._engine.create_execution_context() if self._engine is not None else None
        if self._context is None:
            raise self._error("loading the engine", "compile")
        self.builds += 1

    def _profile(self, shapes: dict[str, tuple[int, ...]]) -> Any:
        profile = self.program.builder.create_optimization_profile()
        for tensor in self.program.network_inputs:
            fixed, shape = tuple(tensor.shape), shapes[tensor.name]
            low, high = self._ranges.get(tensor.name, (shape, shape))
            low = tuple(min(a, s) for a, s in zip(low, shape, strict=True))
            known = tensor.name in self._ranges
            grown = ((b if known and s <= b else 2 * s, s, f) for b, s, f in zip(high, shape, fixed, strict=True))
            high = tuple(b if f == -1 else s for b, s, f in grown)
            self._ranges[tensor.name] = low, high
            if -1 in fixed:
                profile.set_shape(tensor.name, low, shape, high)
        return profile

    def _error(self, what: str, stage: str) -> TorchstoneError:
        return TorchstoneError(f"{self.runtime}: {what} failed: {self.program.log.take()}", stage=stage)


def load(program: Program) -> EngineKernel:
    """Return the kernel of a finished network; TorchstoneError (stage ``compile``) when TensorRT refuses it."""
    return EngineKernel(program)

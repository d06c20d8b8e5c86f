"""FlatIR -> TensorRT: one layer, or a few, a primitive, through the ``tensorrt.INetworkDefinition`` API.

Nothing here knows whether the module behind the API is the real one: see ``torchstone.compiler.runtime.tensorrt``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchstone.compiler.diagnostics import TorchstoneError, Unsupported, failed_check
from torchstone.compiler.ir import Expr, Graph, Operation, TensorType, Value
from torchstone.compiler.lowering.target import Kernel, Lowered, Target
from torchstone.compiler.lowering.tensorrt import carried, elementwise, movement, normalization, reduction, windowed
from torchstone.compiler.lowering.tensorrt.held import Held, Values, check_type
from torchstone.compiler.lowering.tensorrt.layer_table import lowers
from torchstone.compiler.lowering.tensorrt.network import Network
from torchstone.compiler.ops import PRIMITIVES
from torchstone.compiler.runtime.tensorrt import api, rules
from torchstone.compiler.runtime.tensorrt.profiles import Input
from torchstone.compiler.runtime.tensorrt.settings import OPTIONS, Settings, settings_of
from torchstone.compiler.transforms.expand import expand

if TYPE_CHECKING:
    from torchstone.compiler.runtime.tensorrt.engine import Program

__all__ = ["TARGET", "carried", "elementwise", "lower", "lower_graph", "movement", "reduction", "takes", "windowed"]

# ``flat.check`` is no layer: its predicate becomes an output of the network, read after the run.
CHECK = "flat.check"


def takes(op: Operation) -> str | None:
    """Return None when this target lowers ``op``, else why not."""
    if not op.name.startswith("flat."):
        return f"{op.name} has no expansion to FlatIR"
    if op.name != CHECK and op.name not in lowers:
        return f"{op.name}: TensorRT has no such layer"
    values = [v for v in (*op.values, *op.results) if isinstance(v.type, TensorType)]
    for value in values:
        if rules.data_type(value.dtype) is None:
            return f"{op.name}: TensorRT has no {value.dtype.name} tensors"
        if value.rank > rules.MAX_DIMS:
            return f"{op.name}: TensorRT tensors have at most {rules.MAX_DIMS} dims, got {value.type}"
    if op.name == CHECK:
        return None
    row = lowers[op.name]
    # The last operand: the first of a select is its predicate. An op without operands makes what its result says.
    operand = next(reversed([*op.values]), None) or op.result
    if rules.data_type(operand.dtype) not in row.types:
        return f"{op.name}: TensorRT's {row.layer} does not take {operand.dtype.name}"
    refusal = row.refuses(op)
    return f"{op.name}: {refusal}" if refusal else None


def lower_graph(graph: Graph, settings: Settings | None = None) -> Program:
    """Build the network of a graph. Unsupported for an argument of a type or rank that TensorRT has not."""
    graph = expand(graph, lambda op: takes(op) or normalization.unknown(op))
    from torchstone.compiler.runtime.tensorrt.engine import ConstantOutput, Log, Program

    driven = api()
    trt = driven.module
    log = Log(trt)
    builder = trt.Builder(log.logger)
    definition = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    n = Network(trt, definition, log)
    program = Program(driven, log, builder, definition, n.transcript, settings or Settings(), origins=n.origins)
    values = Values(n)
    _add_inputs(graph, n, program, values)
    for op in graph.ops:
        with n.building(op):
            if op.name != CHECK:
                values.made(op, _lowered(n, values, op))
                continue
            (predicate,) = op.values
            check = f"check{len(program.checks)}"
            n.output(values.full(predicate), check)
            program.checks[check] = failed_check(op)
    n.where = "return"
    for index, output in enumerate(graph.outputs):
        if isinstance(output, Value):
            n.output(values.full(output), f"output{index}")
            program.dtypes[f"output{index}"] = output.dtype.name
        program.outputs.append(f"output{index}" if isinstance(output, Value) else ConstantOutput(output))
    return program


def _lowered(n: Network, values: Values, op: Operation) -> Held:
    """Add the layers of an op, on operands as they are held, as they broadcast, or with all of their sizes."""
    row, operands = lowers[op.name], list(op.values)
    if row.holds:
        held = row.build(n, op, *(values[v] for v in operands))
        if held.tensor is not None:
            check_type(op, held.tensor, held.shape)
            held.tensor = carried.wrapped(n, op, held.tensor)
        return held
    if PRIMITIVES[op.name].elementwise:
        tensors, shape = values.narrow(operands)
    else:
        tensors, shape = [values.full(v) for v in operands], op.result.shape
    tensor = row.build(n, op, *tensors)
    check_type(op, tensor, shape)
    return Held(shape, carried.wrapped(n, op, tensor))


def _add_inputs(graph: Graph, n: Network, program: Program, values: Values) -> None:
    used = {id(v) for op in graph.ops for v in op.values} | {id(o) for o in graph.outputs if isinstance(o, Value)}
    symbols: set[str] = set()
    for op in graph.ops:
        for v in (*op.values, *op.results):
            symbols |= v.tensor.symbols
    for index, arg in enumerate(graph.args):
        type = arg.type
        # An argument nobody reads, or whose sizes nobody needs, is no network input: TensorRT would drop it.
        if not isinstance(type, TensorType) or not (id(arg) in used or _names(type) & symbols):
            program.inputs.append("")
            continue
        dtype = rules.data_type(type.dtype)
        if arg.known is not None and dtype is not None and type.rank <= rules.MAX_DIMS:
            program.inputs.append("")
            values[arg] = Held(type.dims, parameter=(arg.known, dtype))
            continue
        if dtype is None or type.rank > rules.MAX_DIMS:
            why = f"{type.dtype.name} tensors" if dtype is None else f"tensors of {type.rank} dims"
            raise Unsupported(f"TensorRT has no {why}", stage="lower", op=_first_user(graph, arg))
        name = f"input{index}"
        n.where = name
        tensor = n.input(name, dtype, type.dims)
        if tensor is None:
            raise TorchstoneError(f"TensorRT refuses input {type}: {n.log.take()}", stage="lower")
        program.inputs.append(name)
        program.network_inputs.append(Input(name, arg.name, type.dims))
        values[arg] = Held(type.dims, tensor)


def _names(type: TensorType) -> set[str]:
    return {str(d) for d in type.shape if isinstance(d, Expr) and str(d).isidentifier()}


def _first_user(graph: Graph, arg: Value) -> str:
    return next((op.name for op in graph.ops if any(v is arg for v in op.values)), "")


def print_network(program: Program) -> str:
    """Return the network as text: one line a layer, tensors by name with type and sizes."""

    def typed(tensor: Any) -> str:
        return f"%{tensor.name}: {tensor.dtype.name}[{', '.join(map(str, tensor.shape))}]"

    inputs = [program.network.get_input(i) for i in range(program.network.num_inputs)]
    lines = [f"// {program.api}", *_print_profiles(program), f"network({', '.join(map(typed, inputs))}) {{"]
    for index in range(program.network.num_layers):
        layer = program.network.get_layer(index)
        results = ", ".join(typed(layer.get_output(i)) for i in range(layer.num_outputs))
        operands = [layer.get_input(i) for i in range(layer.num_inputs)]
        names = ", ".join("none" if t is None else f"%{t.name}" for t in operands)
        lines.append(f"  {results} = {layer.type.name}({names})  // {layer.name.partition(': ')[2]}")
    outputs = [program.network.get_output(i).name for i in range(program.network.num_outputs)]
    return "\n".join([*lines, f"  return {', '.join('%' + o for o in outputs)}".rstrip(), "}", ""])


def _print_profiles(program: Program) -> list[str]:
    """Return a line for each profile that is known before the first call: min, opt and max of each dynamic input."""

    def corners(shapes: Any) -> str:
        return ", ".join(f"%{name} {' '.join(str(list(s)) for s in three)}" for name, three in shapes.items())

    return [f"// profile {i}: {corners(shapes)}" for i, shapes in enumerate(program.ranges().shapes)]


def lower(graph: Graph, settings: Settings | None = None) -> Lowered:
    """Return the network of a graph and the way to an engine. TorchstoneError quotes what TensorRT said."""
    program = lower_graph(graph, settings)

    def load() -> Kernel:
        from torchstone.compiler.runtime.tensorrt.engine import load as load_engine

        return load_engine(program)

    return Lowered(load, {"tensorrt": lambda: print_network(program)})


TARGET = Target("tensorrt", takes, lower, schedules=True, options=OPTIONS, settings=settings_of)

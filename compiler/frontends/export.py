"""The ``export`` frontend: ``torch.export`` captures, dynamic shapes included, and the recorder replays its graph.

So both frontends give the same graph of ATen ops for the same program.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
import torch.fx.traceback as fx_traceback
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.frontends.captured import Captured, Guard
from torchstone.compiler.frontends.recorder import Mutation, Recorder, user_location
from torchstone.compiler.frontends.symbolic import holds
from torchstone.compiler.ir import Frame, Location, Value
from torchstone.compiler.ir.dims import Expr, substitute, symbol, symbols
from torchstone.compiler.ir.graph import Graph, map_operand
from torchstone.compiler.ir.types import TensorType

_FRAMES = "torchstone_frames"


class _Wrapper(torch.nn.Module):
    """torch.export takes modules; this makes one of a function."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any) -> Any:
        return self.fn(*args)


class _Replay(torch.fx.Interpreter):
    """Runs an exported graph node by node, telling the recorder whose line each node is."""

    def __init__(self, module: torch.fx.GraphModule, recorder: Recorder) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.recorder = recorder

    def run_node(self, n: torch.fx.Node) -> Any:
        self.recorder.location = location_of(n)
        return super().run_node(n)


class _KeepFrames(TorchFunctionMode):
    """Notes the user's frames on every node that torch.export makes; it keeps only those named ``forward``."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        frames = tuple((f.file, f.line, f.function) for f in user_location().frames)
        with fx_traceback.annotate({_FRAMES: frames}):
            return func(*args, **(kwargs or {}))


def location_of(node: torch.fx.Node) -> Location:
    """Return the user's frames of an exported node, innermost first."""
    frames = node.meta.get("custom", {}).get(_FRAMES, ())
    return Location(tuple(Frame(*frame) for frame in frames))


def capture(fn: Callable[..., Any], args: Sequence[Any], dynamic_shapes: Any = None) -> Captured:
    """Capture ``fn(*args)`` with ``torch.export``; ``dynamic_shapes`` as torch.export.export takes it.

    Errors of torch.export itself become Unsupported with stage ``capture`` and its message.
    """
    module = fn if isinstance(fn, torch.nn.Module) else _Wrapper(fn)
    if dynamic_shapes is not None and module is not fn:
        dynamic_shapes = _under_star_args(dynamic_shapes)
    try:
        with _KeepFrames(), fx_traceback.preserve_node_meta():
            program = torch.export.export(module, tuple(args), dynamic_shapes=dynamic_shapes, strict=False)
        program = _functionalize(program) if _has_mutation(program) else program
    except Unsupported:
        raise
    except Exception as error:
        raise Unsupported(f"torch.export: {type(error).__name__}: {error}", stage="capture") from error
    return _replay(program, fn, args)


def _under_star_args(dynamic_shapes: Any) -> Any:
    if isinstance(dynamic_shapes, dict):
        raise Unsupported("dynamic_shapes by name needs a module; give a tuple, one entry an argument", stage="capture")
    return {"args": tuple(dynamic_shapes)}


def _has_mutation(program: torch.export.ExportedProgram) -> bool:
    """Whether the graph writes in place; then export's own functionalization is worth its 100 ms and more."""
    return any(
        isinstance(n.target, torch._ops.OpOverload) and n.target._schema.is_mutable
        for n in program.graph.nodes
        if n.op == "call_function"
    )


def _functionalize(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    with warnings.catch_warnings():
        # PyTorch 2.13 copies its own deprecated LeafSpec here; a user can do nothing about it.
        warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
        return program.run_decompositions({})


def _replay(program: torch.export.ExportedProgram, fn: Any, args: Sequence[Any]) -> Captured:
    name = getattr(fn, "__name__", type(fn).__name__)
    recorder = Recorder(name if name.isidentifier() else "main")
    leaves, in_spec = pytree.tree_flatten(tuple(args))
    signature, nodes = program.graph_signature, list(program.graph.nodes)
    placeholders = [n for n in nodes if n.op == "placeholder"]
    fakes = {n.name: n.meta["val"] for n in placeholders}
    state = {**program.state_dict, **program.constants}
    names: dict[str, int] = {}
    user = [s for s in signature.input_specs if s.kind is InputKind.USER_INPUT]
    lifted = [s for s in signature.input_specs if s.kind is not InputKind.USER_INPUT]
    for spec in (*user, *lifted):
        fake = fakes[getattr(spec.arg, "name", "")]
        if not isinstance(fake, torch.Tensor):
            continue
        number = len(recorder.graph.args)
        value = recorder.input(
            fake, f"x{number}" if spec.kind is InputKind.USER_INPUT else f"c{len(recorder.captures)}"
        )
        names[spec.target or spec.arg.name] = number
        if spec.kind is not InputKind.USER_INPUT:
            recorder.captures.append((value, state[spec.target or ""]))
    mode = next(f.fake_mode for f in fakes.values() if isinstance(f, torch.Tensor))
    module = program.graph_module
    try:
        with mode, recorder:
            outputs = _Replay(module, recorder).run(*fakes.values(), enable_io_processing=False)
            flat = [recorder.operand(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in outputs]
    except Mutation as error:
        raise Unsupported(f"an in-place {error} that torch.export did not functionalize", stage="capture") from None
    mutated: list[int] = []
    returned: list[Any] = []
    written: list[Any] = []
    for spec, value in zip(signature.output_specs, flat, strict=True):
        if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
            mutated.append(names[spec.target or ""])
            written.append(value)
        elif spec.kind is OutputKind.USER_OUTPUT:
            if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
                raise Unsupported(f"a run-time size among the results: {value}", stage="capture")
            returned.append(value)
        else:
            raise Unsupported(f"an output of kind {spec.kind.name}", stage="capture")
    recorder.graph.outputs = (*(v for v in returned if isinstance(v, Value)), *written)
    plain = {i: leaf for i, leaf in enumerate(returned) if not isinstance(leaf, Value)}
    captures = [t for _, t in recorder.captures]
    out = Captured(recorder.graph, leaves, in_spec, program.call_spec.out_spec, captures, mutated, plain)
    _add_guards(out, mode.shape_env, program)
    return out


def _add_guards(captured: Captured, shape_env: ShapeEnv | None, program: torch.export.ExportedProgram) -> None:
    renamed = rename_symbols(captured.graph)
    for sym, interval in program.range_constraints.items():
        if str(sym) in renamed:
            upper = interval.upper
            bounded = upper.is_Integer and int(upper) < 2**62
            captured.ranges[renamed[str(sym)]] = (max(0, int(interval.lower)), int(upper) if bounded else None)
    if shape_env is not None:
        captured.guards.extend(guards_of(shape_env, renamed))


def guards_of(shape_env: ShapeEnv, renamed: dict[str, str]) -> list[Guard]:
    """Return the conditions on sizes that PyTorch took for granted while it traced."""
    back = {new: old for old, new in renamed.items()}

    def make(guard: Any) -> Guard:
        def check(values: Any) -> str | None:
            known = {back[name]: size for name, size in values.items() if name in back}
            shown = ", ".join(f"{name}={size}" for name, size in values.items())
            return None if holds(guard, known) else f"sizes {shown} break a condition of the captured program: {guard}"

        return check

    # Symbols that PyTorch found equal are one symbol in the graph, where binding the arguments checks them.
    conditions = dict.fromkeys(shape_env.replace(g.expr) for g in shape_env.guards)
    return [make(condition) for condition in conditions if condition != sympy.true]


def rename_symbols(graph: Graph) -> dict[str, str]:
    """Rename the graph's symbols to s0, s1, … in order of appearance; return old name -> new name."""
    renamed: dict[str, str] = {}
    for arg in graph.args:
        if isinstance(arg.type, TensorType):
            for dim in arg.type.shape:
                for name in sorted(symbols(dim) if dim is not None else ()):
                    renamed.setdefault(name, f"s{len(renamed)}")
    values = {old: symbol(new) for old, new in renamed.items()}

    def leaf(item: Any) -> Any:
        return substitute(item, values) if isinstance(item, Expr) else item

    for value in [*graph.args, *(r for op in graph.ops for r in op.results)]:
        if isinstance(value.type, TensorType):
            value.type = TensorType(tuple(leaf(d) for d in value.type.shape), value.type.dtype)
    for op in graph.ops:
        op.operands = tuple(map_operand(o, leaf) for o in op.operands)
    graph.outputs = tuple(map_operand(o, leaf) for o in graph.outputs)
    return renamed

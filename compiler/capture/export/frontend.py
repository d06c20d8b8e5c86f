"""The ``export`` frontend: ``torch.export`` captures, dynamic shapes included, and the recorder replays its graph.

So both frontends give the same graph of ATen ops for the same program.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
import torch.fx.traceback as fx_traceback
from torch.export.graph_signature import InputKind, OutputKind
from torch.overrides import TorchFunctionMode

from torchstone.compiler._torch.exporting import export_below_autograd, in_grad_mode
from torchstone.compiler._torch.fake_tensors import detect_fake_mode
from torchstone.compiler._torch.functorch import transforms_kept
from torchstone.compiler._torch.modes import DisableTorchFunction
from torchstone.compiler._torch.operators import OpOverload
from torchstone.compiler._torch.pytrees import TreeSpec, tree_leaves
from torchstone.compiler._torch.tensors import storage_key
from torchstone.compiler.capture.export.named_sizes import NamedSizes
from torchstone.compiler.capture.leaf_gradients import keep_data
from torchstone.compiler.capture.leaves import Computed, Number, Plain
from torchstone.compiler.capture.memory.aliases import Told, results_of
from torchstone.compiler.capture.memory.layouts import depended_on, drawn_into
from torchstone.compiler.capture.memory.memory_calls import Choice, MemoryCalls
from torchstone.compiler.capture.program import Captured, constants, flatten_arguments
from torchstone.compiler.capture.state.ambient import ambient_kept
from torchstone.compiler.capture.state.blame import Effectful
from torchstone.compiler.capture.state.checks import State
from torchstone.compiler.capture.state.effects import Containers, Existing, Observed
from torchstone.compiler.capture.state.made import can_make
from torchstone.compiler.capture.state.reached import Reached, line_of
from torchstone.compiler.capture.symbolic.conditions import guards_of, placed
from torchstone.compiler.capture.symbolic.floats import traced_as_written
from torchstone.compiler.capture.symbolic.integers import (
    bind_integers,
    plain_result,
    rename_leaves,
    rename_symbols,
    under,
)
from torchstone.compiler.capture.symbolic.numbers import NUMBERS
from torchstone.compiler.capture.symbolic.run_time_sizes import quiet, settle
from torchstone.compiler.capture.symbolic.sizes import bounds_of, to_dim
from torchstone.compiler.capture.tensor_guards import LAYOUT, Asking, Facts
from torchstone.compiler.capture.trace.builtin_calls import globals_of, replaced
from torchstone.compiler.capture.trace.generator_state import Draws, generator_kept
from torchstone.compiler.capture.trace.recorder import Mutation, Policy, Recorder
from torchstone.compiler.capture.trace.replay import FRAMES, is_composite, replay
from torchstone.compiler.capture.trace.tracer_overrides import integer_blends_refused
from torchstone.compiler.capture.user_code import raised_at, raised_by_user, user_location
from torchstone.compiler.capture.writes import ExactWrites
from torchstone.compiler.diagnostics import GuardError, TorchstoneError, Unsupported, raise_bug
from torchstone.compiler.ir import Graph, TensorType, Value
from torchstone.compiler.ir.dims import Dim, symbols
from torchstone.compiler.ir.sizes import bind_symbols, symbols_bound
from torchstone.compiler.runtime.interpreter import evaluate_graph

# Composite ops are made of composite ops, and a round takes those apart that the graph has.
_MOST_ROUNDS = 4

# What layouts decide, each time with the argument that lies so, if there is only one.
ByLayout: TypeAlias = list[tuple[int | None, Choice]]


class _Wrapper(torch.nn.Module):
    """torch.export takes modules; this makes one of a program, whose arguments keep their names.

    Unsupported where the program changes an object: torch.export has values only.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        reached: Reached,
        leaves: Sequence[Any],
        memory: MemoryCalls,
        told: ByLayout,
        opened: list[Observed],
    ) -> None:
        super().__init__()
        heap, differentiates = reached.heap, torch.is_grad_enabled()
        owners: dict[int, int] = {}
        self.asking = Asking(
            lambda t: owners.get(id(t), reached.held_tensor(t)), lambda o: leaves[o] if isinstance(o, int) else o
        )
        self.program = fn if isinstance(fn, torch.nn.Module) else None

        def forward(*args: Any, **kwargs: Any) -> Any:
            containers = Containers(args, kwargs)
            containers.remember()
            given = flatten_arguments(args, kwargs)[0]
            owners.clear()
            owners.update(reversed([(id(leaf), i) for i, leaf in enumerate(given) if isinstance(leaf, torch.Tensor)]))
            if len(given) == len(leaves):
                reached.mark_parameters(leaves, given)
            with heap.standing_in_place(), self.asking, in_grad_mode(differentiates):
                out = fn(*args, **kwargs)
                for number, _ in heap.changed():
                    raise _changes(heap.nodes[number].label, number, argument=False)
                for number, *_ in containers.changed():
                    raise _changes("an argument", number, argument=True)
                if any(can_make(leaf) for leaf in tree_leaves(out)):
                    opened[:] = [Observed(out, heap, containers, {}, {})]
                    out = [leaf for leaf in opened[0].leaves if _is_value(leaf)]
            inputs = [leaf for leaf in flatten_arguments(args, kwargs)[0] if isinstance(leaf, torch.Tensor)]
            found = memory.told(tree_leaves(out), inputs)
            told[:] = [(_place(choice.operand, inputs), choice) for choice in found]
            memory.choices.clear()
            return out

        code = fn.forward if isinstance(fn, torch.nn.Module) else fn
        self.named = _has_signature(code)
        self.forward = functools.wraps(code)(forward) if self.named else forward


def _is_value(leaf: Any) -> bool:
    return issubclass(type(leaf), (torch.Tensor, *NUMBERS))


def _place(tensor: torch.Tensor, arguments: Sequence[torch.Tensor]) -> int | None:
    """Return which argument's memory a tensor has."""
    with DisableTorchFunction():
        storages = [storage_key(a) if a.layout is torch.strided else None for a in arguments]
        mine = storage_key(tensor) if tensor.layout is torch.strided else -1
    return storages.index(mine) if mine in storages else None


def _changes(label: str, number: int, *, argument: bool) -> Effectful:
    return Effectful(f"the program changes {label}, which torch.export does not take", number, argument=argument)


def _has_signature(fn: Callable[..., Any]) -> bool:
    try:
        inspect.signature(fn)
    except (TypeError, ValueError):
        return False
    return True


class _KeepFrames(TorchFunctionMode):
    """Notes the user's frames on every node that torch.export makes; it keeps only those named ``forward``.

    And the calls that go by memory, which it drops.
    """

    def __init__(self, memory: MemoryCalls) -> None:
        super().__init__()
        self._memory = memory

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.compiler.is_dynamo_compiling():  # it traces the functions of torch.cond, and this mode with them
            return func(*args, **(kwargs or {}))
        keep_data(func)
        frames = tuple((f.file, f.line, f.function) for f in user_location().frames)
        with fx_traceback.annotate({FRAMES: frames}):
            return self._memory.make(func, args, kwargs)


def capture(
    fn: Callable[..., Any], args: Sequence[Any], dynamic_shapes: Any = None, kwargs: Mapping[str, Any] | None = None
) -> Captured:
    """Capture ``fn(*args, **kwargs)`` with ``torch.export``; ``dynamic_shapes`` as torch.export.export takes it.

    Errors of torch.export itself become Unsupported with stage ``capture`` and its message.
    """
    leaves, in_spec = flatten_arguments(args, kwargs)
    reached = Reached(fn, leaves)
    memory, by_layout = MemoryCalls(), ByLayout()
    reached.check_no_attributes()
    opened: list[Observed] = []  # the result where it has objects, which torch.export does not take
    module = _Wrapper(fn, reached, leaves, memory, by_layout, opened)
    if not module.named and dynamic_shapes is not None:
        dynamic_shapes = {"args": tuple(dynamic_shapes)}
    keywords = dict(sorted((kwargs or {}).items()))
    named = NamedSizes(module, args, keywords, dynamic_shapes)
    try:
        with (
            quiet(),
            _KeepFrames(memory),
            fx_traceback.preserve_node_meta(),
            _unseeded(),
            traced_as_written(),
            integer_blends_refused(),
            replaced(globals_of(fn), _convert),
            placed(user_location),
            ambient_kept(reached.heap),
            _attributes_kept([*leaves, *reached.tensors()]),
        ):
            program = _exported(module, tuple(args), keywords, dynamic_shapes)
    except Unsupported as error:
        error.where = error.where or raised_at(error)
        if isinstance(error, Effectful):
            error.where = line_of(error, reached, leaves, in_spec)
        raise
    except Exception as error:  # anything: torch.export runs the program
        raise_bug(error)
        if raised_by_user(error) and "Sym" not in str(error):  # what Python says of PyTorch's symbols is not of theirs
            raise
        raise Unsupported(_message(error), stage="capture", where=raised_at(error)) from error
    finally:
        reached.heap.restore()  # torch.export leaves copies of tuples, dicts and lists in modules
    for rounds in range(_MOST_ROUNDS + 1):
        try:
            return named.tell(_replay(program, reached, args, keywords, by_layout, module.asking, opened), leaves)
        except Mutation as error:  # in the graph, or in an op of it that PyTorch makes of others
            if rounds == _MOST_ROUNDS:
                why = f"an in-place {error} that torch.export did not functionalize"
                raise Unsupported(why, stage="capture") from None
        except TorchstoneError:
            raise
        except Exception as error:  # anything: the ops of the program run on fake tensors
            raise_bug(error)
            raise Unsupported(_message(error), stage="capture") from error
        drawn_into(program.graph)
        program = _functionalize(program)
    raise AssertionError("unreachable")


def _exported(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> torch.export.ExportedProgram:
    """Return what torch.export makes of a module, its composite ops as they are called where it can.

    A gradient taken inside of a program reads what composite ops keep for it, which is no value of a graph that holds
    these ops whole: it would be a constant without numbers. There they are taken apart as they run.
    """
    try:
        return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False)
    except RuntimeError as error:
        if "fake tensor in the exported program constant" not in str(error):
            raise
    return export_below_autograd(module, args, kwargs, dynamic_shapes)


@contextlib.contextmanager
def _attributes_kept(leaves: Sequence[Any]) -> Iterator[None]:
    """Give tensors the attributes back that they had: torch.export notes on them which sizes are dynamic."""
    kept = [(leaf, dict(vars(leaf))) for leaf in leaves if isinstance(leaf, torch.Tensor)]
    try:
        yield
    finally:
        for tensor, attributes in kept:
            own: Any = tensor.__dict__
            own.clear()
            own.update(attributes)


def _message(error: Exception) -> str:
    """Return what torch.export has to say about the program, without its advice on how to debug it."""
    said = str(error).split("For more information, run with")[0]
    kept = [line for line in str(error).split("\n") if line.startswith("  - ")]
    return "\n".join([f"torch.export: {type(error).__name__}: {said.split(chr(10))[0].strip()}", *kept])


def _functionalize(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Let torch.export functionalize, which takes it 100 ms and more; composite ops are taken apart for that."""
    ops = {n.target for n in program.graph.nodes if isinstance(n.target, OpOverload)}
    table = torch.export.default_decompositions()
    apart: dict[Any, Any] = {op: table[op] for op in ops if is_composite(op) and op in table}
    with warnings.catch_warnings(), ExactWrites():
        # PyTorch 2.13 copies its own deprecated LeafSpec here; a user can do nothing about it.
        warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
        try:
            return program.run_decompositions(apart)
        except Unsupported:
            raise
        except Exception as error:  # anything: decompositions of PyTorch run
            raise_bug(error)
            raise Unsupported(_message(error), stage="capture") from error


@contextlib.contextmanager
def _unseeded() -> Iterator[None]:
    """Refuse a program that seeds the random generator: torch.export does not say where."""
    with generator_kept(), transforms_kept():
        draws = Draws()
        yield
        if draws.seed() is not None:
            raise Unsupported("the program seeds the random generator", stage="capture")


@dataclass(frozen=True, slots=True)
class _Replayed:
    """The graph of an exported program, recorded: ``fakes`` by placeholder, and what it gives, by kind."""

    recorder: Recorder
    fakes: dict[str, Any]
    given: list[Any]
    returned: list[Any]
    mutated: list[int]
    written: list[Any]


def _record(program: torch.export.ExportedProgram, name: str) -> _Replayed:
    """Run the graph of a program under the recorder. Unsupported for a kind of output that no executable gives."""
    recorder = Recorder(name if name.isidentifier() else "main", policy=Policy.SYMBOLS)
    signature, nodes = program.graph_signature, list(program.graph.nodes)
    fakes = {n.name: n.meta["val"] for n in nodes if n.op == "placeholder"}
    state = {**program.state_dict, **program.constants}
    names: dict[str, int] = {}
    user = [s for s in signature.input_specs if s.kind is InputKind.USER_INPUT]
    lifted = [s for s in signature.input_specs if s.kind is not InputKind.USER_INPUT]
    for spec in (*user, *lifted):
        fake = fakes[getattr(spec.arg, "name", "")]
        if not isinstance(fake, torch.Tensor) or spec.kind is InputKind.TOKEN:  # which orders effects, as a graph does
            continue
        names[spec.target or spec.arg.name] = number = len(recorder.graph.args)
        if spec.kind is InputKind.USER_INPUT:
            recorder.input(fake, f"x{number}")
        else:
            recorder.capture(fake, state[spec.target or ""])
    given = [fakes[getattr(s.arg, "name", "")] for s in user]
    flat = replay(program.graph_module, list(fakes.values()), recorder)
    out = _Replayed(recorder, fakes, given, [], [], [])
    for spec, value in zip(signature.output_specs, flat, strict=True):
        if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION):
            out.mutated.append(names[spec.target or ""])
            out.written.append(value)
        elif spec.kind is OutputKind.USER_OUTPUT:
            out.returned.append(value)
        elif spec.kind is not OutputKind.TOKEN:
            raise Unsupported(f"an output of kind {spec.kind.name}", stage="capture")
    return out


def _replay(
    program: torch.export.ExportedProgram,
    reached: Reached,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    by_layout: ByLayout,
    asking: Asking,
    opened: Sequence[Observed],
) -> Captured:
    """Return the program that an exported one is."""
    leaves, in_spec = flatten_arguments(args, kwargs)
    run = _record(program, getattr(reached.fn, "__name__", type(reached.fn).__name__))
    recorder, graph = run.recorder, run.recorder.graph
    values = [v for v in run.returned if isinstance(v, Value)]
    numbers = {i: recorder.number(v) for i, v in enumerate(run.returned) if _is_computed(v, graph)}
    told = results_of(graph, values, run.mutated, run.written, layouts=recorder.layouts)
    kept = [base.value for base in told.bases]
    graph.outputs = (*values, *kept, *numbers.values(), *run.written)
    dynamic = {i: size for i, size in enumerate(run.given) if isinstance(size, torch.SymInt)}
    bound, integers = bind_integers(graph, leaves, dynamic)
    mode = _settled_mode(run)
    layouts = _decided(recorder, told.laid_out, by_layout)
    renamed = rename_symbols(graph)
    layouts = [(index, strides and tuple(under(s, renamed) for s in strides)) for index, strides in layouts]
    recorder.layouts.rename(renamed)
    told = results_of(graph, values, run.mutated, run.written, layouts=recorder.layouts)  # under the new names
    places_told = told.emit_places(graph)
    graph.outputs = (*values, *kept, *places_told.values(), *graph.outputs[len(values) + len(kept) :])
    first = len(values) + len(kept)
    captures = [t for _, t in recorder.captures]
    sources = [reached.sources(t) for t in captures]
    objects = State(reached.heap)
    facts = reached.facts(asking, leaves)
    arguments = [strides and tuple(under(s, renamed) for s in strides) for strides in recorder.layouts.arguments]
    layouts = [*layouts, *_laid_out(facts, leaves, arguments, {index for index, _ in layouts})]
    results = _result_leaves(run.returned, told, numbers, first + len(places_told), renamed)
    results, out_spec = _with_objects(results, program.call_spec.out_spec, opened)
    out = Captured(
        graph,
        rename_leaves(bound, renamed),
        in_spec,
        out_spec,
        results,
        captures,
        run.mutated,
        state=objects if objects or any(sources) or facts.of_objects else None,
        facts=facts,
        sources=sources,
        integers=integers,
        specialized=constants(bound),
        row_major=recorder.row_major,
        bases=[Computed(len(values) + i, base.strides) for i, base in enumerate(told.bases)],
        told={name: first + i for i, name in enumerate(places_told)},
        copied=told.copied,
        guards=[*told.guards, *(choice.guard().under(renamed) for _, choice in by_layout)],
        layouts=layouts,
    )
    _add_examples(out, leaves)
    _add_guards(out, mode, program, renamed)
    return out


def _with_objects(results: list[Any], spec: TreeSpec | None, opened: Sequence[Observed]) -> tuple[list[Any], TreeSpec]:
    """Return the leaves of a result and how they are nested, those in objects too."""
    for observed in opened:
        given = iter(results)
        leaves = [leaf if isinstance(leaf, Existing) else Plain(leaf) for leaf in observed.leaves]
        found = [next(given) if _is_value(leaf) else kept for leaf, kept in zip(observed.leaves, leaves, strict=True)]
        return found, observed.out_spec
    assert spec is not None  # only a program that was never called has none
    return results, spec


def _settled_mode(run: _Replayed) -> Any:
    """Bind the sizes that values tell, and return the fake mode of the program."""
    mode = detect_fake_mode(list(run.fakes.values()))
    if mode is not None and mode.shape_env is not None:
        run.recorder.bind_sizes(mode.shape_env)
        settle(run.recorder.graph, mode.shape_env)
    return mode


def _decided(recorder: Recorder, laid_out: Sequence[Value], by_layout: ByLayout) -> list[tuple[int, Any]]:
    """Return the arguments whose strides decide what the program computes, with these."""
    graph = recorder.graph
    decided = {i for place, _ in by_layout for i in (range(len(graph.args)) if place is None else (place,))}
    return depended_on(graph, recorder.layouts.arguments, [*laid_out, *(graph.args[i] for i in sorted(decided))])


def _result_leaves(
    returned: Sequence[Any], told: Told, numbers: Mapping[int, Value], first: int, renamed: Mapping[str, str]
) -> list[Any]:
    """Return what each leaf of the result is; the ``numbers`` among them are outputs from ``first`` on."""
    tensors = iter(told.results)
    places = {i: first + place for place, i in enumerate(numbers)}
    return [
        Number(places[i]) if i in places else next(tensors) if isinstance(v, Value) else plain_result(v, renamed)
        for i, v in enumerate(returned)
    ]


def _add_examples(out: Captured, leaves: Sequence[Any]) -> None:
    """Tell what the sizes of the program are for its example."""
    graph, integers = out.graph, out.integers
    tensors = [*(leaf for leaf in leaves if isinstance(leaf, torch.Tensor)), *out.captures]
    out.hints = bind_symbols(graph, [*tensors, *(leaves[i] for i in integers)])
    out.hints.update({str(out.leaves[i].dim): leaves[i] for i in integers})
    if symbols_bound(graph):
        out.example = _sizes_of(graph, [*tensors, *(torch.tensor(leaves[i]) for i in integers)])


def _laid_out(
    facts: Facts, leaves: Sequence[Any], arguments: Sequence[Any], known: set[int]
) -> list[tuple[int, tuple[Dim, ...] | None]]:
    """Return which arguments have to have the example's strides, for the sizes of a call, in the place of the facts."""
    asked = {f.owner for f in facts.facts if isinstance(f.owner, int) and f.name in LAYOUT}
    strides = {"stride", "is_contiguous", "dim_order"}
    facts.facts = [f for f in facts.facts if not (f.owner in asked and f.name in strides)]
    tensors = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    return [(n, arguments[n]) for n, i in enumerate(tensors) if i in asked and n not in known]


def _sizes_of(graph: Graph, tensors: Sequence[torch.Tensor]) -> dict[str, int]:
    """Return what the sizes that values tell are for the example, as far as it runs. Unsupported where it is refused.

    torch.export does not say: it has no values.
    """
    sizes: dict[str, int] = {}
    try:
        with quiet(), torch.no_grad(), torch.random.fork_rng(devices=[]):
            evaluate_graph(graph, tensors, sizes)
    except GuardError as error:
        raise Unsupported(f"for the example, {error.message}", stage="capture", where=error.where) from None
    except Exception as error:  # anything: the program runs, and what raises says nothing of sizes
        raise_bug(error)
        return {}
    return sizes


def _convert(kind: type, given: Any) -> Any:
    """Return ``float(given)``, ``int(given)`` or ``bool(given)``: a number that torch.export knows how to trace."""
    if not isinstance(given, torch.Tensor):
        if kind is float and not isinstance(given, torch.SymBool):
            return torch.sym_float(given)
        return given if kind is int and isinstance(given, torch.SymInt) else kind(given)  # type: ignore[arg-type]
    if given.numel() != 1 or given.is_complex() or (kind is int and given.is_floating_point()):
        return kind(given)
    x = given.detach().reshape(())
    return (x != 0).item() if kind is bool else x.to(torch.float64 if kind is float else torch.int64).item()


def _is_computed(leaf: Any, graph: Graph) -> bool:
    """Say whether a result is a number that the sizes of the arguments do not tell."""
    if isinstance(leaf, torch.SymInt):
        return not symbols(to_dim(leaf)) <= {
            s for a in graph.args if isinstance(a.type, TensorType) for s in a.type.symbols
        }
    return isinstance(leaf, NUMBERS)


def _add_guards(captured: Captured, mode: Any, program: torch.export.ExportedProgram, renamed: dict[str, str]) -> None:
    for sym, interval in program.range_constraints.items():
        if str(sym) in renamed:
            captured.ranges[renamed[str(sym)]] = bounds_of(interval)
    if mode is not None and mode.shape_env is not None:
        captured.guards.extend(guards_of(mode.shape_env, renamed))

"""The ``dispatch`` frontend: run the program once on clones of its arguments and record the ATen calls it makes.

Under a millisecond for a one-op program. What Python decided on the way (branches, loops) is specialized and guarded.
Where there are numbers, given or read from tensors, or sizes that depend on values, the program is recorded again on
fake tensors, and they are symbols: see ``attempts`` and ``specialize``.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchstone.compiler._torch import pytrees as pytree
from torchstone.compiler._torch.control_flow import called_directly
from torchstone.compiler._torch.fake_tensors import FakeTensorMode
from torchstone.compiler._torch.functionalization import FunctionalTensor, was_written
from torchstone.compiler._torch.functorch import transforms_kept
from torchstone.compiler._torch.modes import DisableTorchFunction
from torchstone.compiler._torch.tensors import storage_key
from torchstone.compiler.capture.leaf_gradients import WatchGradients
from torchstone.compiler.capture.leaves import Aliased, Computed, Number, Plain, Result, Scalar, Shared
from torchstone.compiler.capture.memory.aliases import Told, results_of
from torchstone.compiler.capture.memory.foreign_memory import check_memory
from torchstone.compiler.capture.memory.layouts import depended_on
from torchstone.compiler.capture.memory.memory_calls import MemoryCalls
from torchstone.compiler.capture.memory.shared_results import Base, Viewed, held_as_in_eager
from torchstone.compiler.capture.program import Captured, constants, flatten_arguments
from torchstone.compiler.capture.refusals import refusals
from torchstone.compiler.capture.state.ambient import ambient_kept
from torchstone.compiler.capture.state.blame import Effectful
from torchstone.compiler.capture.state.blind import unread, with_blinds
from torchstone.compiler.capture.state.checks import State
from torchstone.compiler.capture.state.effects import Containers, Existing, Observed
from torchstone.compiler.capture.state.keys import asks, tell
from torchstone.compiler.capture.state.reached import SCALARS, Reached, clone_tensors, line_of, rehearse
from torchstone.compiler.capture.symbolic.attempts import Bake, Example, refused_by_example, symbols_of, with_numbers
from torchstone.compiler.capture.symbolic.run_time_sizes import quiet, settle
from torchstone.compiler.capture.symbolic.same_program import same_program
from torchstone.compiler.capture.symbolic.specialize import DecidingEnv, Returned
from torchstone.compiler.capture.symbolic.symbol_queries import asked_by_python, asked_to_convert
from torchstone.compiler.capture.tensor_guards import Asking
from torchstone.compiler.capture.trace.builtin_calls import globals_of, replaced
from torchstone.compiler.capture.trace.functionalize import Share, functionalized, told_by_values, unwrap
from torchstone.compiler.capture.trace.generator_state import Draws, generator_kept
from torchstone.compiler.capture.trace.recorder import Mutation, Policy, Recorder, SizedByValues
from torchstone.compiler.capture.trace.value_leaks import NoEscape, no_back_doors
from torchstone.compiler.capture.user_code import raised_at
from torchstone.compiler.diagnostics import Unsupported, describe
from torchstone.compiler.ir import Graph, Location


def capture(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Captured:
    """Capture ``fn(*args, **kwargs)``. Unsupported, with stage ``capture``, for what a graph cannot hold.

    Whatever ``fn`` itself raises passes through: the program is at fault, not the compiler.
    """
    leaves, in_spec = flatten_arguments(args, kwargs)
    name = getattr(fn, "__name__", type(fn).__name__)
    if not name.isidentifier():
        name = "main"
    try:
        with generator_kept(), transforms_kept():
            reached = Reached(fn, leaves)
            with ambient_kept(reached.heap):
                out = _capture_somehow(reached, leaves, in_spec, name)
            out = _without_reading(out, fn, args, kwargs or {}, name)
    except Unsupported as error:
        error.where = error.where or raised_at(error)
        if isinstance(error, Effectful) and not error.where:
            error.where = line_of(error, reached, leaves, in_spec)
        raise
    out.check_objects(args, kwargs)
    return out


def _capture_somehow(fn: Reached, leaves: list[Any], in_spec: pytree.TreeSpec, name: str) -> Captured:
    try:
        plain = _capture(fn, leaves, in_spec, name, Policy.NUMBERS)
    except SizedByValues:
        try:
            plain = _capture(fn, leaves, in_spec, name, Policy.SPECIALIZE)
        except Unsupported:
            with contextlib.suppress(Exception), quiet():  # anything: an attempt that runs the program
                return _capture(fn, leaves, in_spec, name, Policy.SYMBOLS)
            raise
    fn, plain = _only_adding(fn, leaves, in_spec, name, plain)
    # A number that the program counts with is an argument that it takes by itself.
    return _with_numbers(fn.counting(), [*leaves, *fn.counted()], in_spec, name, plain)


def _only_adding(
    fn: Reached, leaves: list[Any], in_spec: pytree.TreeSpec, name: str, plain: Captured
) -> tuple[Reached, Captured]:
    """Return a program that may find anything in the containers that it only adds to, if it is the same program."""
    adding = fn.adding(plain.effects)
    if adding is not None:
        with contextlib.suppress(Exception), quiet():  # anything: an attempt that runs the program
            found = _capture(adding, leaves, in_spec, name, Policy.NUMBERS)
            same = [e.target for e in found.effects] == [e.target for e in plain.effects]
            blind = all(e.added for e in found.effects if not e.target.argument and e.target.number in adding.blind)
            if same and blind and same_program(found, plain, {}):
                return adding, found
    return fn, plain


def _without_reading(out: Captured, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any], name: str) -> Captured:
    """Return a program that may find anything in the arguments that it only adds to, if it is the same program."""
    containers = Containers(args, kwargs).found
    grown = {id(containers[e.target.number]) for e in out.effects if e.grew and e.target.argument}
    places = frozenset(place for place, value in (*enumerate(args), *kwargs.items()) if id(value) in grown)
    if places:
        leaves, in_spec = flatten_arguments(*unread(args, kwargs, places))
        with contextlib.suppress(Exception), quiet():  # anything: an attempt that runs the program
            found = _capture_somehow(Reached(fn, leaves), leaves, in_spec, name)
            if same_program(found, out, {}) and len(found.effects) == len(out.effects):
                found.unread = places
                if found.otherwise is not None:
                    found.otherwise.unread = places
                return found
    return out


def _with_numbers(fn: Reached, leaves: list[Any], in_spec: pytree.TreeSpec, name: str, plain: Captured) -> Captured:
    """Return the program with run-time numbers for what ``plain`` was specialized to, as far as it does not decide."""
    kinds = {index: type(leaf) for index, leaf in enumerate(leaves) if type(leaf) in SCALARS}
    if not kinds and not plain.specialized:
        return plain

    def capture(numbers: frozenset[int], hints: dict[int, Any], example: Example) -> Captured:
        # The compiler may ask for another program later, when nothing else watches.
        with quiet(), generator_kept(), transforms_kept(), ambient_kept(fn.heap):
            return _capture(fn, leaves, in_spec, name, Policy.SYMBOLS, numbers, hints, example)

    return with_numbers(capture, kinds, plain, globals_of(fn.fn))


def _capture(
    fn: Reached,
    leaves: list[Any],
    in_spec: pytree.TreeSpec,
    name: str,
    policy: Policy,
    numbers: frozenset[int] = frozenset(),
    hints: dict[int, Any] | None = None,
    example: Example | None = None,
) -> Captured:
    def record(*, functional: bool) -> Captured:
        given = example and example.again()
        recording = _Recording(fn, leaves, in_spec, name, policy, numbers, given, functional=functional)
        return recording.captured(recording.trace(), hints)

    with contextlib.suppress(Mutation):
        return record(functional=False)
    if policy is Policy.NUMBERS or not fn.rehearsed:  # the first of the attempts
        rehearse(fn, leaves, in_spec)
    try:
        return record(functional=True)
    except Mutation as error:
        raise Unsupported(f"{error} writes to a tensor that functionalization does not see", stage="capture") from None


@dataclass(frozen=True, slots=True)
class _Traced:
    """What a run of the program under the recorder gave, as values of the graph.

    ``flat`` are the leaves of what it returned, and ``outputs`` the values of the tensors among them. ``shared`` says
    what these share memory with, where functionalization told. ``elsewhere`` decided how a copy lies in memory,
    ``gradients`` are the tensors whose ``grad`` was left another, each with the new one.
    """

    flat: list[Any]
    outputs: list[Any]
    shared: list[Share] | None
    elsewhere: list[Any]
    gradients: list[tuple[torch.Tensor, Any]]


class _Recording:
    """One run of the program under the recorder, and the program that it makes.

    ``numbers`` are the leaves that are run-time numbers: 0-d tensors, of which the program is given the numbers. The
    program runs on ``clones`` of the arguments, and on ``lifted``, copies of the tensors that it takes by itself.
    """

    def __init__(
        self,
        fn: Reached,
        leaves: list[Any],
        in_spec: pytree.TreeSpec,
        name: str,
        policy: Policy,
        numbers: frozenset[int],
        example: Example | None,
        *,
        functional: bool,
    ) -> None:
        self.fn, self.examples, self.in_spec = fn, leaves, in_spec
        self.numbers, self.example, self.functional = numbers, example, functional
        self.leaves = [
            torch.tensor(leaf, dtype=SCALARS[type(leaf)]) if index in numbers else leaf
            for index, leaf in enumerate(leaves)
        ]
        self.clones = clone_tensors(self.leaves, tracked=not functional)
        self.state = fn.tensors() if functional else []
        self.recorder = recorder = Recorder(name, functional=functional, policy=policy)
        recorder.draws = Draws()
        self.mode = mode = _fake_mode(recorder.decisions.decide) if policy is Policy.SYMBOLS else None
        if mode is not None:
            self.clones = [
                mode.from_tensor(c, static_shapes=True) if isinstance(c, torch.Tensor) else c for c in self.clones
            ]
        for clone in self.clones:
            if isinstance(clone, torch.Tensor):
                recorder.input(clone, f"x{len(recorder.graph.args)}")
        self.lifted = (
            clone_tensors(self.state, tracked=not functional)
            if mode is None
            else [mode.from_tensor(t.detach(), static_shapes=True) for t in self.state]
        )
        for clone, original in zip(self.lifted, self.state, strict=True):
            recorder.capture(clone, original)
        self.seen: list[Observed] = []
        self.by_layout: list[torch.Tensor] = []
        self.memory = MemoryCalls()
        self.watch = WatchGradients(self.state, lambda t: isinstance(t, FunctionalTensor) or recorder.knows(t))
        self.owners = owners = dict[int, int | torch.Tensor]()
        self.asking = Asking(
            lambda t: owners.get(id(t), fn.held_tensor(t)), lambda o: leaves[o] if isinstance(o, int) else o
        )

    def run(self, clones: list[Any], lifted: list[Any]) -> list[Any]:
        """Run the program on these tensors; return the leaves of what it gave."""
        fn, examples, decisions = self.fn, self.examples, self.recorder.decisions
        given = [clone.item() if index in self.numbers else clone for index, clone in enumerate(clones)]
        self.recorder.example = self.example
        for index in self.numbers:
            self.recorder.hint(self.recorder.number(given[index]), examples[index])
            decisions.argument(given[index], index)
        count = self.in_spec.num_leaves
        args, kwargs, unread = with_blinds(*pytree.tree_unflatten(given[:count], self.in_spec))
        containers = Containers(args, kwargs)
        containers.remember()
        blinds = fn.blinds()
        others = {id(t): o for t, o in zip(self.state, lifted, strict=True)}
        self.owners.update({id(o): t for t, o in zip(self.state, lifted, strict=True)})
        self.owners.update(reversed([(id(c), i) for i, c in enumerate(given[:count]) if isinstance(c, torch.Tensor)]))
        fronts = {id(examples[i]): c for i, c in enumerate(given[:count]) if isinstance(c, torch.Tensor)}
        fn.mark_parameters([*examples, *self.state], [*given, *lifted])
        with (
            NoEscape(self.memory) if self.mode is None else NoEscape(self.memory, asked_to_convert, decisions),
            no_back_doors(),
            called_directly(),
            self.watch,
            self.asking,
            fn.heap.standing_in(others, dict(zip(fn.held, given[count:], strict=True)), blinds, fronts) as cached,
        ):
            out = self._call(args, kwargs, containers)
            self.seen.append(Observed(out, fn.heap, containers, blinds, unread))
            told = self.memory.told(self.seen[-1].leaves, (*clones, *lifted))
            self.by_layout.extend(choice.operand for choice in told)
        _check_cached(cached, self.seen[-1])
        return self.seen[-1].leaves

    def _call(self, args: Any, kwargs: Any, containers: Containers) -> Any:
        """Call the program; raise what was refused in it, whatever it made of that."""
        decisions = self.recorder.decisions
        with (
            asked_by_python(asks, decisions.ask) if self.mode is not None else contextlib.nullcontext(),
            replaced([] if self.example is None else self.example.modules, decisions.convert),
        ):
            try:
                with refusals() as refused:
                    out = self.fn.fn(*args, **kwargs)
            except Exception:
                if refused:  # what has come of it is no doing of the program's
                    raise refused[0] from None
                raise
            finally:
                if self.mode is not None:
                    tell([*(node.obj for node in self.fn.heap.nodes), *containers.found])
            if refused:  # the program went on another way than in eager
                raise refused[0]
        return out

    def trace(self) -> _Traced:
        """Run the program under the recorder."""
        recorder, clones, lifted = self.recorder, self.clones, self.lifted
        shared: list[Share] | None = None
        left: Sequence[Any] = ()
        with self.mode or contextlib.nullcontext(), recorder:
            try:
                if self.functional:
                    originals = zip((*clones, *lifted), (*self.leaves, *self.state), strict=True)
                    tracked = {id(c) for c, t in originals if _needs_grad(t)}
                    flat, written, shared, left = functionalized(
                        self.run, clones, lifted, tracked, recorder.layouts, self.memory
                    )
                    for original, value in written:
                        recorder.write(original, value)
                else:
                    flat = self.run(clones, lifted)
            finally:
                found = recorder.gradients.left()
            with recorder.drawing(Location()):
                outputs = [recorder.operand(leaf) for leaf in flat if isinstance(leaf, torch.Tensor)]
            elsewhere = [recorder.operand(unwrap(t)) for t in self.by_layout]
            gradients = [(t, recorder.operand(grad)) for t, grad in (*found, *left)]
        if recorder.refused is not None:
            raise recorder.refused
        return _Traced(flat, outputs, shared, elsewhere, gradients)

    def captured(self, traced: _Traced, hints: dict[Any, Any] | None) -> Captured:
        """Return the program that was recorded; ``hints`` gets the numbers of the example."""
        recorder, graph, outputs = self.recorder, self.recorder.graph, traced.outputs
        flat = [recorder.decisions.returned(leaf) for leaf in traced.flat]
        returned = [leaf.value for leaf in flat if isinstance(leaf, Returned)]
        recorder.drop_captures([*outputs, *returned], [t for t, _ in traced.gradients])
        gradients = {recorder.position(t): grad for t, grad in traced.gradients}
        mutated = sorted(recorder.mutations)
        told = _results(graph, outputs, traced.shared, recorder)
        if traced.shared is None and self.mode is None:
            held_as_in_eager(
                [t for t in flat if isinstance(t, torch.Tensor)],
                told.results,
                [a for a in self.clones if isinstance(a, torch.Tensor)],
            )
        kept = [base.value for base in told.bases]
        written = [*(recorder.mutations[i] for i in mutated), *gradients.values()]
        graph.outputs = (*outputs, *kept, *returned, *written)
        self._settle_sizes()
        if hints is not None:
            hints.update(recorder.hints | recorder.decisions.known())
        places_told = told.emit_places(graph)
        graph.outputs = (*outputs, *kept, *places_told.values(), *returned, *written)
        first = len(outputs) + len(kept)
        known = [Scalar(type(e), SCALARS[type(e)]) if i in self.numbers else e for i, e in enumerate(self.examples)]
        sizes = recorder.decisions.sizes_known()
        return Captured(
            graph,
            known,
            self.in_spec,
            self.seen[-1].out_spec,
            _result_leaves(flat, told, first + len(places_told)),
            mutated=mutated,
            gradients=list(gradients),
            fresh=bool(self.watch.seen),
            **self._objects(),
            specialized=[*constants(known), *(describe(op) for op in recorder.specialized)],
            row_major=recorder.row_major,
            reads=recorder.reads,
            sizes=recorder.sizes,
            example=sizes,
            hints={name: n for name, n in sizes.items() if n > 1},
            places=recorder.decisions.places,
            bases=[Computed(len(outputs) + i, base.strides) for i, base in enumerate(told.bases)],
            told={name: first + i for i, name in enumerate(places_told)},
            copied=told.copied,
            guards=list(told.guards),
            layouts=depended_on(graph, recorder.layouts.arguments, [*told.laid_out, *traced.elsewhere]),
        )

    def _settle_sizes(self) -> None:
        """Bind the sizes that values tell. ``Bake`` names numbers that have to be constants for the program to hold."""
        graph, decisions = self.recorder.graph, self.recorder.decisions
        if self.mode is None or self.mode.shape_env is None:
            return
        names = self.recorder.bind_sizes(self.mode.shape_env)
        if given := {name for name in names if decisions.places.get(name, ("", 0))[0] == "argument"}:
            raise Bake(given, decisions.places)
        if (example := self.recorder.example) is not None and (below := names & example.negative(decisions.places)):
            raise Bake(below, decisions.places)  # no tensor has such a size, which is how kernels are given them
        settle(graph, self.mode.shape_env)
        if (broken := refused_by_example(graph, decisions.sizes_known())) is not None:
            raise Bake(symbols_of(broken), decisions.places)

    def _objects(self) -> dict[str, Any]:
        """Return what the program takes by itself, reads and changes: fields of ``Captured``."""
        fn, observed, recorder = self.fn, self.seen[-1], self.recorder
        captures = [t for _, t in recorder.captures]
        mine = [*(x for x in self.examples if isinstance(x, torch.Tensor)), *captures]
        changed = {e.target.number for e in observed.effects if not e.target.argument}
        check_memory(fn.heap, changed, [(t, i in recorder.mutations) for i, t in enumerate(mine)])
        fn.note(observed.effects)
        sources = [fn.sources(t) for t in captures]
        facts = fn.facts(self.asking, self.examples[: self.in_spec.num_leaves])
        objects = State(fn.heap, fn.held, fn.blind, changes=bool(observed.effects))
        return {
            "captures": captures,
            "state": objects if objects or observed.effects or any(sources) or facts.of_objects else None,
            "facts": facts,
            "sources": sources,
            "effects": observed.effects,
        }


def _result_leaves(flat: list[Any], told: Told, first: int) -> list[Result]:
    """Return what each leaf of the result is; the numbers among them are outputs from ``first`` on."""
    tensors, places = iter(told.results), itertools.count(first)

    def result(leaf: Any) -> Result:
        if isinstance(leaf, torch.Tensor):
            return next(tensors)
        if isinstance(leaf, Existing):
            return leaf
        return Number(next(places)) if isinstance(leaf, Returned) else Plain(leaf)

    return [result(leaf) for leaf in flat]


def _fake_mode(decide: Callable[[Any], Any]) -> FakeTensorMode:
    env = DecidingEnv()
    env.decide = decide
    mode = FakeTensorMode(shape_env=env, static_shapes=True, allow_non_fake_inputs=True)
    mode.cache_enabled = False  # it asks about sizes to see whether it may keep a result
    return mode


def _results(graph: Graph, outputs: Sequence[Any], shared: Sequence[Share] | None, recorder: Recorder) -> Told:
    """What the tensors among the results are; ``shared`` says of each what it shares memory with."""
    told = results_of(graph, outputs, layouts=recorder.layouts)
    if shared is None:
        return told
    out = Told([], [], [], [], places=told.places)
    first: dict[int, int] = {}
    for index, owner in enumerate(shared):
        if told_by_values in (
            owner.view if isinstance(owner, Viewed) else None,
            owner[1] if isinstance(owner, tuple) else None,
        ):
            if not isinstance(told.results[index], Aliased):
                raise Unsupported("a result is a view at a place that values tell", stage="capture")
            out.results.append(told.results[index])
            out.steps[index] = told.steps[index]
            continue
        if isinstance(owner, Viewed):
            base = recorder.operand(owner.base)
            if id(base) not in first:
                first[id(base)] = len(outputs) + len(out.bases)
                out.bases.append(Base(base, owner.strides))
                out.laid_out.append(base)
            out.results.append(Shared(first[id(base)], owner.view, index))
        elif isinstance(owner, tuple):
            out.results.append(Aliased(recorder.position(owner[0]), owner[1], index))
        else:
            out.results.append(Computed(index))
    return out


def _returned(tensors: Sequence[torch.Tensor], leaves: Sequence[Any]) -> list[torch.Tensor]:
    """Return those of these tensors that a result shares memory with."""
    with DisableTorchFunction():
        owned = {storage_key(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor)}
        return [t for t in tensors if storage_key(t) in owned]


def _check_cached(cached: list[Any], observed: Observed) -> None:
    """Unsupported where the program writes to what a function with a cache gives it, or gives it away.

    The next call would find that; so it is once the cache holds it, which is a tensor of the caller's then.
    """
    given = pytree.tree_leaves(cached)
    kept = [leaf for leaf in given if isinstance(leaf, torch.Tensor)]
    for leaf in kept:
        if isinstance(leaf, FunctionalTensor) and was_written(leaf):
            raise Unsupported("the program writes to a tensor that a function with an lru_cache keeps", stage="capture")
    objects = {id(obj) for obj in observed.made}
    if (kept and _returned(kept, observed.leaves)) or any(id(leaf) in objects for leaf in given):
        raise Unsupported(
            "the program returns or keeps a tensor or an object that a function with an lru_cache keeps too; call that "
            "once before",
            stage="capture",
        )


def _needs_grad(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad

"""The ``dispatch`` frontend: run the program once on clones of its arguments and record the ATen calls it makes.

Under a millisecond for a one-op program. What Python decided on the way (branches on shapes, loops, plain numbers) is
specialized and guarded, and so is a number that it reads from a tensor. Where the size of a tensor depends on values,
the program is recorded again on fake tensors, and such sizes are symbols.
"""

from __future__ import annotations

import contextlib
import itertools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch._higher_order_ops.effects import has_effects
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode, PythonFunctionalizeAPI
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils import _pytree as pytree

from torchstone.compiler.diagnostics import Unsupported, describe
from torchstone.compiler.frontends.aliases import Told, results_of
from torchstone.compiler.frontends.captured import (
    Aliased,
    Captured,
    Computed,
    Number,
    Plain,
    Result,
    Scalar,
    Shared,
    View,
    constants,
    flatten_arguments,
)
from torchstone.compiler.frontends.control_flow import called_directly
from torchstone.compiler.frontends.escape import NoEscape, no_swaps, transforms_kept
from torchstone.compiler.frontends.gradients import WatchGradients
from torchstone.compiler.frontends.layouts import Layouts, depended_on
from torchstone.compiler.frontends.numbers import NUMBERS
from torchstone.compiler.frontends.randomness import Draws, generator_kept
from torchstone.compiler.frontends.recorder import Mutation, Policy, Recorder, SizedByValues, raised_at
from torchstone.compiler.frontends.run_time_sizes import quiet, settle
from torchstone.compiler.frontends.same_program import same_program
from torchstone.compiler.frontends.sharing import Base, Viewed, grouped, held_as_in_eager
from torchstone.compiler.ir import Graph, Location

# Arguments that may be run-time numbers. A bool is what programs branch on.
SCALARS = {int: torch.int64, float: torch.float64}


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
            return _capture_somehow(fn, leaves, in_spec, name)
    except Unsupported as error:
        error.where = error.where or raised_at(error)
        raise


def _capture_somehow(fn: Any, leaves: list[Any], in_spec: pytree.TreeSpec, name: str) -> Captured:
    with contextlib.suppress(SizedByValues):
        plain = _capture(fn, leaves, in_spec, name, Policy.NUMBERS)
        return _with_numbers(fn, leaves, in_spec, name, plain)
    # Where PyTorch cannot do without a number, the program is specialized to it: whatever was raised is raised again.
    with contextlib.suppress(Exception), quiet():
        return _capture(fn, leaves, in_spec, name, Policy.SYMBOLS)
    return _capture(fn, leaves, in_spec, name, Policy.SPECIALIZE)


def _with_numbers(fn: Any, leaves: list[Any], in_spec: pytree.TreeSpec, name: str, plain: Captured) -> Captured:
    """Return a program whose numbers are run-time values, where it only computes with them; else ``plain``.

    It does when it makes the same calls and gives the same results whether they are Python's numbers or symbols.
    """
    numbers = [index for index, leaf in enumerate(leaves) if type(leaf) in SCALARS]
    floats = [index for index in numbers if type(leaves[index]) is float]
    for chosen in dict.fromkeys((tuple(numbers), tuple(floats), ())):
        if not chosen and not plain.specialized:
            continue
        with contextlib.suppress(Exception), quiet():
            hints: dict[int, Any] = {}
            found = _capture(fn, leaves, in_spec, name, Policy.SYMBOLS, frozenset(chosen), hints)
            if same_program(found, plain, hints):
                found.otherwise = plain
                return found
    return plain


def _capture(
    fn: Any,
    leaves: list[Any],
    in_spec: pytree.TreeSpec,
    name: str,
    policy: Policy,
    numbers: frozenset[int] = frozenset(),
    hints: dict[int, Any] | None = None,
) -> Captured:
    with contextlib.suppress(Mutation):
        return _record(fn, leaves, in_spec, name, policy, numbers, hints, functional=False)
    if policy is Policy.NUMBERS:  # the first of the attempts
        _rehearse(fn, leaves, in_spec)
    try:
        return _record(fn, leaves, in_spec, name, policy, numbers, hints, functional=True)
    except Mutation as error:
        raise Unsupported(f"{error} writes to a tensor that functionalization does not see", stage="capture") from None


def _rehearse(fn: Any, leaves: list[Any], in_spec: pytree.TreeSpec) -> None:
    """Run a program that writes as eager does, on clones, so that what eager refuses is raised.

    Functionalization writes to nothing, and so has no objection to an ``out=`` of another dtype or one that overlaps an
    operand.
    """
    modules = modules_held(fn, leaves)
    state = _state(modules)
    args, kwargs = pytree.tree_unflatten(_clone(leaves, tracked=True), in_spec)
    attributes = _attributes_kept(modules, Recorder("rehearsal"))
    with quiet(), NoEscape(), no_swaps(), _replaced(modules, state, _clone(state, tracked=True)), attributes:
        fn(*args, **kwargs)


def _record(
    fn: Any,
    leaves: list[Any],
    in_spec: pytree.TreeSpec,
    name: str,
    policy: Policy,
    numbers: frozenset[int],
    hints: dict[int, Any] | None,
    *,
    functional: bool,
) -> Captured:
    """``numbers`` are the leaves that are run-time numbers: 0-d tensors, of which the program is given the numbers."""
    examples = leaves
    leaves = [
        torch.tensor(leaf, dtype=SCALARS[type(leaf)]) if index in numbers else leaf for index, leaf in enumerate(leaves)
    ]
    clones = _clone(leaves, tracked=not functional)
    modules = modules_held(fn, leaves)
    state = _state(modules) if functional else []
    recorder = Recorder(name, functional=functional, policy=policy)
    recorder.draws = Draws()
    mode = _fake_mode() if policy is Policy.SYMBOLS else None
    if mode is not None:
        clones = [mode.from_tensor(c, static_shapes=True) if isinstance(c, torch.Tensor) else c for c in clones]
    for clone in clones:
        if isinstance(clone, torch.Tensor):
            recorder.input(clone, f"x{len(recorder.graph.args)}")
    lifted = (
        _clone(state, tracked=not functional)
        if mode is None
        else [mode.from_tensor(t.detach(), static_shapes=True) for t in state]
    )
    for clone, original in zip(lifted, state, strict=True):
        recorder.capture(clone, original)
    spec: list[pytree.TreeSpec] = []
    given_as: set[str] = set()
    watch = WatchGradients(state, lambda t: isinstance(t, FunctionalTensor) or recorder.knows(t))

    def run(clones: list[Any], lifted: list[Any]) -> list[Any]:
        given = [clone.item() if index in numbers else clone for index, clone in enumerate(clones)]
        given_as.update(recorder.numbers)
        for index in numbers:
            recorder.hint(recorder.number(given[index]), examples[index])
        args, kwargs = pytree.tree_unflatten(given, in_spec)
        with (
            NoEscape(),
            no_swaps(),
            called_directly(),
            watch,
            _replaced(modules, state, lifted),
            _attributes_kept(modules, recorder),
        ):
            out = fn(*args, **kwargs)
        # PyTorch's pytree would take a Size apart and put a tuple together.
        flat, out_spec = pytree.tree_flatten(out, is_leaf=lambda node: isinstance(node, torch.Size))
        spec.append(out_spec)
        return flat

    shared: list[Share] | None = None
    with mode or contextlib.nullcontext(), recorder:
        try:
            if functional:
                tracked = {id(c) for c, t in zip((*clones, *lifted), (*leaves, *state), strict=True) if _needs_grad(t)}
                flat, written, shared, left = _functionalized(run, clones, lifted, tracked, recorder.layouts)
                for original, value in written:
                    recorder.write(original, value)
            else:
                flat, left = run(clones, lifted), []
        finally:
            found = recorder.gradients.left()
        with recorder.drawing(Location()):
            outputs = [recorder.operand(leaf) for leaf in flat if isinstance(leaf, torch.Tensor)]
        gradients = {recorder.position(t): recorder.operand(grad) for t, grad in (*found, *left)}
    if recorder.refused is not None:
        raise recorder.refused
    graph = recorder.graph
    mutated = sorted(recorder.mutations)
    returned = [recorder.number(leaf) for leaf in flat if isinstance(leaf, NUMBERS)]
    told = _results(graph, outputs, shared, recorder)
    if shared is None and mode is None:
        held_as_in_eager(
            [t for t in flat if isinstance(t, torch.Tensor)],
            told.results,
            [a for a in clones if isinstance(a, torch.Tensor)],
        )
    kept = [base.value for base in told.bases]
    graph.outputs = (*outputs, *kept, *returned, *(recorder.mutations[i] for i in mutated), *gradients.values())
    tensors = iter(told.results)
    if mode is not None and mode.shape_env is not None:
        if not recorder.bind_sizes(mode.shape_env).isdisjoint(given_as):
            raise Unsupported("an int of the arguments is a size", stage="capture")
        settle(graph, mode.shape_env)
    if hints is not None:
        hints.update(recorder.hints)
    known = [Scalar(type(e), SCALARS[type(e)]) if i in numbers else e for i, e in enumerate(examples)]
    places = itertools.count(len(outputs) + len(kept))

    def result(leaf: Any) -> Result:
        if isinstance(leaf, torch.Tensor):
            return next(tensors)
        return Number(next(places)) if isinstance(leaf, NUMBERS) else Plain(leaf)

    return Captured(
        graph,
        known,
        in_spec,
        spec[-1],
        [result(leaf) for leaf in flat],
        captures=[t for _, t in recorder.captures],
        mutated=mutated,
        gradients=list(gradients),
        fresh=bool(watch.seen),
        modes=[(m, m.training) for module in modules for m in module.modules()],
        specialized=[
            *constants(known),
            *(describe(op) for op in recorder.specialized),
        ],
        row_major=recorder.row_major,
        bases=[Computed(len(outputs) + i, base.strides) for i, base in enumerate(told.bases)],
        copied=told.copied,
        guards=list(told.guards),
        layouts=depended_on(graph, recorder.layouts.arguments, told.laid_out),
    )


def _fake_mode() -> FakeTensorMode:
    return FakeTensorMode(shape_env=ShapeEnv(), static_shapes=True, allow_non_fake_inputs=True)


Pairs: TypeAlias = Sequence[tuple[torch.Tensor, torch.Tensor]]


class _Functionalize(FunctionalTensorMode):
    """PyTorch's functionalization, with the recorder in the place of PyTorch's own tracer.

    Unsupported, at the user's line, where the sizes or strides of one of ``arguments`` change in place.
    """

    arguments: Pairs = ()
    layouts = Layouts()
    bases: dict[int, FunctionalTensor]

    def note(self, out: Any) -> None:
        """Note the tensors that an op gives and that are no views."""
        for leaf in pytree.tree_leaves(out):
            if isinstance(leaf, FunctionalTensor) and not _steps_to(leaf):
                self.bases.setdefault(leaf.untyped_storage()._cdata, leaf)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not has_effects(func):
            with self.layouts.calling(func, args, kwargs) as made:
                out = super().__torch_dispatch__(func, types, args, kwargs)
                made.append(out)
            self.note(out)
            if torch.Tag.inplace_view in func.tags and any(args[0] is tensor for _, tensor in self.arguments):
                _same_outline(args[0], str(func))
            return out
        # PyTorch threads a token through the ops whose order matters; a graph of ours keeps their order anyway.
        below = PythonFunctionalizeAPI()
        with below.redispatch_to_next():
            args, kwargs = below.unwrap_tensors((args, kwargs or {}))  # type: ignore[arg-type]
            return below.wrap_tensors(func(*args, **kwargs))

    def _sync_view_replay_annotations(self, args: Any, kwargs: Any) -> None:
        """Nothing to do: these are notes for PyTorch's tracer."""


Share: TypeAlias = "tuple[torch.Tensor, View | None] | Viewed | None"


def _same_outline(tensor: Any, culprit: str) -> None:
    if torch._functionalize_has_metadata_mutation(tensor.elem):
        raise Unsupported(f"{culprit} changes the sizes or strides of an argument in place", stage="capture")
    if torch._functionalize_was_storage_changed(tensor.elem):
        raise Unsupported(f"{culprit} gives an argument other memory; write to it with copy_", stage="capture")


def _results(graph: Graph, outputs: Sequence[Any], shared: Sequence[Share] | None, recorder: Recorder) -> Told:
    """What the tensors among the results are; ``shared`` says of each what it shares memory with."""
    told = results_of(graph, outputs, layouts=recorder.layouts)
    if shared is None:
        return told
    out = Told([], [], [], [])
    first: dict[int, int] = {}
    for index, owner in enumerate(shared):
        # A view at a place that values tell is computed: no list of views tells it for other values.
        if isinstance(owner, Viewed) and not recorder.numbers:
            base = recorder.operand(owner.base)
            if id(base) not in first:
                first[id(base)] = len(outputs) + len(out.bases)
                out.bases.append(Base(base, owner.strides))
                out.laid_out.append(base)
            out.results.append(Shared(first[id(base)], owner.view, index))
        elif isinstance(owner, tuple) and (owner[1] is None or not recorder.numbers):
            out.results.append(Aliased(recorder.position(owner[0]), owner[1], index))
        else:
            out.results.append(Computed(index))
    return out


def _functionalized(
    run: Callable[[list[Any], list[Any]], list[Any]],
    clones: list[Any],
    lifted: list[Any],
    tracked: set[int],
    layouts: Layouts,
) -> tuple[list[Any], Pairs, list[Share], Pairs]:
    """Run under PyTorch's functionalization; ``tracked`` has the ids of the tensors that autograd tracks.

    Return the results, the new value of each argument written to, for each tensor among the results the argument that
    it shares memory with, if there is one, and as which view, and the gradient of each argument that has one now.
    """
    wrapped: list[tuple[torch.Tensor, FunctionalTensor]] = []

    def wrap(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        known = next((f for t, f in wrapped if t is leaf), None)
        if known is None:
            known = FunctionalTensor.to_functional(leaf)
            known.requires_grad_(id(leaf) in tracked)
            wrapped.append((leaf, known))
        return known

    try:
        with _Functionalize() as mode:
            mode.arguments, mode.layouts, mode.bases = wrapped, layouts, {}
            flat = run([wrap(c) for c in clones], [wrap(t) for t in lifted])
    except RuntimeError as error:
        if "functional tensor" not in str(error):
            raise
        raise Unsupported("the program writes to a tensor that is no argument", stage="capture") from error
    for _, tensor in wrapped:
        _same_outline(tensor, "the program")
    owners = {f.untyped_storage()._cdata: (t, f) for t, f in wrapped}
    shared: list[Share] = []
    for leaf in flat:
        owner = owners.get(leaf.untyped_storage()._cdata) if isinstance(leaf, FunctionalTensor) else None
        if owner is not None:
            shared.append((owner[0], None if leaf is owner[1] else _view_of(leaf)))
        elif isinstance(leaf, torch.Tensor):
            shared.append(None)
    mode.bases.update({f.untyped_storage()._cdata: f for _, f in wrapped})
    found = iter(grouped([leaf for leaf in flat if isinstance(leaf, torch.Tensor)], mode.bases, _view_of))
    shared = [group if share is None else share for share, group in zip(shared, found, strict=True)]
    has_data_mutation = torch._functionalize_has_data_mutation  # pyright: ignore[reportAttributeAccessIssue]
    written = [(t, _unwrap(f)) for t, f in wrapped if has_data_mutation(f.elem)]
    left = [(t, _unwrap(f.grad)) for t, f in wrapped if f.is_leaf and f.grad is not None]
    return [_unwrap(leaf) for leaf in flat], written, shared, left


def _view_of(tensor: FunctionalTensor) -> View:
    """Return what makes a tensor of its base: the views that functionalization has noted."""
    steps = _steps_to(tensor)
    return lambda base, sizes: _FUNCTIONALIZATION.apply_view_meta_sequence(base, steps)


_FUNCTIONALIZATION: Any = getattr(torch._C, "_functionalization")  # noqa: B009 - PyTorch's stubs leave it out


def _steps_to(tensor: FunctionalTensor) -> Any:
    return _FUNCTIONALIZATION.get_view_meta_sequence(tensor.elem)


def _unwrap(leaf: Any) -> Any:
    return leaf.from_functional() if isinstance(leaf, FunctionalTensor) else leaf


def modules_held(fn: Any, leaves: Sequence[Any]) -> list[torch.nn.Module]:
    """Return the modules that a program is, is given, is bound to, closes over or names in its own code."""
    held = [fn, getattr(fn, "__self__", None), *leaves]
    code = getattr(fn, "__code__", None)
    if code is not None:
        held.extend(cell.cell_contents for cell in fn.__closure__ or () if cell != types.CellType())
        held.extend(fn.__globals__.get(name) for name in code.co_names)
    return list({id(m): m for m in held if isinstance(m, torch.nn.Module)}.values())


def _state(modules: Sequence[torch.nn.Module]) -> list[torch.Tensor]:
    """Return parameters and buffers, each once: a functionalized program may write to them."""
    tensors = [t for module in modules for t in (*module.parameters(), *module.buffers())]
    return list({id(t): t for t in tensors}.values())


@contextlib.contextmanager
def _replaced(
    modules: Sequence[torch.nn.Module], state: Sequence[torch.Tensor], others: Sequence[torch.Tensor]
) -> Iterator[None]:
    """Let the modules have other tensors in place of their parameters and buffers."""
    other = {id(t): o for t, o in zip(state, others, strict=True)}
    with contextlib.ExitStack() as stack:
        for module in modules if state else ():
            tensors = [*module.named_parameters(), *module.named_buffers()]
            named = {name: other[id(t)] for name, t in tensors if id(t) in other}
            stack.enter_context(_reparametrize_module(module, named, tie_weights=True))
        yield


@contextlib.contextmanager
def _attributes_kept(modules: Sequence[torch.nn.Module], recorder: Recorder) -> Iterator[None]:
    """Refuse a program that puts another tensor in the place of one of a module that it reads, and put that one back.

    A plain attribute that is made anew and not read before, as a normed weight is, does no harm.
    """
    places: list[dict[str, Any]] = [
        p for m in modules for inner in m.modules() for p in (inner._buffers, inner._parameters, vars(inner))
    ]
    had = [{name: t for name, t in place.items() if isinstance(t, torch.Tensor)} for place in places]
    changed: list[Any] = []
    try:
        yield
    finally:
        for place, tensors in zip(places, had, strict=True):
            changed.extend((name, tensor) for name, tensor in tensors.items() if place.get(name) is not tensor)
            place.update(tensors)
    read = {id(t) for _, t in recorder.captures} | {id(t) for m in modules for t in (*m.buffers(), *m.parameters())}
    changed = [name for name, tensor in changed if id(tensor) in read]
    if changed:
        raise Unsupported(
            f"the program puts another tensor in the place of {changed[0]}; write to it instead, as copy_() does",
            stage="capture",
        )


def _needs_grad(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


def _clone(leaves: Sequence[Any], *, tracked: bool) -> list[Any]:
    """Clone the tensors, one clone for each: the program must not write to its caller's while it is captured.

    Unless clones are ``tracked``, autograd knows nothing of them: where they are functionalized, their wrappers are.
    """
    clones: dict[int, torch.Tensor] = {}
    out: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            if id(leaf) not in clones:
                clones[id(leaf)] = _clone_tensor(leaf).requires_grad_(tracked and leaf.requires_grad)
            leaf = clones[id(leaf)]
        out.append(leaf)
    return out


def _clone_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Clone with the same sizes, strides, offset and storage around it: a program may look at all of them."""
    plain = tensor.detach()
    if plain.layout is not torch.strided or (plain.is_contiguous() and not plain.storage_offset()):
        return plain.clone()
    storage = plain.untyped_storage().clone()
    copy = torch.empty(0, dtype=plain.dtype).set_(storage, plain.storage_offset(), plain.shape, plain.stride())
    copy = torch._neg_view(copy) if plain.is_neg() else copy
    return torch._conj(copy) if plain.is_conj() else copy

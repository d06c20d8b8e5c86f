"""What a frontend gives: the graph, and how it is bound to the program's arguments and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch

from torchstone.compiler._torch import pytrees as pytree
from torchstone.compiler.capture.leaves import (
    Aliased,
    Computed,
    Integer,
    Number,
    Result,
    Scalar,
    Shared,
    Size,
    Sizes,
    View,
)  # fmt: skip
from torchstone.compiler.capture.memory.argument_memory import accumulate_gradient, check_layouts, check_separate
from torchstone.compiler.capture.memory.layouts import Copying, check_copied, check_strides
from torchstone.compiler.capture.nesting import form
from torchstone.compiler.capture.state.ambient import check_settings, settings
from torchstone.compiler.capture.state.blind import Places, unread
from torchstone.compiler.capture.state.checks import Found, State
from torchstone.compiler.capture.state.effects import Containers, Effect, Existing, replay
from torchstone.compiler.capture.state.heap import Slot
from torchstone.compiler.capture.tensor_guards import Facts
from torchstone.compiler.capture.trace.aten_literals import FROM_TORCH, TO_TORCH
from torchstone.compiler.diagnostics import GuardError, Unsupported
from torchstone.compiler.ir import Expr, Graph, TensorType, Value
from torchstone.compiler.ir.dims import Dim, evaluate, renamed, solve, symbols
from torchstone.compiler.ir.sizes import SizeRange
from torchstone.compiler.ops.control import same_number

Guard = Callable[[Mapping[str, int]], "str | None"]
Kernel: TypeAlias = "Callable[[Sequence[Any]], Sequence[Any]]"


@dataclass(slots=True)
class Captured:
    """A captured program.

    ``leaves`` are those of the example's arguments: a tensor is an argument of the graph, an Integer a size, anything
    else is a constant the program was specialized to. The graph's arguments are those tensors in order, then
    ``captures`` (tensors the program holds, read afresh at each call), then the leaves numbered in ``integers``, which
    no tensor has as a size. Its outputs are the tensors among the results, then the new value of each argument in
    ``mutated``, then the gradient of each argument in ``gradients``. ``results`` tells the leaves of the program's
    result. ``fresh`` says that the program looks at gradients, which have to be None before.
    ``row_major`` says that it goes by places in memory: an argument has to be row-major where the example's was, and
    else have its strides.
    ``state`` are the Python objects that the program reaches, if there is anything to ask of them. ``sources`` are the
    places in it that hold each of ``captures``, empty for a tensor that is in none. Its numbers come after the leaves
    of the arguments. ``effects`` are what the program does to such objects, and to the containers of its arguments:
    ``results`` goes on with the leaves of what it puts there. ``unread`` are arguments that it only adds to.
    ``bases`` are outputs after the results' own that are no result, but what some are views of. ``told`` are outputs
    with the places that values tell, by the symbol which a view has for one. ``copied`` are the
    arguments, and views of them, that eager has to copy too.
    ``facts`` are what the program asks of tensors beside their values.
    ``layouts`` are the arguments that have to lie in memory as the example's did, because random numbers go by that.
    ``specialized`` tells what numbers and sizes, read from the values of tensors, the program was specialized to.
    ``otherwise`` is the program specialized to its numbers, for a target that does not take them as they are here.
    ``reads`` are the numbers that Python read, and ``sizes`` the shapes that values told, when it was captured so.
    ``ranges`` are the least and the greatest that each symbol may be, ``hints`` what it is for the example, ``names``
    what the user calls it, and ``optima`` the size that an engine is to be tuned for.
    ``example`` says what the sizes that values tell are for the example, as far as that is known; ``places`` which
    argument, or which of the numbers read, such a symbol is; ``without`` captures the program again, with constants in
    the place of symbols.
    """

    graph: Graph
    leaves: list[Any]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec
    results: list[Result]
    captures: list[torch.Tensor] = field(default_factory=list)
    mutated: list[int] = field(default_factory=list)
    gradients: list[int] = field(default_factory=list)
    fresh: bool = False
    guards: list[Guard] = field(default_factory=list)
    ranges: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    hints: dict[str, int] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    optima: dict[str, int] = field(default_factory=dict)
    integers: list[int] = field(default_factory=list)
    specialized: list[str] = field(default_factory=list)
    row_major: bool = False
    bases: Sequence[Computed] = ()
    told: Mapping[str, int] = field(default_factory=dict)
    copied: Sequence[tuple[int, View | None, Copying]] = ()
    layouts: Sequence[tuple[int, tuple[Dim, ...] | None]] = ()
    otherwise: Captured | None = None
    state: State | None = None
    sources: list[list[Slot]] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    unread: Places = frozenset()
    facts: Facts = field(default_factory=Facts)
    _settings: tuple[Any, ...] = field(default_factory=settings)
    _objects: bool | None = None  # whether a call needs its objects again
    reads: list[Any] = field(default_factory=list)
    sizes: list[Any] = field(default_factory=list)
    example: dict[str, int] = field(default_factory=dict)
    places: dict[str, tuple[str, int]] = field(default_factory=dict)
    without: Callable[[set[str]], Captured | None] | None = None
    _held: tuple[Found | None, list[torch.Tensor], list[tuple[Value, torch.dtype, torch.Size]]] | None = None
    _same: list[tuple[int, int]] = field(default_factory=list)
    _one: list[tuple[int, int]] = field(default_factory=list)  # the same pairs, as arguments of the graph
    _flat: int | None = None
    _plain: list[tuple[torch.dtype, torch.Size]] | None = None
    _sharing: list[tuple[int, Shared]] = field(default_factory=list)
    _checked: set[tuple[int, ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        first: dict[int, int] = {}
        places = {
            i: n for n, i in enumerate(i for i, x in enumerate(self.leaves) if isinstance(x, torch.Tensor | Scalar))
        }
        for index, leaf in enumerate(self.leaves):
            if isinstance(leaf, torch.Tensor) and first.setdefault(id(leaf), index) != index:
                self._same.append((first[id(leaf)], index))
                self._one.append((places[first[id(leaf)]], places[index]))
        # How many arguments there are, when none is nested: those of most calls need no pytree, which takes longest.
        positional, keyword = self.in_spec.children()
        if not keyword.num_leaves and positional.num_children == positional.num_leaves == positional.num_nodes - 1:
            self._flat = positional.num_children

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the leaves of a call's arguments; GuardError when they are nested in another way."""
        if not kwargs and len(args) == self._flat:
            for arg in args:
                if not isinstance(arg, torch.Tensor):
                    break
            else:
                return list(args)
        leaves, spec = flatten_arguments(args, kwargs)
        if spec != self.in_spec:
            raise GuardError(f"compiled for a call like {form(self.in_spec)}, called like {form(spec)}")
        return leaves

    def call(self, kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the program's result for these arguments, and do to Python's objects what it does.

        GuardError, before anything runs, when the arguments or the objects do not fit what was captured.
        """
        given: Any = (args, kwargs)
        check_settings(self._settings)
        if self.unread:
            args, kwargs = unread(args, kwargs, self.unread)
        leaves = self.flatten(args, kwargs)
        if self.state is None:
            tensors, sizes = self.bind(leaves)
            out = self.finish(kernel(tensors), tensors, sizes)
            self.facts.leave(leaves, None, None)
            return self.unflatten(out)
        found = self.state.find(leaves)
        containers = Containers(args, kwargs) if self._looks_at_objects else None
        if self.effects:
            self.state.check_distinct(found, Containers(*given).mutable())
        tensors, sizes = self.bind(leaves, found)
        out = self.finish(kernel(tensors), tensors, sizes)
        self.facts.leave(leaves, self.state, found)

        def resolve(existing: Existing) -> Any:
            if existing.place is not None:
                return given[isinstance(existing.place, str)][existing.place]
            return (
                containers.found[existing.number]
                if existing.argument and containers
                else found.objects[existing.number]
            )

        for again in self.state.again:
            again()
        if not self._looks_at_objects:
            return self.unflatten(out)
        out = [resolve(leaf) if isinstance(leaf, Existing) else leaf for leaf in out]
        count = self.out_spec.num_leaves
        replay(self.effects, out[count:], resolve, self.state, found)
        return self.unflatten(out[:count])

    def arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return what a call gives to the kernel; GuardError when its arguments or objects do not fit."""
        leaves = self.flatten(*unread(args, kwargs, self.unread))
        return self.bind(leaves, None if self.state is None else self.state.find(leaves))[0]

    def check_objects(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> None:
        """Unsupported when the example's objects are the same in a way that ``call`` does not take."""
        if self.effects and self.state is not None:
            try:
                found = self.state.find(flatten_arguments(*unread(args, kwargs or {}, self.unread))[0])
                self.state.check_distinct(found, Containers(args, kwargs or {}).mutable())
            except GuardError as error:
                raise Unsupported(error.message, stage="capture") from None

    @property
    def _looks_at_objects(self) -> bool:
        if self._objects is None:
            self._objects = bool(self.effects) or any(isinstance(r, Existing) for r in self.results)
        return self._objects

    def bind(self, leaves: Sequence[Any], found: Found | None = None) -> tuple[list[Any], Sizes]:
        """Return what the graph's arguments are, and the value of each symbol; ``found`` are the state's objects.

        GuardError when the arguments do not fit what was captured.
        """
        if self.facts:
            self.facts.check(leaves, self.state, found)
        if self.state is not None and found is not None and self.state.numbers:
            leaves = [*leaves, *(self.state.number(found, slot) for slot in self.state.numbers)]
        if self._plain is None:
            self._plain = self._plainly()
        if self._plain and len(leaves) == len(self._plain):
            for leaf, (dtype, shape) in zip(leaves, self._plain, strict=True):
                if not isinstance(leaf, torch.Tensor) or leaf.dtype is not dtype or leaf.shape != shape:
                    break
                if not leaf.is_cpu:
                    break
            else:
                return list(leaves), {}
        tensors: list[Any] = []
        integers: list[tuple[str, Dim, int]] = []
        for index, (leaf, example) in enumerate(zip(leaves, self.leaves, strict=True)):
            if isinstance(example, torch.Tensor):
                if not isinstance(leaf, torch.Tensor):
                    raise GuardError(f"{self._name(index)} was a tensor when compiled, is {leaf!r}")
                tensors.append(leaf)
            elif isinstance(example, Integer):
                if type(leaf) is not int:
                    raise GuardError(f"{self._name(index)} was an int when compiled, is {leaf!r}")
                integers.append((f"argument {index}", example.dim, leaf))
            elif isinstance(example, Scalar):
                tensors.append(_scalar(self._name(index), example, leaf))
            elif type(leaf) is not type(example) or not same_number(leaf, example):
                raise GuardError(
                    f"{self._name(index)} was {example!r} when compiled and is part of the program, is {leaf!r}"
                )
        if self.row_major:
            check_layouts(tensors, [x if isinstance(x, torch.Tensor) else None for x in self.tensors()])
        for one, other in self._same:
            if leaves[one] is not leaves[other]:
                raise GuardError(f"arguments {one} and {other} were one tensor when compiled, are two")
        sizes = self._sizes(tensors, integers)
        self._extend(tensors, found)
        check_strides(self.layouts, tensors, sizes)
        if self.copied:
            check_copied(self.copied, tensors, sizes)
        if self.mutated:
            check_separate(tensors, self.mutated, self._one)
        if self.fresh and any(t.is_leaf and t.grad is not None for t in tensors if t.requires_grad):
            raise GuardError("the program looks at gradients, and was compiled when there were none: zero_grad() first")
        tensors.extend(leaves[i] for i in self.integers)
        return tensors, sizes

    def tensors(self) -> list[Any]:
        """Return the leaves that are arguments of the graph."""
        return [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor | Scalar)]

    def _name(self, index: int) -> str:
        """Return what a leaf is called: an argument, or a number of the state, which come after those."""
        place = index - self.in_spec.num_leaves
        return f"argument {index}" if place < 0 or self.state is None else self.state.show(self.state.numbers[place])

    def _extend(self, tensors: list[Any], found: Found | None) -> None:
        """Add the tensors that the program holds to its arguments, as they are now."""
        if found is None or self._held is None or found is not self._held[0]:
            state, held = self.state, self.captures
            if state is not None and found is not None:
                pairs = zip(self.captures, self.sources, strict=True)
                held = [state.tensor(found, slots) if slots else tensor for tensor, slots in pairs]
            args = self.graph.args[len(tensors) : len(tensors) + len(held)]
            shapes = [torch.Size(arg.tensor.dims) for arg in args]  # type: ignore[arg-type] - no symbols: they are held
            wanted = [(arg, TO_TORCH[arg.tensor.dtype], shape) for arg, shape in zip(args, shapes, strict=True)]
            self._held = found, held, wanted
        _, held, wanted = self._held
        for tensor, (arg, dtype, shape) in zip(held, wanted, strict=True):
            if tensor.dtype is not dtype or tensor.shape != shape or not tensor.is_cpu:
                raise GuardError(_misfit(arg, tensor))
        tensors.extend(held)

    def check_examples(self) -> None:
        """Unsupported when the example's own arguments share memory in a way that ``bind`` does not take."""
        tensors = [torch.empty(()) if isinstance(x, Scalar) else x for x in self.leaves]
        try:
            given = [x for x in tensors if isinstance(x, torch.Tensor)]
            check_separate(given + self.captures, self.mutated, self._one)
        except GuardError as error:
            raise Unsupported(error.message, stage="capture") from None

    def _plainly(self) -> list[tuple[torch.dtype, torch.Size]]:
        """Return what the arguments are when that is all there is to ask of them, as it mostly is; else nothing.

        The questions of ``bind`` and ``_sizes`` take longer than a small kernel.
        """
        special = self.captures or self.mutated or self.fresh or self.integers or self.row_major
        special = special or self.layouts or self.copied or (self.state is not None and self.state.numbers)
        if special or self._same or not all(isinstance(x, torch.Tensor) for x in self.leaves):
            return []
        kinds = [arg.tensor for arg in self.graph.args]
        if not all(k.is_static for k in kinds):
            return []
        return [(TO_TORCH[k.dtype], torch.Size(k.dims)) for k in kinds]  # type: ignore[arg-type]

    def _sizes(self, tensors: Sequence[torch.Tensor], integers: Sequence[tuple[str, Dim, int]]) -> Sizes:
        values: dict[str, int] = {}
        derived: list[tuple[str, Dim, int]] = []
        for arg, tensor in zip(self.graph.args, tensors, strict=False):
            kind = arg.type
            assert isinstance(kind, TensorType)
            dtype = FROM_TORCH.get(tensor.dtype)
            if dtype != kind.dtype or tensor.dim() != kind.rank or tensor.device.type != "cpu":
                raise GuardError(_misfit(arg, tensor))
            for axis, (dim, size) in enumerate(zip(kind.shape, tensor.shape, strict=True)):
                if isinstance(dim, int):
                    if dim != size:
                        raise GuardError(_misfit(arg, tensor))
                elif isinstance(dim, Expr):
                    name = str(dim)
                    if name.isidentifier() and values.setdefault(name, size) != size:
                        raise GuardError(f"{_misfit(arg, tensor)}: {name} is {values[name]} in an earlier argument")
                    if not name.isidentifier():
                        derived.append((f"size {axis} of %{arg.name}", dim, size))
        for what, dim, value in integers:
            if not str(dim).isidentifier():
                derived.append((what, dim, value))
            elif values.setdefault(str(dim), value) != value:
                raise GuardError(f"{what} must be {dim} = {values[str(dim)]}, is {value}")
        for _, dim, size in derived:  # a symbol that is the size of none: it is told by what is made of it
            if isinstance(dim, Expr) and (found := solve(dim, size)) is not None:
                values.setdefault(*found)
        if values or derived:
            self._check_sizes(values, derived)
        return values

    def _check_sizes(self, values: dict[str, int], derived: list[tuple[str, Dim, int]]) -> None:
        for what, dim, size in derived:
            if symbols(dim) <= set(values) and evaluate(dim, values) != size:
                raise GuardError(f"{what} must be {renamed(dim, self.names)} = {evaluate(dim, values)}, is {size}")
        key = tuple(values.values())
        if key in self._checked:
            return
        for name, value in values.items():
            low, high = self.ranges.get(name, (0, None))
            if value < low or (high is not None and value > high):
                bounds = f"[{low}, {'inf' if high is None else high}]"
                raise GuardError(f"{self._place(name)} must be in {bounds}, is {value}")
        for guard in self.guards:
            if message := guard(values):
                raise GuardError(message)
        self._checked.add(key)

    def _place(self, symbol: str) -> str:
        """Return what the user calls a symbol, and where it is a size, or part of one."""
        called = f"size {self.names.get(symbol, symbol)}"
        kinds = [(arg.name, arg.type) for arg in self.graph.args if isinstance(arg.type, TensorType)]
        places = [(dim, axis, name) for name, kind in kinds for axis, dim in enumerate(kind.dims)]
        for dim, axis, name in sorted(places, key=lambda place: str(place[0]) != symbol):
            if symbol in symbols(dim):
                made = "" if str(dim) == symbol else f" as {renamed(dim, self.names)}"
                return f"{called}, dim {axis} of %{name}{made},"
        return called

    def size_ranges(self) -> dict[str, SizeRange]:
        """Return what each symbol of the sizes of arguments may be."""
        optima = {**self.hints, **self.optima}
        used = {s for arg in self.graph.args if isinstance(arg.type, TensorType) for s in arg.type.symbols}
        return {
            symbol: SizeRange(self.names.get(symbol, symbol), low, optima.get(symbol), high)
            for symbol, (low, high) in self.ranges.items()
            if symbol in used
        }

    def finish(self, outputs: Sequence[Any], tensors: Sequence[torch.Tensor], sizes: Sizes) -> list[Any]:
        """Write mutated arguments and gradients back; return the leaves of the program's result."""
        written = len(outputs) - len(self.gradients)
        if self.gradients or self.mutated:
            with torch.no_grad():
                for index, value in zip(self.gradients, outputs[written:], strict=True):
                    accumulate_gradient(tensors[index], value)
                for index, value in zip(self.mutated, outputs[written - len(self.mutated) : written], strict=True):
                    tensors[index].copy_(value)
        if self.told:
            sizes = {**sizes, **{name: int(outputs[index]) for name, index in self.told.items()}}
        made: dict[int, Any] = {}  # a set that is in two places is one
        leaves = [_leaf(result, outputs, tensors, sizes, made) for result in self.results]
        if self._sharing:
            bases = {r.index: leaf for r, leaf in zip(self.results, leaves, strict=True) if isinstance(r, Computed)}
            bases.update({r.index: _leaf(r, outputs, tensors, sizes, made) for r in self.bases})
            for place, result in self._sharing:
                base = bases[result.base]
                leaves[place] = base if result.view is None else result.view(base, sizes)
        return leaves

    def unflatten(self, leaves: list[Any]) -> Any:
        """Return the program's result."""
        return leaves[0] if self.out_spec.is_leaf() else pytree.tree_unflatten(leaves, self.out_spec)

    def drop_aliased(self) -> None:
        """Let results that are arguments, other results or views of them be that: their elements are not computed."""
        kept = [r.index for r in self.results if isinstance(r, Computed | Number)]
        kept.extend((*(base.index for base in self.bases), *self.told.values()))
        place = {index: new for new, index in enumerate(dict.fromkeys(kept))}
        self.bases = [replace(base, index=place[base.index]) for base in self.bases]
        self.told = {name: place[index] for name, index in self.told.items()}
        written = len(self.graph.outputs) - len(self.mutated) - len(self.gradients)
        self.graph.outputs = (*(self.graph.outputs[i] for i in place), *self.graph.outputs[written:])
        self.results = [
            replace(r, index=place[r.index])
            if isinstance(r, Computed | Number)
            else replace(r, base=place[r.base])
            if isinstance(r, Shared)
            else r
            for r in self.results
        ]
        self._sharing = [(i, r) for i, r in enumerate(self.results) if isinstance(r, Shared)]

    def keep_aliased(self) -> None:
        """Let the graph compute every result into memory of its own."""
        self.bases, self.told = (), {}
        self.results = [Computed(r.index) if isinstance(r, Aliased | Shared) else r for r in self.results]


def flatten_arguments(args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> tuple[list[Any], pytree.TreeSpec]:
    """Return the leaves of a call's arguments and how they are nested. Keyword arguments come in order of name."""
    return pytree.tree_flatten((tuple(args), dict(sorted((kwargs or {}).items()))))


def constants(leaves: Sequence[Any]) -> list[str]:
    """Tell which arguments are numbers that a program was specialized to."""
    return [f"argument {i} is {e!r}" for i, e in enumerate(leaves) if isinstance(e, bool | int | float | complex)]


def _leaf(
    result: Result, outputs: Sequence[Any], tensors: Sequence[torch.Tensor], sizes: Sizes, made: dict[int, Any]
) -> Any:
    match result:
        case Computed(index, strides):
            out = outputs[index]
            if strides is None:
                return out
            return out.new_empty_strided(out.shape, [evaluate(s, sizes) for s in strides]).copy_(out)
        case Aliased(arg, view):
            return tensors[arg] if view is None else view(tensors[arg], sizes)
        case Number(index):
            return outputs[index].item()
        case Existing():
            return result  # found when the call is known
        case Shared():
            return None  # when what it is a view of is there
        case Size(dim):
            return evaluate(dim, sizes)
    return made.setdefault(id(result.value), copy(result.value)) if isinstance(result.value, set) else result.value


def _scalar(name: str, example: Scalar, leaf: Any) -> torch.Tensor:
    if type(leaf) is not example.kind:
        raise GuardError(f"{name} was of class {example.kind.__name__} when compiled, is {leaf!r}")
    try:
        return torch.tensor(leaf, dtype=example.dtype)
    except (RuntimeError, ValueError, OverflowError):
        raise GuardError(f"{name} is {leaf}, which is no {str(example.dtype).removeprefix('torch.')}") from None


def _misfit(arg: Value, tensor: torch.Tensor) -> str:
    dtype = FROM_TORCH.get(tensor.dtype, tensor.dtype)
    return f"%{arg.name} was compiled as {arg.type}, got {dtype}{list(tensor.shape)} on {tensor.device}"

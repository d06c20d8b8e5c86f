"""Results that are arguments of the program or other results, or views of those.

PyTorch's alias annotations say which ops are views.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from torchstone.compiler._torch.operators import schema_of
from torchstone.compiler.capture.leaves import Aliased, Computed, Result, Shared, Sizes, View
from torchstone.compiler.capture.memory.layouts import Copying, Layouts, Strides, row_major
from torchstone.compiler.capture.memory.shared_results import Base, Copied
from torchstone.compiler.capture.symbolic.numbers import NumberEmitter
from torchstone.compiler.capture.trace.aten_literals import from_literal
from torchstone.compiler.capture.trace.schemas import schema_call
from torchstone.compiler.diagnostics import GuardError
from torchstone.compiler.ir import Graph, Location, Operation, Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import evaluate, symbol
from torchstone.compiler.ir.sizes import symbols_bound, symbols_written

ViewStep = tuple[Operation, int]

# Views of which two elements may be one in memory.
_OVERLAPPING = frozenset({"aten.expand.default", "aten.as_strided.default", "aten.unfold.default"})
_UNSAFE_VIEW = "aten._unsafe_view.default"
# Views in fact, whose schemas say nothing of it.
_VIEWS_OF_WHAT_NOBODY_HAS = frozenset(
    {
        _UNSAFE_VIEW,
        "aten.unsafe_split.Tensor",
        "aten.unsafe_split_with_sizes.default",
        "aten.unsafe_chunk.default",
    }
)

# Views of a tensor whatever its strides are: a result that is computed need not lie in memory as it does in eager.
_ON_ANY_STRIDES = frozenset(
    f"aten.{name}"
    for name in (
        "alias.default", "detach.default", "diagonal.default", "expand.default", "narrow.default", "permute.default",
        "select.int", "slice.Tensor", "split.Tensor", "split_with_sizes.default", "squeeze.default", "squeeze.dim",
        "squeeze.dims", "t.default", "transpose.int", "unbind.int", "unfold.default", "unsqueeze.default",
    )
)  # fmt: skip


@dataclass(slots=True)
class Told:
    """What the results are, with the tensors that are outputs after them, and the copies that could be views.

    ``laid_out`` are the values whose layout decides what is a view of what. ``places`` are symbols for
    places that ops take from values, ``steps`` the views that a result is made with.
    """

    results: list[Result]
    bases: list[Base]
    guards: list[Copied]
    copied: list[tuple[int, View | None, Copying]]
    laid_out: list[Value] = field(default_factory=list)
    places: dict[str, Value | None] = field(default_factory=dict)

    steps: dict[int, list[Operation]] = field(default_factory=dict)

    def emit_places(self, graph: Graph) -> dict[str, Value]:
        """Return the values of the symbols that values tell in the views among the results, as ops of the graph."""
        run_time = self.places.keys() | symbols_bound(graph)
        names = {name for steps in self.steps.values() for op in steps for name in symbols_written(op) & run_time}
        emitter = NumberEmitter(graph.ops, Location())
        told = {name: self.places.get(name) for name in sorted(names)}
        return {name: emitter.constant(symbol(name), dt.int64) if v is None else v for name, v in told.items()}


def results_of(
    graph: Graph,
    values: Sequence[Value],
    mutated: Sequence[int] = (),
    written: Sequence[Any] = (),
    *,
    layouts: Layouts | None = None,
) -> Told:
    """Tell what the tensors among a program's results are: outputs of the graph in this order, or aliases.

    ``written`` holds the new values of the arguments ``mutated``. A view of one of those is a view of the argument.
    With ``layouts``, which knows how values lie in memory, what is no result and has two views that are is an
    output too, after the others; such a view refers to it as output ``len(values)`` and so on.
    """
    roots = {id(arg): index for index, arg in enumerate(graph.args) if index not in mutated}
    roots.update({id(value): index for index, value in zip(mutated, written, strict=True) if isinstance(value, Value)})
    makers: Makers = {id(r): (op, i) for op in graph.ops for i, r in enumerate(op.results)}
    if layouts is not None:
        makers.update({id(value): (op, 0) for value, op in layouts.by_memory})
    places: dict[str, Value | None] = {}
    chains = [_chain(value, roots, makers, places) for value in values]
    told = Told([], [], [], [])
    shown = [id(value) for value, _ in chains]
    strided = _tell(told, values, chains, roots, layouts)
    for place, strides in strided.items():
        if strides is not None and place < len(values):
            told.results[place] = Computed(place, strides)
    if layouts is not None:
        _copies(
            told,
            [*values, *(r for r, _ in chains)],
            roots,
            makers,
            layouts,
            shown,
            places.keys() | symbols_bound(graph),
        )
    told.places = places
    for index, (_, steps) in enumerate(chains):
        if not isinstance(told.results[index], Computed):
            told.steps[index] = [op for op, _ in steps]
    return told


def _tell(
    told: Told,
    values: Sequence[Value],
    chains: Sequence[tuple[Value, list[ViewStep]]],
    roots: Mapping[int, int],
    layouts: Layouts | None,
) -> dict[int, Strides]:
    """Tell what each value is. Return the strides of outputs whose views are replayed in their memory, by place."""
    first: dict[int, int] = {}
    for index, value in enumerate(values):
        first.setdefault(id(value), index)
    shown = [id(value) for value, _ in chains]
    strided: dict[int, Strides] = {}
    for index, (root, steps) in enumerate(chains):
        view = _Replayed(steps) if steps else None
        plain = all(op.name in _ON_ANY_STRIDES for op, _ in steps)
        overlapping = layouts is not None and any(op.name in _OVERLAPPING for op, _ in steps)
        if id(root) in roots:
            told.results.append(Aliased(roots[id(root)], view, index))
        elif (
            first.get(id(root)) == index
            or (layouts is None and not (plain and id(root) in first))
            or (shown.count(id(root)) == 1 and not overlapping)
        ):
            told.results.append(Computed(index))
        else:
            if not plain or id(root) not in first:
                strided[id(root)] = layouts.layout(root) if layouts is not None else None
            if not plain:
                told.laid_out.append(root)
            if id(root) not in first:
                first[id(root)] = len(values) + len(told.bases)
                told.bases.append(Base(root, strided[id(root)]))
            told.results.append(Shared(first[id(root)], view, index))
    return {first[root]: strides for root, strides in strided.items()}


Makers = dict[int, ViewStep]


def _chain(
    value: Value, roots: Mapping[int, int], makers: Makers, places: dict[str, Value | None]
) -> tuple[Value, list[ViewStep]]:
    """Return the tensor that a value is a view of, however far up, and the steps from there."""
    steps: list[ViewStep] = []
    while id(value) not in roots:
        op, number = makers.get(id(value), (None, 0))
        if op is not None and _selects(op):
            op = _selection(op, places)
        if op is None or not is_view(op):
            break
        steps.append((op, number))
        operand = op.operands[0]
        assert isinstance(operand, Value)
        value = operand
    return value, steps[::-1]


def _selection(op: Operation, places: dict[str, Value | None]) -> Operation:
    """Return the view that an op of ``AT_PLACE`` is in eager, with a symbol for the place."""
    x, indices = op.operands
    assert isinstance(indices, tuple)
    (index,) = (i for i in indices if i is not None)
    name = next((n for n, v in places.items() if v is index), f"place{len(places)}")
    places[name] = index
    return Operation("aten.select.int", (x, len(indices) - 1, symbol(name)), op.results, {}, op.location)


def _selects(op: Operation) -> bool:
    """Say whether an op is a view in eager, of a place that values tell: see ``special_ops.AT_PLACE``."""
    return op.name == "aten.index.Tensor" and any("aten.select.int" in note for note in op.location.notes)


def _copies(
    told: Told, values: Sequence[Value], roots: Mapping[int, int], makers: Makers, layouts: Layouts,
    shown: Sequence[int], run_time: Collection[str],
) -> None:  # fmt: skip
    """Note the copies among the results that eager may spare, of what has views among them too."""
    outputs = list({id(v): v for v in values}.values())
    for value in outputs:
        op, _ = makers.get(id(value), (None, 0))
        copying = None if op is None else _copying(op)
        if op is None or copying is None:
            continue
        operand = op.operands[0]
        assert isinstance(operand, Value)
        root, steps = _chain(operand, roots, makers, {})
        if any(symbols_written(step) & set(run_time) for step, _ in steps):
            continue  # which copies those are is not known before the call
        reshaped = [o for o in makers.values() if o[0].name == _UNSAFE_VIEW and o[0].operands[0] is value]
        copying = replace(copying, into=reshaped[0][0].result.shape) if reshaped else copying
        if id(root) in roots:
            example = layouts.example(operand) if id(root) not in makers and copying.into is None else None
            if example is not None and copying.spares(example, {}):
                continue  # or there were no copy in the program: it asks for one whatever it is of
            told.copied.append((roots[id(root)], _Replayed(steps) if steps else None, copying))
        elif id(root) in shown:
            strides = layouts.layout(operand) or row_major(operand.shape)
            told.laid_out.append(root)
            told.guards.append(Copied("a reshape of a result", operand.shape, strides, copying))


def _copying(op: Operation) -> Copying | None:
    """Return what ``contiguous``, ``reshape`` or ``to`` of a memory format may have been, once recorded as a copy."""
    if op.name not in ("aten.clone.default", "aten._to_copy.default"):
        return None
    to, source = op.name != "aten.clone.default", op.operands[0]
    name = getattr(op.operands[-1], "value", None)
    if name in (None, "preserve_format") or (to and isinstance(source, Value) and source.dtype != op.result.dtype):
        return None
    return Copying(getattr(torch, name), to)


def is_view(op: Operation) -> bool:
    """Say whether an ATen op's results share the memory of its first operand."""
    if op.name.startswith("flat."):
        return False
    if op.name in _VIEWS_OF_WHAT_NOBODY_HAS:
        return True
    schema = schema_of(_overload(op))
    aliased = [a for a in schema.arguments if a.alias_info is not None]
    returned = [r.alias_info for r in schema.returns]
    return (
        bool(aliased)
        and aliased == [schema.arguments[0]]
        and isinstance(op.operands[0], Value)
        and not schema.is_mutable
        and all(info is not None for info in returned)
    )


def _overload(op: Operation) -> Any:
    namespace, packet, overload = op.name.split(".", 2)
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


class _Replayed:
    """A view made by the ATen ops that the program made it with, on whatever strides the argument has."""

    def __init__(self, steps: Sequence[ViewStep]) -> None:
        self._steps = [(_overload(op), op, number) for op, number in steps]

    def __call__(self, tensor: torch.Tensor, sizes: Sizes) -> torch.Tensor:
        for overload, op, number in self._steps:
            literals = [from_literal(operand, lambda dim: evaluate(dim, sizes)) for operand in op.operands[1:]]
            args, kwargs = schema_call(overload, [tensor, *literals])
            try:
                out = overload(*args, **kwargs)
            except RuntimeError as error:
                raise GuardError(f"{overload} of an argument is no view for its strides: {error}") from None
            tensor = out[number] if isinstance(out, list | tuple) else out
        return tensor

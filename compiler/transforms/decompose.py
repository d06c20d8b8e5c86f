"""The pass ``decompose``: ATen ops with neither a rule of ours nor a place in the target become simpler ATen ops.

The decompositions are PyTorch's own. Each is run on fake tensors of the op's types under the recorder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.operators import is_composite
from torchstone.compiler.capture.program import Guard
from torchstone.compiler.capture.symbolic.conditions import guards_of
from torchstone.compiler.capture.symbolic.run_time_sizes import require_guards
from torchstone.compiler.capture.trace.aten_literals import TO_TORCH, from_literal
from torchstone.compiler.capture.trace.recorder import Mutation, Recorder
from torchstone.compiler.capture.trace.schemas import find_overload, schema_call
from torchstone.compiler.diagnostics import TorchstoneError, Unsupported, describe, raise_bug
from torchstone.compiler.ir import Graph, Operation, TensorType, Value, map_operand
from torchstone.compiler.ir.sizes import symbols_bound
from torchstone.compiler.transforms.grouped_mm import grouped_mm
from torchstone.compiler.transforms.own_decompositions import own_decompositions
from torchstone.compiler.transforms.shapes import FakeSizes


@cache
def decompositions() -> Mapping[Any, Callable[..., Any]]:
    """PyTorch's table: ours where its own is wrong or missing, then core ATen's, then every other one it registers."""
    from torchstone.compiler._torch.decompositions import core_aten_decompositions, decomposition_table

    table = {**decomposition_table, **core_aten_decompositions()}
    isin, masked_index = torch.ops.aten.isin.Tensor_Tensor, torch.ops.aten._unsafe_masked_index.default
    nll = torch.ops.aten.nll_loss2d_forward.default
    ours = {
        isin: partial(_isin, table[isin]), masked_index: partial(_masked_index, table[masked_index]),
        nll: partial(_nll_loss2d, table[nll]),
    }  # fmt: skip
    return {**table, **own_decompositions(), **ours, torch.ops.aten._grouped_mm.default: grouped_mm}


def _isin(
    original: Callable[..., Any],
    elements: Tensor,
    test_elements: Tensor,
    *,
    assume_unique: bool = False,
    invert: bool = False,
) -> Tensor:
    """PyTorch's, but for NaN among the elements to be found: its search finds no infinity then.

    NaN is sorted behind infinity. The search has to take it for one, and the comparison not.
    """
    count, wanted = test_elements.numel(), elements.flatten()
    few = isinstance(count, int) and isinstance(wanted.shape[0], int) and count < 10 * wanted.shape[0] ** 0.145
    if assume_unique or few or not test_elements.is_floating_point():  # PyTorch's takes few of them one by one
        return original(elements, test_elements, assume_unique=assume_unique, invert=invert)
    found = test_elements.flatten().sort().values
    place = torch.searchsorted(torch.where(found.isnan(), math.inf, found), wanted)
    inside = found[torch.where(place < count, place, 0)] == wanted
    return (inside.logical_not() if invert else inside).reshape(elements.shape)


def _masked_index(
    original: Callable[..., Any], x: Tensor, mask: Tensor, indices: Sequence[Tensor | None], fill: Any
) -> Tensor:
    """PyTorch's, but for places from the end: it takes each of them for the first place, and eager counts back."""
    places = [at if at is None else torch.where(at < 0, at + x.shape[dim], at) for dim, at in enumerate(indices)]
    return original(x, mask, places, fill)


def _nll_loss2d(original: Callable[..., Any], x: Tensor, target: Tensor, *rest: Any) -> Any:
    """PyTorch's, which would take the targets of a smaller image for those of a part."""
    if x.shape[0] != target.shape[0] or x.shape[2:] != target.shape[1:]:
        raise RuntimeError(f"size mismatch (got input: {list(x.shape)}, target: {list(target.shape)})")
    return original(x, target, *rest)


def decompose(graph: Graph, keep: Callable[[Operation], bool], hints: Mapping[str, int]) -> tuple[Graph, list[Guard]]:
    """Return a graph in which every ``aten`` op is kept or has no decomposition, and the guards the tracing added.

    ``keep(op)`` says that an op needs no decomposition. ``hints`` gives an example size for each symbol.
    """
    if all(keep(op) and not op.graphs for op in graph.ops):
        return graph, []
    sizes = FakeSizes(hints)
    guards: list[Guard] = []
    out = Graph(graph.name, graph.args)
    values: dict[int, Any] = {id(a): a for a in graph.args}

    def mapped(leaf: Any) -> Any:
        return values.get(id(leaf), leaf) if isinstance(leaf, Value) else leaf

    def nested(inner: Graph) -> Graph:
        inner, more = decompose(inner, keep, hints)
        guards.extend(more)
        return inner

    def place(op: Operation, ancestors: frozenset[str]) -> None:
        operands = tuple(map_operand(o, mapped) for o in op.operands)
        moved = Operation(op.name, operands, op.results, op.attributes, op.location)
        traced = None if keep(op) else _trace(moved, sizes)
        # A decomposition that leads back to an op it came from makes no progress.
        if traced is None or any(inner.name in {*ancestors, op.name} for inner in traced[0]):
            out.ops.append(moved.with_graphs(nested))
            return
        ops, results = traced
        for inner in ops:
            place(inner, ancestors | {op.name})
        values.update({id(old): mapped(new) for old, new in zip(op.results, results, strict=True)})

    for op in graph.ops:
        place(op, frozenset())
    out.outputs = tuple(map_operand(o, mapped) for o in graph.outputs)
    require_guards(out, sizes.env, sizes.torch_names)
    return out, [*guards, *guards_of(sizes.env, sizes.torch_names, without=symbols_bound(out))]


def _trace(op: Operation, sizes: FakeSizes) -> tuple[list[Operation], list[Any]] | None:
    """Run the decomposition of ``op``; None when PyTorch has none for these arguments."""
    func = find_overload(op.name)
    fn = decompositions().get(func)
    if fn is None and not is_composite(func):
        return None
    recorder = Recorder(op.name)
    recorder.location = op.location.noted(op.name)
    sizes.location = recorder.location
    with sizes.mode:
        fakes: dict[int, torch.Tensor] = {}

        def fake(leaf: Any) -> Any:
            if isinstance(leaf, Value):
                if isinstance(leaf.type, TensorType) and id(leaf) not in fakes:
                    fakes[id(leaf)] = sizes.tensor(leaf.type)
                    recorder.alias(fakes[id(leaf)], leaf)
                return fakes.get(id(leaf))
            return from_literal(leaf, sizes.size)

        def convert(operand: Any) -> Any:
            if isinstance(operand, tuple):
                return [convert(item) for item in operand]
            return fake(operand)

        args, kwargs = schema_call(func, [convert(o) for o in op.operands])
        try:
            with recorder:
                out = fn(*args, **kwargs) if fn is not None else func.decompose(*args, **kwargs)
                if out is NotImplemented:
                    return None
                flat = out if isinstance(out, list | tuple) else (out,)
                typed = [_typed(leaf, old.type) for leaf, old in zip(flat, op.results, strict=True)]
                results = [recorder.operand(leaf) for leaf in typed]
        except Mutation as error:
            raise Unsupported(
                f"{op.name}: PyTorch's decomposition writes in place ({error})", op=op.name, where=describe(op)
            ) from None
        except TorchstoneError as error:
            raise Unsupported(f"{op.name}: {error.message}", op=op.name, where=describe(op)) from error
        except Exception as error:  # anything: decompositions of PyTorch check by assertions and by failing
            raise_bug(error)
            raise Unsupported(
                f"{op.name}: PyTorch's decomposition raises {type(error).__name__}: {error}",
                op=op.name,
                where=describe(op),
            ) from error
    if recorder.captures:
        raise Unsupported(f"{op.name}: PyTorch's decomposition uses a constant tensor", op=op.name, where=describe(op))
    sizes.name_back(recorder.graph.ops)
    for old, new in zip(op.results, results, strict=True):
        if isinstance(new, Value) and _differ(old.type, new.type):
            message = f"{op.name}: PyTorch's decomposition gives {new.type} for {old.type}"
            raise Unsupported(message, op=op.name, where=describe(op))
    return recorder.graph.ops, results


def _typed(leaf: Any, kind: Any) -> Any:
    """A result in the dtype that eager gave: of two dtypes a decomposition has the wider, and a loss its input's."""
    if isinstance(leaf, torch.Tensor) and isinstance(kind, TensorType):
        return leaf.to(TO_TORCH[kind.dtype])
    return leaf


def _differ(left: Any, right: Any) -> bool:
    """Whether two types are of tensors that cannot have one shape."""
    if not isinstance(left, TensorType) or not isinstance(right, TensorType):
        return False
    if len(left.dims) != len(right.dims):
        return True
    return any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in zip(left.dims, right.dims, strict=True))

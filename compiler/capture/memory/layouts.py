"""Where random numbers go: PyTorch draws them in the order in which a tensor lies in memory, which no value has.

So an op that draws keeps, as attributes, what eager's call had of memory. ``strides`` has those of each tensor among
its operands, none for a row-major one. Where the program draws into a tensor that it has, ``called`` is the overload
that it calls, and ``into`` are the strides of its ``out=``. The library call is made on tensors that lie so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from torchstone.compiler._torch.functionalization import held_by
from torchstone.compiler._torch.operators import OpOverload, schema_of
from torchstone.compiler._torch.pytrees import tree_leaves
from torchstone.compiler.capture.symbolic.sizes import to_dim
from torchstone.compiler.diagnostics import GuardError, Unsupported
from torchstone.compiler.ir import Graph, Operation, TensorType, Value, map_operand
from torchstone.compiler.ir.dims import Dim, Expr, evaluate, product, substitute, symbol, symbols
from torchstone.compiler.ir.sizes import symbols_bound
from torchstone.compiler.library import is_random

Strides = tuple[Dim, ...] | None

# Results that lie in memory in one way, however the operands do.
_OF_THEIR_OWN = frozenset(
    f"aten.{name}" for name in ("mm.default", "addmm.default", "bmm.default", "baddbmm.default", "embedding.default")
)


# Ops whose graph is that of their in-place form, once PyTorch has functionalized it.
_INTO_A_NEW_ONE = frozenset({torch.ops.aten.bernoulli.p, torch.ops.aten.bernoulli.Tensor})
_INTO = frozenset({"cauchy", "exponential", "geometric", "log_normal", "normal", "random", "uniform"})


def draws(func: Any, leaves: Sequence[Any] = ()) -> bool:
    """Say whether an ATen op takes numbers from PyTorch's generator, with these arguments if they are given."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    given = zip((a.name for a in schema_of(func).arguments), leaves, strict=False)
    return not any(name == "dropout_p" and leaf == 0 for name, leaf in given)


def strides_of(tensor: torch.Tensor) -> Strides:
    """Return how a tensor lies in memory; None for row-major order."""
    shape, strides = [to_dim(s) for s in tensor.shape], tuple(to_dim(s) for s in tensor.stride())
    if all(isinstance(v, int) for v in (*shape, *strides)):
        return None if tensor.is_contiguous() else strides
    rows = row_major(shape)
    return None if all(size == 1 or a == b for size, a, b in zip(shape, strides, rows, strict=True)) else strides


def row_major(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the strides of a tensor in row-major order."""
    return tuple(product(shape[d + 1 :]) for d in range(len(shape)))


@dataclass(frozen=True, slots=True)
class _Call:
    func: Any
    strides: tuple[Strides, ...]
    into: Strides
    sure: bool
    target: torch.Tensor | None


class Layouts:
    """What is known of memory while a program is recorded.

    ``tensors`` has the tensor of each value, by its id; ``by_memory`` the values that ``as_strided`` gave, with the op.
    """

    def __init__(self) -> None:
        self.tensors: dict[int, torch.Tensor] = {}
        self.by_memory: list[tuple[Value, Operation]] = []
        self._renamed: dict[str, Dim] = {}
        self._call: _Call | None = None
        self._order_unsure: dict[int, torch.Tensor] = {}
        self._gaps_unsure: dict[int, torch.Tensor] = {}
        self.arguments: list[Strides] = []

    def layout(self, value: Value) -> Strides:
        """Return how a value lies in memory in eager; None for row-major order."""
        tensor = self.tensors.get(id(value))
        strides = None if tensor is None else strides_of(tensor)
        return strides and tuple(substitute(s, self._renamed) for s in strides)

    def example(self, value: Value) -> torch.Tensor | None:
        """Return a tensor that lies in memory as a value did for the example; None where its sizes are unknown."""
        tensor = self.tensors.get(id(value))
        if tensor is None:
            return None
        sizes, strides = (
            [s.node.hint if isinstance(s, torch.SymInt) else s for s in dims]
            for dims in (tensor.shape, tensor.stride())
        )
        return None if None in (*sizes, *strides) else torch.empty_strided(sizes, strides, device="meta")

    def rename(self, renamed: Mapping[str, str]) -> None:
        """Give the symbols of sizes other names, as the graph has."""
        self._renamed = {old: symbol(new) for old, new in renamed.items()}
        for _, op in self.by_memory:
            op.operands = tuple(map_operand(o, self._under) for o in op.operands)

    def _under(self, leaf: Any) -> Any:
        return substitute(leaf, self._renamed) if isinstance(leaf, Expr) else leaf

    @contextlib.contextmanager
    def calling(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> Iterator[list[Any]]:
        """Note a call of a program that is functionalized: as it is made, and with eager's strides.

        Those are the strides of a functional tensor itself. What it holds lies otherwise once it is written to, where
        its elements have gaps between them, and so does what is made of that: its views, and where the order of the
        dims is another one, all else. What the call gives is to be put into the list.
        """
        tensors = [t for t in tree_leaves((args, dict(kwargs or {}))) if isinstance(t, torch.Tensor)]
        order = any(id(t) in self._order_unsure for t in tensors)
        gaps = any(id(t) in self._gaps_unsure for t in tensors)
        if draws(func):
            given = dict(zip((a.name for a in schema_of(func).arguments), args, strict=False)) | dict(kwargs or {})
            out = given.pop("out", None)
            mine = [t for t in tree_leaves(list(given.values())) if isinstance(t, torch.Tensor)]
            into = strides_of(out) if isinstance(out, torch.Tensor) else None
            self._call = _Call(func, tuple(map(strides_of, mine)), into, not (order or gaps), next(iter(mine), None))
        results: list[Any] = []
        try:
            yield results
        finally:
            self._call = None
        moved = [pair for pair in map(_told_and_held, tensors) if pair is not None]
        order = str(func) not in _OF_THEIR_OWN and (order or any(_order(*one) != _order(*two) for one, two in moved))
        made = [t for t in tree_leaves(results) if isinstance(t, torch.Tensor)]
        new = {id(t): t for t in made if all(t is not other for other in tensors)}
        if order:
            self._order_unsure.update(new)
        if func.is_view and (gaps or moved):
            self._gaps_unsure.update(new)

    def attributes(self, func: Any, leaves: Sequence[Any], *, replayed: bool) -> dict[str, Any]:
        """Return what an op that draws keeps of memory; nothing when all of it is row-major.

        ``replayed``: PyTorch has functionalized the program, and nothing tells what it drew into.
        """
        call = self._call
        if call is None:
            tensors = [t for t in tree_leaves(list(leaves)) if isinstance(t, torch.Tensor)]
            strides = tuple(map(strides_of, tensors))
            if replayed and any(map(partial(_differs_in_place, func), tensors, strides)):
                raise _refused(func, "for a tensor that is not row-major, drawn into it or not: PyTorch does not say")
            return {"strides": strides} if any(s is not None for s in strides) else {}
        if not call.sure:
            raise _refused(func, "for a tensor made of a view with gaps that was written to")
        if all(s is None for s in (*call.strides, call.into)):
            return {}
        name, schema = _base(call.func), schema_of(call.func)
        if name != _base(func):
            raise _refused(call.func, "into memory that is not in row-major order")
        out = {"strides": call.strides}
        return {**out, "called": str(call.func), "into": call.into} if schema.is_mutable else out

    def drawn(self, out: Any) -> Any:
        """Return what an op gives, lying in memory as what the program draws into: so does all that it makes of it."""
        call = self._call
        if (
            call is None
            or not isinstance(out, torch.Tensor)
            or not schema_of(call.func).is_mutable
            or call.into is not None
        ):
            return out
        target = call.target
        if target is None or any(a.is_out for a in schema_of(call.func).arguments) or out.shape != target.shape:
            return out
        return out if strides_of(out) == strides_of(target) else _like(out, target.stride())


def _like(tensor: torch.Tensor, strides: Sequence[Any]) -> torch.Tensor:
    """Return a tensor of the same elements with these strides."""
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor)


def _base(func: Any) -> str:
    return schema_of(func).name.rpartition("::")[2].removesuffix("_").removesuffix("_functional")


def drawn_into_out(graph: torch.fx.Graph) -> None:
    """Refuse a graph of TorchDynamo that draws into an ``out=`` that is not row-major, which AOTAutograd would lose."""
    for node in graph.nodes:
        out = node.kwargs.get("out")
        seen = out.meta.get("example_value") if isinstance(out, torch.fx.Node) else None
        name = getattr(node.target, "__name__", "")
        drawing = (
            name in {"rand", "randint", "randn", "randperm", "multinomial"} or name in _INTO or name == "bernoulli"
        )
        if drawing and isinstance(seen, torch.Tensor) and strides_of(seen) is not None:
            raise Unsupported(f"{name} into an out= that is not row-major", op=name, stage="capture")


_Outline = tuple[Sequence[Any], Sequence[Any]]


def _told_and_held(tensor: torch.Tensor) -> tuple[_Outline, _Outline] | None:
    """Return sizes and strides of a functional tensor and of what it holds; None where they are the same."""
    elem = getattr(tensor, "elem", None)
    if elem is None:
        return None
    inside = held_by(elem)
    if strides_of(inside) == strides_of(tensor):
        return None
    return (tensor.shape, tensor.stride()), (inside.shape, inside.stride())


def _order(shape: Sequence[Any], strides: Sequence[Any]) -> list[int]:
    """Return the dims, but those of size 1, as they lie in memory."""
    return sorted((d for d, size in enumerate(shape) if size != 1), key=lambda d: (-strides[d], d))


def _differs_in_place(func: Any, tensor: torch.Tensor, strides: Strides) -> bool:
    """Say whether the op that draws into a tensor gives other numbers than the one that it is functionalized to."""
    if strides is None:
        return False
    if func in _INTO_A_NEW_ONE:
        return True
    return (
        _base(func) in _INTO
        and schema_of(func).name != "aten::normal"
        and not torch.ops.aten.is_non_overlapping_and_dense.default(tensor)
    )


def drawn_into(graph: torch.fx.Graph) -> None:
    """Refuse a graph, not functionalized yet, that draws into a tensor that is not row-major: that would be lost."""
    for node in graph.nodes:
        func = node.target
        if not isinstance(func, OpOverload) or not (draws(func) and schema_of(func).is_mutable):
            continue
        given = dict(zip((a.name for a in schema_of(func).arguments), node.args, strict=False)) | node.kwargs
        written = [given.get(a.name) for a in schema_of(func).arguments if a.alias_info is not None]
        seen = [n.meta.get("val") for n in written if isinstance(n, torch.fx.Node)]
        if any(not isinstance(t, torch.Tensor) or strides_of(t) is not None for t in seen):
            raise Unsupported(f"{func} into a tensor that is not row-major", op=str(func), stage="capture")


def _refused(func: Any, why: str) -> Unsupported:
    return Unsupported(f"{func}: random numbers {why}", op=str(func), stage="capture")


def depended_on(graph: Graph, arguments: Sequence[Strides], more: Sequence[Value] = ()) -> list[tuple[int, Strides]]:
    """Return the arguments whose layout decides where random numbers go, each with its strides in the example.

    So are those that decide how the values ``more`` lie in memory.

    Unsupported where strides are not told by the sizes of a call.
    """
    known = set(symbols_bound(graph)).union(*(a.type.symbols for a in graph.args if isinstance(a.type, TensorType)))
    makers = {id(r): op for op in graph.ops for r in op.results}
    pending = [*more, *(v for op in graph.ops if is_random(op) for v in op.values)]
    found: set[int] = set()
    while pending:
        value = pending.pop()
        if id(value) in found:
            continue
        found.add(id(value))
        op = makers.get(id(value))
        if op is not None and op.name not in _OF_THEIR_OWN:
            pending.extend(op.values)
    out = [(i, s) for i, (a, s) in enumerate(zip(graph.args, arguments, strict=False)) if id(a) in found]
    told = [s for _, s in out] + [s for op in graph.ops for s in _noted(op)]
    for strides in told:
        if strides is not None and not set().union(*map(symbols, strides)) <= known:
            raise Unsupported("random numbers for a tensor whose strides its sizes do not tell", stage="capture")
    return out


def _noted(op: Operation) -> list[Strides]:
    return [*op.attributes.get("strides", ()), op.attributes.get("into")] if is_random(op) else []


def check_strides(
    wanted: Sequence[tuple[int, Strides]], tensors: Sequence[torch.Tensor], sizes: Mapping[str, int]
) -> None:
    """GuardError where an argument does not lie in memory as its example, and random numbers go by that."""
    for index, strides in wanted:
        tensor = tensors[index]
        if strides is None:
            same = tensor.is_contiguous()
        else:
            told = [evaluate(s, sizes) for s in strides]
            same = all(n == 1 or a == b for n, a, b in zip(tensor.shape, told, tensor.stride(), strict=True))
        if not same and tensor.numel() > 1:
            where = "lies in memory in another way than when compiled"
            raise GuardError(f"tensor {index} {where}, and random numbers, or views of results, go by that")


@dataclass(frozen=True, slots=True)
class Copying:
    """A copy that eager makes of some tensors only: ``contiguous``, ``to`` a format or, into a shape, ``reshape``."""

    format: torch.memory_format = torch.contiguous_format
    to: bool = False
    into: tuple[Dim, ...] | None = None

    def spares(self, tensor: torch.Tensor, sizes: Mapping[str, int]) -> bool:
        """Say whether eager gives a view of this tensor instead."""
        if self.to:  # goes by the one format that a tensor of these strides is said to be in
            like = torch.empty_strided(tensor.shape, tensor.stride(), device="meta")
            return like.to(memory_format=self.format) is like
        if self.into is None or tensor.is_contiguous():
            return tensor.is_contiguous(memory_format=self.format)
        try:
            tensor.view([evaluate(d, sizes) for d in self.into])
        except RuntimeError:
            return False
        return True


def check_copied(copied: Sequence[tuple[int, Any, Any]], tensors: Sequence[torch.Tensor], sizes: Any) -> None:
    """GuardError where an argument, or the view of it, is one that eager does not copy, and the program did."""
    for arg, view, copying in copied:
        tensor = tensors[arg] if view is None else view(tensors[arg], sizes)
        if copying.spares(tensor, sizes):
            raise GuardError(f"tensor {arg} is copied here, and eager has a view of it for these strides and sizes")


def overlaps(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Say whether two elements may be one in memory."""
    least = 1
    for step, size in sorted((step, size) for size, step in zip(shape, strides, strict=True) if size > 1):
        if step < least:
            return True
        least += step * (size - 1)
    return False

"""Sizes that depend on values: symbols of PyTorch's ShapeEnv in a captured graph, and what it took for granted of them.

``nonzero`` gives a tensor of size ``u0``; each condition on such a size becomes a ``flat.require`` behind the op that
gives it, so that a run with other values either holds it or raises.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch

from torchstone.compiler._torch import fake_tensors
from torchstone.compiler._torch.modes import no_dispatch_modes
from torchstone.compiler._torch.symbolic_shapes import ShapeEnv
from torchstone.compiler.capture.symbolic.sizes import from_sympy
from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir import Graph, Operation, TensorType
from torchstone.compiler.ir.dims import Dim, substitute, symbol, symbols
from torchstone.compiler.ir.sizes import BIND, sized_by_values, substitute_symbols, symbols_bound

_RELATIONS = {
    sympy.Eq: ("eq", False), sympy.Ne: ("ne", False), sympy.StrictLessThan: ("lt", False),
    sympy.LessThan: ("le", False), sympy.StrictGreaterThan: ("lt", True), sympy.GreaterThan: ("le", True),
}  # fmt: skip


def _unique_consecutive(
    x: torch.Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[torch.Tensor, ...]:
    """Fake results: PyTorch's shape function is wrong about a dim. Along one, eager gives all three asked or not."""
    if dim is None or (dim == 0 and x.dim() == 1):
        return torch.ops.aten.unique_consecutive.default(x, return_inverse, return_counts)
    return torch.ops.aten.unique_dim.default(x, dim, False, True, True)


def _batch_norm(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, mean: torch.Tensor, var: torch.Tensor,
    *rest: Any,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """Fake results: PyTorch's shape function has updated statistics in float32. Eager keeps the dtype they had."""
    out = torch.ops.aten._native_batch_norm_legit_functional.default(x, weight, bias, mean, var, *rest)
    return (*out[:3], torch.empty_like(mean), torch.empty_like(var))


def _unbind(x: torch.Tensor, dim: int = 0) -> list[torch.Tensor]:
    """Fake results: PyTorch's are pieces that keep the dim. How many there are is what Python goes by."""
    return [torch.ops.aten.select.int(x, dim, place) for place in range(int(x.shape[dim]))]


def _view(x: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """Fake results: PyTorch's come dim by dim, which takes the square of their number; its kernels' at once."""
    if not all(type(number) is int for number in (*x.shape, *x.stride(), *size)):
        return torch.ops.aten.view.default(x, size)
    with no_dispatch_modes():
        like = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta").view(size)
    return torch.ops.aten.as_strided.default(x, like.shape, like.stride(), x.storage_offset())


# Ops whose fake results, in this PyTorch, are not what the op gives, or not within reasonable time.
SHAPES: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.unique_consecutive.default: _unique_consecutive,
    torch.ops.aten._native_batch_norm_legit_functional.default: _batch_norm,
    torch.ops.aten.unbind.int: _unbind,
    torch.ops.aten.view.default: _view,
}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """PyTorch logs what its shape functions raise; here another way is tried then."""
    with fake_tensors.refusals_unlogged(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def settle(graph: Graph, env: ShapeEnv) -> None:
    """Write in place what ``env`` knows of the sizes that the graph's own ops bind: equalities, then conditions.

    Unsupported for a condition that is no comparison of sizes.
    """
    binders = symbols_bound(graph)
    for name, op in binders.items():
        if not sized_by_values(op) and op.name != BIND:
            raise Unsupported(f"{op.name}: a size that PyTorch leaves open ({name})", op=op.name, stage="capture")
    bound = [*binders]
    theirs = {str(s): s for s in (*env.var_to_range, *env.replacements)}
    conditions: list[Any] = [a.expr for asserts in env.deferred_runtime_asserts.values() for a in asserts]
    for name in bound:
        if name in theirs:
            conditions.append(sympy.Eq(theirs[name], env.replace(theirs[name])))
            conditions.append(sympy.Ge(theirs[name], max(0, env.var_to_range[theirs[name]].lower)))
    known = {s for a in graph.args if isinstance(a.type, TensorType) for s in a.type.symbols} | set(bound)
    comparisons = [c for condition in conditions for c in _comparisons(condition) if _symbols(c) <= known]
    equal: dict[str, Dim] = {}
    for left, right, relation in comparisons:
        left, right = substitute(left, equal), substitute(right, equal)
        # The later one is the earlier one; the op that binds it then finds it bound, and compares.
        ours = [s for s in ((left, right), (right, left)) if str(s[0]) in bound and str(s[0]) not in symbols(s[1])]
        if relation == "eq" and ours:
            one, other = max(ours, key=lambda s: bound.index(str(s[0])))
            equal = {name: substitute(dim, {str(one): other}) for name, dim in equal.items()} | {str(one): other}
    equal |= _replaced(graph, env)
    if equal:
        substitute_symbols(graph, equal)
    for left, right, relation in comparisons:
        left, right = substitute(left, equal), substitute(right, equal)
        if not _trivial(left, right, relation):
            require(graph, left, right, relation)


def _replaced(graph: Graph, env: ShapeEnv) -> dict[str, Dim]:
    """What PyTorch came to know of the sizes of arguments after ops had been recorded: constants, and equal sizes."""
    shapes = [a.type.dims for a in graph.args if isinstance(a.type, TensorType)]
    lone = {str(d) for shape in shapes for d in shape if str(d).isidentifier()}
    out: dict[str, Dim] = {}
    for theirs in env.replacements:
        if str(theirs) in lone:
            dim = _dim(env.replace(theirs))
            if symbols(dim) <= lone - {str(theirs)}:
                out[str(theirs)] = dim
    return out


def _symbols(comparison: tuple[Dim, Dim, str]) -> set[str]:
    return symbols(comparison[0]) | symbols(comparison[1])


def _trivial(left: Dim, right: Dim, relation: str) -> bool:
    """Say whether a comparison holds whatever the sizes, none of which is negative."""
    return (left == right and relation in ("eq", "le")) or (
        left == 0 and relation == "le" and str(right).isidentifier()
    )


def require_guards(graph: Graph, env: ShapeEnv, names: Mapping[str, str]) -> None:
    """Write in place what ``env`` guards of sizes that the graph's ops bind; ``names`` are ours for its symbols."""
    bound = set(symbols_bound(graph))
    ours = {theirs: symbol(name) for theirs, name in names.items()}
    for condition in dict.fromkeys(env.replace(guard.expr) for guard in env.guards):
        if not bound.isdisjoint(names.get(str(s), "") for s in condition.free_symbols):
            for left, right, relation in _comparisons(condition):
                left, right = substitute(left, ours), substitute(right, ours)
                if not _trivial(left, right, relation):
                    require(graph, left, right, relation)


def require(graph: Graph, left: Dim, right: Dim, relation: str) -> None:
    """Insert a ``flat.require`` behind the op that binds the last symbol in it."""
    attributes = {"left": left, "right": right, "relation": relation}
    bound = symbols_bound(graph)
    binders = [bound[name] for name in symbols(left) | symbols(right) if name in bound]
    places = [place for place, op in enumerate(graph.ops) if op in binders]
    place = max(places, default=-1)
    location = graph.ops[place].location if places else None
    made = Operation("flat.require", (), (), attributes, *([location] if location else []))
    same = [op for op in graph.ops if op.name == made.name and op.attributes == attributes]
    if not same:
        graph.ops.insert(place + 1, made)


def _comparisons(condition: sympy.Basic) -> Iterator[tuple[Dim, Dim, str]]:
    if condition == sympy.true:
        return
    if isinstance(condition, sympy.And):
        for part in condition.args:
            yield from _comparisons(part)
        return
    relation, swapped = _RELATIONS.get(type(condition), ("", False))
    if not relation:
        raise Unsupported(f"a condition on sizes that depend on values: {condition}", stage="capture")
    left, right = (_dim(side) for side in condition.args)
    yield (right, left, relation) if swapped else (left, right, relation)


def _dim(expr: Any) -> Dim:
    return from_sympy(sympy.sympify(expr))

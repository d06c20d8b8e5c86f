"""The pass ``decompose``: ATen ops with neither a rule of ours nor a place in the target become simpler ATen ops.

The decompositions are PyTorch's own. Each is run on fake tensors of the op's types under the recorder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from torchstone.compiler.diagnostics import TorchstoneError, Unsupported, describe
from torchstone.compiler.frontends.captured import Guard
from torchstone.compiler.frontends.export import guards_of
from torchstone.compiler.frontends.literals import TO_TORCH, from_literal
from torchstone.compiler.frontends.recorder import Mutation, Recorder, schema_call
from torchstone.compiler.ir import Graph, Operation, TensorType, Value, map_operand
from torchstone.compiler.ir.dims import Expr, substitute, symbol


@cache
def decompositions() -> Mapping[Any, Callable[..., Any]]:
    """PyTorch's table: core ATen's decompositions first, then every other one it registers."""
    from torch._decomp import core_aten_decompositions, decomposition_table

    return {**decomposition_table, **core_aten_decompositions()}


def find_overload(name: str) -> Any:
    """Return ``torch.ops.<name>`` for "aten.add.Tensor"; Unsupported when this PyTorch has no such op."""
    namespace, packet, overload = name.split(".", 2)
    try:
        return getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    except AttributeError:
        raise Unsupported(f"{name} is no op of this PyTorch", op=name) from None


class _Sizes:
    """The fake mode of one graph, and a SymInt for each of its symbols."""

    def __init__(self, hints: Mapping[str, int]) -> None:
        self.env = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self.env, allow_non_fake_inputs=True)
        self.hints = hints
        self._symints: dict[str, Any] = {}
        self.torch_names: dict[str, str] = {}

    def size(self, dim: Any) -> Any:
        if not isinstance(dim, Expr):
            return dim
        total: Any = 0
        for atoms, coefficient in dim.terms:
            factor: Any = coefficient
            for atom in atoms:
                factor = factor * (
                    self._call(atom.name, [self.size(a) for a in atom.args]) if atom.args else self._symbol(atom.name)
                )
            total = total + factor
        return total

    def _call(self, name: str, args: list[Any]) -> Any:
        a, b = args
        if name == "floordiv":
            return a // b
        if name == "mod":
            return a % b
        return torch.sym_max(a, b) if name == "max" else torch.sym_min(a, b)

    def _symbol(self, name: str) -> Any:
        if name not in self._symints:
            from torch._dynamo.source import ConstantSource

            source, hint = ConstantSource(name), self.hints.get(name, 7 + 4 * len(self._symints))
            sym = self.env.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC, positive=None)
            self._symints[name] = self.env.create_symintnode(sym, hint=hint, source=source)
            self.torch_names[str(sym)] = name
        return self._symints[name]

    def tensor(self, kind: TensorType) -> torch.Tensor:
        return torch.empty([self.size(d) for d in kind.dims], dtype=TO_TORCH[kind.dtype])


def decompose(graph: Graph, keep: Callable[[Operation], bool], hints: Mapping[str, int]) -> tuple[Graph, list[Guard]]:
    """Return a graph in which every ``aten`` op is kept or has no decomposition, and the guards the tracing added.

    ``keep(op)`` says that an op needs no decomposition. ``hints`` gives an example size for each symbol.
    """
    if all(keep(op) for op in graph.ops):
        return graph, []
    sizes = _Sizes(hints)
    out = Graph(graph.name, graph.args)
    values: dict[int, Any] = {id(a): a for a in graph.args}

    def mapped(leaf: Any) -> Any:
        return values.get(id(leaf), leaf) if isinstance(leaf, Value) else leaf

    def place(op: Operation, ancestors: frozenset[str]) -> None:
        operands = tuple(map_operand(o, mapped) for o in op.operands)
        moved = Operation(op.name, operands, op.results, op.attributes, op.location)
        traced = None if keep(op) else _trace(moved, sizes)
        # A decomposition that leads back to an op it came from makes no progress.
        if traced is None or any(inner.name in {*ancestors, op.name} for inner in traced[0]):
            out.ops.append(moved)
            return
        ops, results = traced
        for inner in ops:
            place(inner, ancestors | {op.name})
        values.update({id(old): mapped(new) for old, new in zip(op.results, results, strict=True)})

    for op in graph.ops:
        place(op, frozenset())
    out.outputs = tuple(map_operand(o, mapped) for o in graph.outputs)
    return out, guards_of(sizes.env, sizes.torch_names)


def _trace(op: Operation, sizes: _Sizes) -> tuple[list[Operation], list[Any]] | None:
    """Run the decomposition of ``op``; None when PyTorch has none for these arguments."""
    func = find_overload(op.name)
    fn = decompositions().get(func)
    if fn is None and not func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
        return None
    recorder = Recorder(op.name)
    recorder.location = op.location.noted(op.name)
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
                results = [recorder.operand(leaf) for leaf in flat]
        except Mutation as error:
            raise Unsupported(
                f"{op.name}: PyTorch's decomposition writes in place ({error})", op=op.name, where=describe(op)
            ) from None
        except TorchstoneError as error:
            raise Unsupported(f"{op.name}: {error.message}", op=op.name, where=describe(op)) from error
        except Exception as error:
            raise Unsupported(
                f"{op.name}: PyTorch's decomposition raises {type(error).__name__}: {error}",
                op=op.name,
                where=describe(op),
            ) from error
    if recorder.captures:
        raise Unsupported(f"{op.name}: PyTorch's decomposition uses a constant tensor", op=op.name, where=describe(op))
    _rename(recorder.graph.ops, sizes)
    return recorder.graph.ops, results


def _rename(ops: list[Operation], sizes: _Sizes) -> None:
    """Give the symbols of freshly recorded ops the graph's names back."""
    if not sizes.torch_names:
        return
    names = {theirs: symbol(ours) for theirs, ours in sizes.torch_names.items()}

    def leaf(item: Any) -> Any:
        return substitute(item, names) if isinstance(item, Expr) else item

    for op in ops:
        op.operands = tuple(map_operand(o, leaf) for o in op.operands)
        for result in op.results:
            if isinstance(result.type, TensorType):
                result.type = TensorType(tuple(leaf(d) for d in result.type.shape), result.type.dtype)

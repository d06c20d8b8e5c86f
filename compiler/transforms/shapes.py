"""The shape library of ATen: result types of an op from its operand types, over sizes that may be symbols.

PyTorch's own shape functions (its meta kernels, run on fake tensors) are the source; FlatIR primitives bring theirs
along. ``check_types`` recomputes a whole graph, ``refine`` finds the sizes of a graph that came without them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from torchstone.compiler._torch import fake_tensors, symbolic_shapes
from torchstone.compiler._torch.fake_tensors import FakeTensorMode
from torchstone.compiler._torch.symbolic_shapes import DimDynamic, ShapeEnv, locate_guards
from torchstone.compiler.capture.program import Guard
from torchstone.compiler.capture.symbolic.conditions import due_to, guards_of
from torchstone.compiler.capture.symbolic.run_time_sizes import SHAPES, quiet
from torchstone.compiler.capture.symbolic.sizes import from_sympy
from torchstone.compiler.capture.trace.aten_literals import TO_TORCH, from_literal
from torchstone.compiler.capture.trace.recorder import tensor_type
from torchstone.compiler.capture.trace.schemas import find_overload, schema_call
from torchstone.compiler.diagnostics import TorchstoneError, Unsupported, VerifyError, describe, raise_bug
from torchstone.compiler.ir import Graph, Location, Operation, PrimType, TensorType, Type, Value, map_operand
from torchstone.compiler.ir.dims import Dim, Expr, substitute, symbol, symbols
from torchstone.compiler.ops import PRIMITIVES

# An example of a size nobody gave: unlike any size that programs treat in a way of its own.
_HINT = 8
_MOST_TRIALS = 256


# Ops whose PyTorch shape function is known not to say what its kernel gives.
_UNSAID = dict.fromkeys(
    ("aten._embedding_bag", "aten._embedding_bag_forward_only"),
    "the sizes of its bookkeeping results depend on the kernel that eager picks",
)


class FakeSizes:
    """The fake mode of one graph, and a SymInt for each of its symbols.

    ``hints`` gives example sizes; PyTorch's shape functions decide by them where they must, and ``guards`` says what
    they assumed.
    """

    def __init__(self, hints: Mapping[str, int]) -> None:
        self.env = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self.env, allow_non_fake_inputs=True)
        self.hints = hints
        # Where the op stands that is looked at: conditions that PyTorch takes for granted are told to come from it.
        self.location = Location()
        locate_guards(self.env, lambda framework_loc=None: due_to(self.location, framework_loc))
        self._symints: dict[str, Any] = {}
        self.torch_names: dict[str, str] = {}

    def size(self, dim: Any) -> Any:
        """Return the SymInt of a symbolic size, an int as it is."""
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
            source, hint = symbolic_shapes.ConstantSource(name), self.hints.get(name, 7 + 4 * len(self._symints))
            sym = self.env.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC, positive=None)
            self._symints[name] = self.env.create_symintnode(sym, hint=hint, source=source)
            self.torch_names[str(sym)] = name
        return self._symints[name]

    def tensor(self, kind: TensorType) -> torch.Tensor:
        """Return a fake tensor, to be called inside ``mode``."""
        return torch.empty([self.size(d) for d in kind.dims], dtype=TO_TORCH[kind.dtype])

    def guards(self) -> list[Guard]:
        return guards_of(self.env, self.torch_names)

    def equalities(self) -> dict[str, Dim]:
        """Return what PyTorch's shape functions took symbols to be: ``{"d1": d0}`` where two sizes must be equal."""
        found = {}
        for theirs, expr in self.env.replacements.items():
            if str(theirs) in self.torch_names:
                found[self.torch_names[str(theirs)]] = self._ours(from_sympy(expr))
        return found

    def _ours(self, dim: Any) -> Any:
        names = {theirs: symbol(ours) for theirs, ours in self.torch_names.items()}
        return substitute(dim, names) if isinstance(dim, Expr) else dim

    def name_back(self, ops: Iterable[Operation]) -> None:
        """Give the symbols of freshly recorded ops the graph's names back, in place."""
        if not self.torch_names:
            return
        for op in ops:
            op.operands = tuple(map_operand(o, self._ours) for o in op.operands)
            for result in op.results:
                result.type = self.named(result.type)

    def named(self, kind: Type) -> Type:
        """Return a type over the graph's symbols for one over PyTorch's."""
        if not isinstance(kind, TensorType) or not self.torch_names:
            return kind
        return TensorType(tuple(self._ours(d) for d in kind.shape), kind.dtype)


def result_types(op: Operation, sizes: FakeSizes | None = None) -> tuple[Type, ...]:
    """Return the types of an op's results, from the types of its operands.

    ``flat.*`` ops by their rows, every other by PyTorch's shape function. VerifyError, quoting PyTorch, for operands
    that the op does not take; Unsupported for an op whose result types depend on data, or that has no shape function.
    """
    if op.name.startswith("flat."):
        return PRIMITIVES[op.name].infer(*(v.tensor for v in op.values), **op.attributes)
    packet = op.name.rpartition(".")[0]
    if packet in _UNSAID:
        raise Unsupported(f"{op.name} has no shape function: {_UNSAID[packet]}", op=op.name, where=describe(op))
    sizes = sizes or FakeSizes({})
    func = find_overload(op.name)
    shapes: Any = SHAPES.get(func, func)
    fakes: dict[int, Any] = {}

    def convert(operand: Any) -> Any:
        if isinstance(operand, tuple):
            return [convert(item) for item in operand]
        if not isinstance(operand, Value):
            return from_literal(operand, sizes.size)
        if isinstance(operand.type, TensorType) and id(operand) not in fakes:
            fakes[id(operand)] = sizes.tensor(operand.type)
        return fakes.get(id(operand))

    sizes.location = op.location.noted(op.name)
    with sizes.mode, quiet():
        args, kwargs = schema_call(func, [convert(o) for o in op.operands])
        try:
            out = shapes(*args, **kwargs)
            return tuple(sizes.named(_type(item)) for item in (out if isinstance(out, list | tuple) else (out,)))
        except TorchstoneError as error:
            raise Unsupported(f"{op.name}: {error.message}", op=op.name, where=describe(op)) from error
        except (NotImplementedError, fake_tensors.UnsupportedOperatorException) as error:
            raise Unsupported(f"{op.name} has no shape function", op=op.name, where=describe(op)) from error
        except (fake_tensors.DataDependentOutputException, fake_tensors.DynamicOutputShapeException) as error:
            raise Unsupported(f"{op.name}: its result depends on data", op=op.name, where=describe(op)) from error
        except Exception as error:  # anything: shape functions of PyTorch check by assertions and by failing
            raise_bug(error)
            message = str(error).strip().split("\n")[0] or type(error).__name__
            raise VerifyError(f"{op.name}: {message}", op=op.name, where=describe(op)) from error


def _type(item: Any) -> Type:
    if isinstance(item, torch.Tensor):
        return tensor_type(item)
    if item is None:
        return PrimType("none")
    for kind in (bool, int, float, complex):
        if isinstance(item, kind):
            return PrimType(kind.__name__)
    raise Unsupported(f"a result of class {type(item).__name__}")


def check_types(graph: Graph, hints: Mapping[str, int] | None = None) -> None:
    """Raise VerifyError, naming the op, unless every result has the type that the shape library gives it.

    Ops without a shape function are taken at their word.
    """
    sizes = FakeSizes(hints or {})
    for op in graph.ops:
        try:
            expected = result_types(op, sizes)
        except Unsupported:
            continue
        if not types_match(op, expected):
            got = ", ".join(str(r.type) for r in op.results)
            raise VerifyError(
                f"{op.name} gives {', '.join(map(str, expected))}, the graph says {got}",
                op=op.name,
                where=describe(op),
            )


def types_match(op: Operation, expected: Sequence[Type]) -> bool:
    """Say whether an op's results have these types; a size that its values decide has a name of the graph's choice."""
    given = {name for v in op.values if isinstance(v.type, TensorType) for name in v.tensor.symbols}

    def same(got: Type, wanted: Type) -> bool:
        if not isinstance(got, TensorType) or not isinstance(wanted, TensorType):
            return got == wanted
        return got.dtype == wanted.dtype and got.rank == wanted.rank and all(map(same_size, got.shape, wanted.shape))

    def same_size(got: Dim | None, wanted: Dim | None) -> bool:
        decided = isinstance(wanted, Expr) and not symbols(wanted) <= given
        return isinstance(got, Expr) if decided else got == wanted

    return len(op.results) == len(expected) and all(same(r.type, t) for r, t in zip(op.results, expected, strict=True))


@dataclass(frozen=True, slots=True)
class Refined:
    """A graph whose every size is known or symbolic, and what has to hold for it to be so."""

    graph: Graph
    guards: list[Guard] = field(default_factory=list)


def refine(graph: Graph) -> Refined:
    """Return the graph with a size for every ``?``: a fresh symbol in an argument, what the ops make of it elsewhere.

    Sizes that the ops want equal become one symbol, until nothing changes. VerifyError names an op whose operands
    cannot fit, or whose result contradicts what the graph says.
    """
    fresh = _names(graph)
    known: dict[int, Type] = {id(a): _filled(a.type, fresh) for a in graph.args}
    hints = {name: _HINT for kind in known.values() if isinstance(kind, TensorType) for name in kind.symbols}
    while True:
        sizes = FakeSizes(hints)
        try:
            out = _retyped(graph, known, sizes)
        except _Misfit as misfit:
            hints = misfit.hints
            continue
        equal = sizes.equalities()
        if not equal:
            return Refined(out, sizes.guards())
        known = {key: _substituted(kind, equal) for key, kind in known.items()}


class _Misfit(Exception):
    """Operands do not fit for the example sizes; for ``hints`` they would."""

    def __init__(self, hints: Mapping[str, int]) -> None:
        super().__init__()
        self.hints = hints


def _fitting(op: Operation, hints: Mapping[str, int]) -> Mapping[str, int] | None:
    """Return hints for which the operands fit: sizes that were anything are sizes that other operands have."""
    kinds = [v.tensor for v in op.values if isinstance(v.type, TensorType)]
    said = sorted({d for kind in kinds for d in kind.shape if isinstance(d, int)})
    open_ = sorted({name for kind in kinds for name in kind.symbols if hints.get(name) == _HINT})
    trials = itertools.islice(itertools.product((_HINT, *said), repeat=len(open_)), _MOST_TRIALS)
    for sizes in sorted(trials, key=lambda sizes: sum(size != _HINT for size in sizes)):
        trial = {**hints, **dict(zip(open_, sizes, strict=True))}
        try:
            result_types(op, FakeSizes(trial))
        except TorchstoneError:
            continue
        return trial
    return None


def _names(graph: Graph) -> Iterable[str]:
    taken = {s for a in graph.args if isinstance(a.type, TensorType) for s in a.type.symbols}
    return (name for name in (f"d{n}" for n in range(1 << 30)) if name not in taken)


def _filled(kind: Type, fresh: Iterable[str]) -> Type:
    if not isinstance(kind, TensorType):
        return kind
    return TensorType(tuple(symbol(next(iter(fresh))) if d is None else d for d in kind.shape), kind.dtype)


def _substituted(kind: Type, values: Mapping[str, Dim]) -> Type:
    if not isinstance(kind, TensorType):
        return kind
    return TensorType(tuple(substitute(d, values) if isinstance(d, Expr) else d for d in kind.shape), kind.dtype)


def _retyped(graph: Graph, known: Mapping[int, Type], sizes: FakeSizes) -> Graph:
    """Return a copy of the graph with argument types ``known`` and the result types that follow from them."""
    values: dict[int, Value] = {id(a): Value(known[id(a)], a.name) for a in graph.args}

    def mapped(leaf: Any) -> Any:
        return values[id(leaf)] if isinstance(leaf, Value) else leaf

    out = Graph(graph.name, [values[id(a)] for a in graph.args])
    for op in graph.ops:
        moved = Operation(
            op.name, tuple(map_operand(o, mapped) for o in op.operands), op.results, op.attributes, op.location
        )
        try:
            types = result_types(moved, sizes)
        except VerifyError:
            better = _fitting(moved, sizes.hints)
            if better is None:
                raise
            raise _Misfit(better) from None
        if len(types) != len(op.results) or not all(_agree(r.type, t) for r, t in zip(op.results, types, strict=True)):
            said = ", ".join(str(r.type) for r in op.results)
            raise VerifyError(
                f"{op.name} gives {', '.join(map(str, types))}, the graph says {said}", op=op.name, where=describe(op)
            )
        moved.results = tuple(Value(t, r.name) for r, t in zip(op.results, types, strict=True))
        values.update({id(old): new for old, new in zip(op.results, moved.results, strict=True)})
        out.ops.append(moved)
    out.outputs = tuple(map_operand(o, mapped) for o in graph.outputs)
    return out


def _agree(said: Type, found: Type) -> bool:
    """Whether what the graph says about a result leaves room for what was found: a symbol or ``?`` is no claim."""
    if not isinstance(said, TensorType) or not isinstance(found, TensorType):
        return said == found
    if said.dtype != found.dtype or said.rank != found.rank:
        return False
    pairs = zip(said.shape, found.shape, strict=True)
    return all(not isinstance(a, int) or not isinstance(b, int) or a == b for a, b in pairs)

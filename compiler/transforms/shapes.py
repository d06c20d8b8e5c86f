"""The shape library of ATen: result types of an op from its operand types, over sizes that may be symbols.

PyTorch's own shape functions (its meta kernels, run on fake tensors) are the source; FlatIR primitives bring theirs
along. ``graph_types`` asks it of whole graphs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
from torchstone.compiler.capture.trace.schemas import find_overload, schema_call
from torchstone.compiler.capture.trace.tensors import tensor_type
from torchstone.compiler.diagnostics import TorchstoneError, Unsupported, VerifyError, describe, raise_bug
from torchstone.compiler.ir import Location, Operation, PrimType, TensorType, Type, Value, map_operand
from torchstone.compiler.ir.dims import Dim, Expr, substitute, symbol
from torchstone.compiler.ops import PRIMITIVES

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

"""What a frontend gives: the graph, and how it is bound to the program's arguments and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchstone.compiler.diagnostics import GuardError
from torchstone.compiler.frontends.literals import FROM_TORCH
from torchstone.compiler.ir import Expr, Graph, TensorType, Value
from torchstone.compiler.ir.dims import evaluate, symbols

Guard = Callable[[Mapping[str, int]], "str | None"]


@dataclass(slots=True)
class Captured:
    """A captured program.

    The graph's arguments are the tensor leaves of ``args`` in order, then ``captures`` (tensors the program closes
    over, read afresh at each call). Its outputs are the tensor leaves of the result, then the new values of the
    arguments in ``mutated``; ``plain`` holds the leaves of the result that are no tensors, by position. ``leaves`` are
    the example's leaves: a tensor stands for its graph argument, anything else is a constant the program was
    specialized to.
    """

    graph: Graph
    leaves: list[Any]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec
    captures: list[torch.Tensor] = field(default_factory=list)
    mutated: list[int] = field(default_factory=list)
    plain: dict[int, Any] = field(default_factory=dict)
    guards: list[Guard] = field(default_factory=list)
    ranges: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    _checked: set[tuple[int, ...]] = field(default_factory=set)

    def bind(self, args: Sequence[Any]) -> list[torch.Tensor]:
        """Return the tensors for the graph's arguments; GuardError when ``args`` do not fit what was captured."""
        leaves, spec = pytree.tree_flatten(tuple(args))
        if spec != self.in_spec:
            raise GuardError(f"compiled for arguments of structure {self.in_spec}, called with {spec}")
        tensors: list[torch.Tensor] = []
        for index, (leaf, example) in enumerate(zip(leaves, self.leaves, strict=True)):
            if isinstance(example, torch.Tensor):
                if not isinstance(leaf, torch.Tensor):
                    raise GuardError(f"argument {index} was a tensor when compiled, is {leaf!r}")
                tensors.append(leaf)
            elif type(leaf) is not type(example) or not (leaf == example or leaf != leaf):
                raise GuardError(
                    f"argument {index} was {example!r} when compiled and is part of the program, is {leaf!r}"
                )
        self._check(tensors)
        tensors.extend(self.captures)
        return tensors

    def _check(self, tensors: Sequence[torch.Tensor]) -> None:
        values: dict[str, int] = {}
        derived: list[tuple[Value, int, Expr, int]] = []
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
                        derived.append((arg, axis, dim, size))
        if values:
            self._check_sizes(values, derived)

    def _check_sizes(self, values: dict[str, int], derived: list[tuple[Value, int, Expr, int]]) -> None:
        for arg, axis, dim, size in derived:
            if symbols(dim) <= set(values) and evaluate(dim, values) != size:
                raise GuardError(
                    f"%{arg.name} must have size {dim} = {evaluate(dim, values)} in dim {axis}, has {size}"
                )
        key = tuple(values.values())
        if key in self._checked:
            return
        for name, value in values.items():
            low, high = self.ranges.get(name, (0, None))
            if value < low or (high is not None and value > high):
                raise GuardError(f"size {name} must be in [{low}, {'inf' if high is None else high}], is {value}")
        for guard in self.guards:
            if message := guard(values):
                raise GuardError(message)
        self._checked.add(key)

    def unflatten(self, outputs: Sequence[Any], tensors: Sequence[torch.Tensor]) -> Any:
        """Write mutated arguments back and return the program's result."""
        count = len(outputs) - len(self.mutated)
        for index, value in zip(self.mutated, outputs[count:], strict=True):
            tensors[index].copy_(value)
        leaves = list(outputs[:count])
        for position, leaf in self.plain.items():
            leaves.insert(position, leaf)
        return pytree.tree_unflatten(leaves, self.out_spec)


def _misfit(arg: Value, tensor: torch.Tensor) -> str:
    got = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
    return f"%{arg.name} was compiled as {arg.type}, got {got} on {tensor.device}"

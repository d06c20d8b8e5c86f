"""Values, operations and graphs: SSA, one block, typed. They print as text, which ``parse_graph`` reads back."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from torchstone.compiler.ir.dims import Expr
from torchstone.compiler.ir.dtypes import DType
from torchstone.compiler.ir.types import Literal, Named, TensorType, Type


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of the user's program on the way to an op."""

    file: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class Location:
    """Where an op comes from: the user's ``frames``, innermost first, and a note for each expansion that led to it."""

    frames: tuple[Frame, ...] = ()
    notes: tuple[str, ...] = ()

    def noted(self, note: str) -> Location:
        return replace(self, notes=(*self.notes, note))


class Value:
    """An SSA value. Compared by identity; ``name`` is for people and is made unique when a graph is printed.

    ``known`` is the tensor that an argument is at every run, if that is known: a target may write it as a constant.
    """

    __slots__ = ("known", "name", "type")

    def __init__(self, type: Type, name: str = "") -> None:
        self.type = type
        self.name = name
        self.known: Any = None

    @property
    def tensor(self) -> TensorType:
        """The type, for a value that must be a tensor; TypeError otherwise."""
        if not isinstance(self.type, TensorType):
            raise TypeError(f"expected a tensor, got {self.type}")
        return self.type

    @property
    def shape(self):
        return self.tensor.dims

    @property
    def dtype(self):
        return self.tensor.dtype

    @property
    def rank(self) -> int:
        return self.tensor.rank

    def __repr__(self) -> str:
        return f"%{self.name or '_'}: {self.type}"


# An operand is a value, a constant PrimValue written in place, or a tuple of operands (a list in the text).
Operand: TypeAlias = "Value | Literal | tuple[Any, ...]"


@dataclass(eq=False, slots=True)
class Operation:
    """``results = name(operands) {attributes}``.

    ``aten.*`` ops hold every argument of the PyTorch schema as an operand, in schema order, defaults included.
    ``flat.*`` ops hold tensors as operands and everything else as attributes.
    """

    name: str
    operands: tuple[Operand, ...]
    results: tuple[Value, ...]
    attributes: dict[str, Literal] = field(default_factory=dict)
    location: Location = Location()

    @property
    def result(self) -> Value:
        (only,) = self.results
        return only

    @property
    def graphs(self) -> dict[str, Graph]:
        """The graphs among the attributes: branches of a ``flat.cond``, condition and body of a ``flat.while``."""
        for value in self.attributes.values():
            if isinstance(value, Graph):
                return {name: value for name, value in self.attributes.items() if isinstance(value, Graph)}
        return {}

    def with_graphs(self, fn: Callable[[Graph], Graph]) -> Operation:
        """Return the operation with ``fn`` applied to the graphs among its attributes; itself when it has none."""
        graphs = self.graphs
        return (
            replace(self, attributes={**self.attributes, **{k: fn(g) for k, g in graphs.items()}}) if graphs else self
        )

    @property
    def values(self) -> Iterator[Value]:
        """The values among the operands, those inside lists included, in order."""
        for operand in self.operands:
            if not isinstance(operand, Value):
                return values_in(self.operands)
        return iter(self.operands)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return print_operation(self)


@dataclass(eq=False, slots=True)
class Graph:
    """A function: arguments, operations in order, and outputs."""

    name: str
    args: list[Value]
    ops: list[Operation] = field(default_factory=list)
    outputs: tuple[Operand, ...] = ()

    def __str__(self) -> str:
        return print_graph(self)


def walk(graph: Graph) -> Iterator[Operation]:
    """Yield the operations of a graph and of the graphs in them, in order."""
    for op in graph.ops:
        for nested in op.graphs.values():
            yield from walk(nested)
        yield op


def values_in(operand: Operand) -> Iterator[Value]:
    """Return the values in an operand, walking through lists."""
    found: list[Value] = []
    _collect(operand, found)
    return iter(found)


def _collect(operand: Operand, found: list[Value]) -> None:
    if isinstance(operand, Value):
        found.append(operand)
    elif isinstance(operand, tuple):
        for item in operand:
            _collect(item, found)


def map_operand(operand: Operand, fn: Any) -> Operand:
    """Return the operand with ``fn`` applied to every value and literal leaf in it."""
    if isinstance(operand, tuple):
        return tuple(map_operand(item, fn) for item in operand)
    return fn(operand)


# -- text


def print_literal(value: Operand, names: Mapping[int, str] | None = None) -> str:
    """Print an operand or attribute."""
    match value:
        case Value():
            return f"%{(names or {}).get(id(value)) or value.name or '?'}"
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _float(value)
        case complex():
            return f"complex({_float(value.real)}, {_float(value.imag)})"
        case str():
            return json.dumps(value)
        case DType():
            return value.short
        case Expr():
            return f"<{value}>"
        case Named():
            return f"{value.kind}({json.dumps(value.value)})"
        case tuple() | list():
            return f"[{', '.join(print_literal(v, names) for v in value)}]"
    raise TypeError(f"no text for {value!r} of {type(value).__name__}: not an IR literal")


def _float(value: float) -> str:
    """As ``repr`` has it, which leaves out the sign of a NaN."""
    return "-nan" if math.isnan(value) and math.copysign(1, value) < 0 else repr(value)


def print_operation(op: Operation, names: Mapping[int, str] | None = None, *, locations: bool = False) -> str:
    """Print one operation on one line, with operand types left to their definitions."""
    text = ", ".join(f"{print_literal(r, names)}: {r.type}" for r in op.results)
    text += " = " if op.results else ""
    text += f"{op.name}({', '.join(print_literal(o, names) for o in op.operands)})"
    if op.attributes:
        text += f" {{{', '.join(f'{k}={_attribute(v, names, locations)}' for k, v in op.attributes.items())}}}"
    return text + _location(op.location) if locations else text


def _attribute(value: Operand | Graph, names: Mapping[int, str] | None, locations: bool) -> str:
    if isinstance(value, Graph):
        return print_graph(value, locations=locations).rstrip().replace("\n", "\n  ")
    return print_literal(value, names)


def _location(location: Location) -> str:
    text = "".join(f" at {json.dumps(f.file)}:{f.line}:{json.dumps(f.function)}" for f in location.frames)
    return text + "".join(f" via {json.dumps(note)}" for note in location.notes)


def unique_names(graph: Graph) -> dict[int, str]:
    """Give every value of the graph a name of its own: arguments keep theirs, results are numbered."""
    names: dict[int, str] = {}
    taken: set[str] = set()
    for index, arg in enumerate(graph.args):
        name = arg.name or f"arg{index}"
        while name in taken or name.isdigit():
            name += "_"
        taken.add(name)
        names[id(arg)] = name
    number = 0
    for op in graph.ops:
        for result in op.results:
            names[id(result)] = str(number)
            number += 1
    return names


def print_graph(graph: Graph, *, locations: bool = False) -> str:
    """Print a graph; equal graphs print equal text."""
    names = unique_names(graph)
    args = ", ".join(f"{print_literal(a, names)}: {a.type}" for a in graph.args)
    lines = [f"graph @{graph.name}({args}) {{"]
    lines += [f"  {print_operation(op, names, locations=locations)}" for op in graph.ops]
    lines += [f"  return {', '.join(print_literal(o, names) for o in graph.outputs)}".rstrip(), "}"]
    return "\n".join(lines) + "\n"

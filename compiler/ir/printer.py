"""Graph -> text. ``parse_graph`` reads it back to an equal graph."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from torchstone.compiler.ir.dims import Expr
from torchstone.compiler.ir.dtypes import DType
from torchstone.compiler.ir.graph import Graph, Location, Operand, Operation, Value
from torchstone.compiler.ir.types import Named


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

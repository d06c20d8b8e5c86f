"""The one IR: typed SSA graphs of ``aten.*`` and ``flat.*`` operations, with a printer and a parser. No torch here."""

from torchstone.compiler.ir.dims import Dim, Expr, Shape, product, symbol
from torchstone.compiler.ir.dtypes import DType
from torchstone.compiler.ir.graph import (
    Frame,
    Graph,
    Location,
    Operand,
    Operation,
    Value,
    map_operand,
    print_graph,
    print_operation,
    values_in,
)
from torchstone.compiler.ir.parser import ParseError, parse_graph
from torchstone.compiler.ir.types import Named, PrimType, TensorType, Type

__all__ = [
    "DType", "Dim", "Expr", "Frame", "Graph", "Location", "Named", "Operand", "Operation", "ParseError", "PrimType",
    "Shape", "TensorType", "Type", "Value", "map_operand", "parse_graph", "print_graph", "print_operation", "product",
    "symbol", "values_in",
]  # fmt: skip

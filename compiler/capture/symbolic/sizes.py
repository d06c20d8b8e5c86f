"""Symbolic sizes: PyTorch's SymInts and sympy expressions <-> IR sizes, and the guards PyTorch collects on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy
import torch

from torchstone.compiler._torch import sympy_functions as tsf
from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.ir.dims import Dim, dim_max, dim_min, floordiv, mod, symbol


def to_dim(size: Any) -> Dim:
    """Convert an int or SymInt; Unsupported when the expression has no counterpart in the IR."""
    if isinstance(size, torch.SymInt):
        node = size.node
        if node.constant is not None:
            return int(node.constant)
        return from_sympy(node.expr)
    return int(size)


def bounds_of(interval: Any) -> tuple[int, int | None]:
    """Return the least and the greatest size in a range of PyTorch's; None: it has no bound."""
    low, high = interval.lower, interval.upper
    bounded = high.is_Integer and int(high) < 2**62
    return max(0, int(low)) if low.is_Integer else 0, int(high) if bounded else None


def from_sympy(expr: sympy.Basic) -> Dim:
    """Convert an integer sympy expression over size symbols."""
    match expr:
        case sympy.Integer():
            return int(expr)
        case sympy.Symbol():
            if not str(expr).startswith(("s", "u")):
                raise Unsupported(f"a size that depends on data ({expr})", stage="capture")
            return symbol(str(expr))
        case sympy.Add():
            total: Dim = 0
            for arg in expr.args:
                total = total + from_sympy(arg)
            return total
        case sympy.Mul():
            out: Dim = 1
            for arg in expr.args:
                out = out * from_sympy(arg)
            return out
        case sympy.Pow(args=(base, sympy.Integer() as power)) if int(power) > 0:
            factor, out = from_sympy(base), 1
            for _ in range(int(power)):
                out = out * factor
            return out
        case tsf.FloorDiv() | tsf.CleanDiv():
            return floordiv(from_sympy(expr.args[0]), from_sympy(expr.args[1]))
        case tsf.Mod() | tsf.PythonMod() | sympy.Mod():
            return mod(from_sympy(expr.args[0]), from_sympy(expr.args[1]))
        case tsf.Max() | sympy.Max():
            first, *rest = (from_sympy(a) for a in expr.args)
            for other in rest:
                first = dim_max(first, other)
            return first
        case tsf.Min() | sympy.Min():
            first, *rest = (from_sympy(a) for a in expr.args)
            for other in rest:
                first = dim_min(first, other)
            return first
        case tsf.TruncToInt(args=(scaled,)) | tsf.FloorToInt(args=(scaled,)):
            if (found := _scaled(scaled)) is not None:
                return found
    raise Unsupported(f"the size {expr} ({type(expr).__name__})", stage="capture")


def _scaled(expr: sympy.Basic) -> Dim | None:
    """Return the whole part of a size, which is not negative, times a float that has few bits: no step rounds then."""
    factor, *rest = expr.args if isinstance(expr, sympy.Mul) else (sympy.Integer(1), expr)
    if len(rest) != 1 or not isinstance(rest[0], tsf.ToFloat) or not isinstance(factor, sympy.Number) or factor <= 0:
        return None
    numerator, denominator = float(factor).as_integer_ratio()
    if numerator >= 2**12 or denominator > 2**12:
        return None
    return floordiv(from_sympy(rest[0].args[0]) * numerator, denominator)


def holds(guard: sympy.Basic, values: Mapping[str, int]) -> bool:
    """Return whether a guard is true for these sizes. A guard over symbols not among them does not hold."""
    bound = {s: sympy.Integer(values[str(s)]) for s in guard.free_symbols if str(s) in values}
    return bool(guard.xreplace(bound) == sympy.true)

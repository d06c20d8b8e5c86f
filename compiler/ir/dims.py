"""Sizes of tensors: plain ints, or integer expressions over the symbols of a dynamic program.

An expression is kept as a polynomial with integer coefficients over *atoms*; an atom is a symbol (``s0``) or an
opaque call (``floordiv``, ``mod``, ``max``, ``min``) of expressions. Two expressions are equal when their polynomials
are: that decides every question of the view and broadcast families, and never says "equal" when they are not.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce as fold
from typing import TypeAlias


@dataclass(frozen=True, slots=True, order=True)
class Atom:
    """A symbol (no ``args``) or an opaque integer function of expressions."""

    name: str
    args: tuple[Dim, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.args))})" if self.args else self.name


Monomial: TypeAlias = tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class Expr:
    """A polynomial: ``terms`` maps each sorted product of atoms to its coefficient. Built by ``symbol``."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: Dim) -> Dim:
        return _poly(_merge(_terms(self), _terms(other)))

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + (-other)

    def __rsub__(self, other: Dim) -> Dim:
        return (-self) + other

    def __mul__(self, other: Dim) -> Dim:
        out: dict[Monomial, int] = {}
        for left, a in _terms(self).items():
            for right, b in _terms(other).items():
                key = tuple(sorted(left + right, key=str))
                out[key] = out.get(key, 0) + a * b
        return _poly(out)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return mod(self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return mod(other, self)

    def __str__(self) -> str:
        text = ""
        for atoms, coefficient in self.terms:
            factors = [str(a) for a in atoms]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, str(abs(coefficient)))
            sign = "-" if coefficient < 0 else ("+" if text else "")
            text += sign + "*".join(factors)
        return text

    __repr__ = __str__


Dim: TypeAlias = int | Expr
Shape: TypeAlias = tuple[Dim, ...]


def symbol(name: str) -> Expr:
    """Return the size named ``name``: a run-time value, an int of at least 0."""
    return Expr((((Atom(name),), 1),))


def _terms(dim: Dim) -> dict[Monomial, int]:
    return dict(dim.terms) if isinstance(dim, Expr) else ({(): dim} if dim else {})


def _merge(a: dict[Monomial, int], b: dict[Monomial, int]) -> dict[Monomial, int]:
    return {k: a.get(k, 0) + b.get(k, 0) for k in (*a, *(k for k in b if k not in a))}


def _poly(terms: dict[Monomial, int]) -> Dim:
    kept = {k: c for k, c in terms.items() if c}
    if not kept:
        return 0
    if set(kept) == {()}:
        return kept[()]
    # Constant last, the rest by text: one order, so that equal polynomials are equal tuples and print the same.
    ordered = sorted(kept.items(), key=lambda kc: (kc[0] == (), [str(a) for a in kc[0]]))
    return Expr(tuple(ordered))


def _call(name: str, *args: Dim) -> Expr:
    return Expr((((Atom(name, args),), 1),))


def _divided(a: Dim, b: Dim) -> Dim | None:
    """Return ``a / b`` when it is exact whatever the symbols are, else None."""
    if isinstance(b, int):
        terms = _terms(a)
        return _poly({k: c // b for k, c in terms.items()}) if b and all(c % b == 0 for c in terms.values()) else None
    if len(b.terms) == 1:
        (atoms, coefficient), out = b.terms[0], {}
        for monomial, c in _terms(a).items():
            rest = list(monomial)
            for atom in atoms:
                if atom not in rest:
                    return None
                rest.remove(atom)
            if c % coefficient:
                return None
            out[tuple(rest)] = c // coefficient
        return _poly(out)
    return 1 if a == b else None


def floordiv(a: Dim, b: Dim) -> Dim:
    """Return ``a // b``, rounding down as Python does. A symbolic divisor is taken to be non-zero."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    exact = _divided(a, b)
    return exact if exact is not None else _call("floordiv", a, b)


def mod(a: Dim, b: Dim) -> Dim:
    """Return ``a % b`` with the sign of ``b``, as Python does."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    return 0 if _divided(a, b) is not None else _call("mod", a, b)


def dim_max(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return a if a == b else _call("max", *sorted((a, b), key=str))


def dim_min(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return a if a == b else _call("min", *sorted((a, b), key=str))


_CALLS = {"floordiv": floordiv, "mod": mod, "max": dim_max, "min": dim_min}


def product(dims: Sequence[Dim]) -> Dim:
    """Return the number of elements of a shape."""
    return fold(lambda a, b: a * b, dims, 1)


def substitute(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """Return ``dim`` with the symbols in ``values`` replaced; symbols not in it stay."""
    if isinstance(dim, int):
        return dim
    total: Dim = 0
    for atoms, coefficient in dim.terms:
        factors: list[Dim] = [coefficient]
        for atom in atoms:
            if atom.args:
                factors.append(_CALLS[atom.name](*(substitute(a, values) for a in atom.args)))
            else:
                factors.append(values.get(atom.name, symbol(atom.name)))
        total = total + product(factors)
    return total


def evaluate(dim: Dim, values: Mapping[str, Dim]) -> int:
    """Return the value of ``dim``; KeyError names a symbol that ``values`` does not bind."""
    result = substitute(dim, values)
    if isinstance(result, Expr):
        raise KeyError(", ".join(sorted(symbols(result))))
    return result


def linear(dim: Dim) -> tuple[str, int, int] | None:
    """Return the symbol, ``a`` and ``b`` of ``a * symbol + b`` with a positive ``a``; None for another form."""
    found = [(atoms, a) for atoms, a in dim.terms if atoms] if isinstance(dim, Expr) else []
    if len(found) != 1 or len(found[0][0]) != 1 or found[0][0][0].args or found[0][1] <= 0:
        return None
    assert isinstance(dim, Expr)
    ((atom,), factor) = found[0]
    return atom.name, factor, dict(dim.terms).get((), 0)


def solve(dim: Expr, size: int) -> tuple[str, int] | None:
    """Return the symbol of ``a * symbol + b``, with a positive ``a``, and its value where that is ``size``.

    None for another form. The value is rounded down where there is none.
    """
    found = linear(dim)
    return None if found is None else (found[0], (size - found[2]) // found[1])


def renamed(dim: Dim, names: Mapping[str, str]) -> Dim:
    """Return a size with other names for those of its symbols that have one."""
    return substitute(dim, {old: symbol(new) for old, new in names.items()})


def symbols(dim: Dim) -> set[str]:
    """Return the names of the symbols in ``dim``."""
    if isinstance(dim, int):
        return set()
    found: set[str] = set()
    for atoms, _ in dim.terms:
        for atom in atoms:
            found |= set().union(*(symbols(a) for a in atom.args)) if atom.args else {atom.name}
    return found


def nonnegative(dim: Dim) -> bool:
    """Say whether a size is at least 0 whatever its symbols are, none of which is negative; False when in doubt."""
    if isinstance(dim, int):
        return dim >= 0
    return all(coefficient > 0 and all(map(_atom_nonnegative, atoms)) for atoms, coefficient in dim.terms)


def _atom_nonnegative(atom: Atom) -> bool:
    match atom.name, atom.args:
        case _, ():
            return True
        case "floordiv", (a, b):
            return nonnegative(a) and nonnegative(b)
        case "mod", (_, b):
            return nonnegative(b)
        case "max", args:
            return any(map(nonnegative, args))
        case _, args:
            return all(map(nonnegative, args))


def interval(dim: Dim, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """Return bounds of a size whose symbols are in ``ranges``, each a least and a greatest value of at least 0.

    A divisor is at least 1. The bounds are exact where each symbol is in one place; else they may be wider.
    """
    if isinstance(dim, int):
        return dim, dim
    low = high = 0
    for atoms, coefficient in dim.terms:
        corners = [coefficient]
        for atom in atoms:
            corners = [c * bound for c in corners for bound in _atom_interval(atom, ranges)]
        low, high = low + min(corners), high + max(corners)
    return low, high


def _atom_interval(atom: Atom, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    if not atom.args:
        return ranges[atom.name]
    (a, b), (c, d) = (interval(arg, ranges) for arg in atom.args)
    match atom.name:
        case "floordiv":
            corners = [x // max(y, 1) for x in (a, b) for y in (c, d)]
            return min(corners), max(corners)
        case "mod":
            return (a, b) if a >= 0 and b < c else (0, max(d - 1, 0))
        case "max":
            return max(a, c), max(b, d)
        case _:
            return min(a, c), min(b, d)


def parse_dim(text: str) -> Dim:
    """Parse what ``str`` printed; ValueError on anything else. Only arithmetic is read, nothing is evaluated."""
    try:
        return _from_ast(ast.parse(text.strip(), mode="eval").body)
    except SyntaxError:
        raise ValueError(f"not a size: {text!r}") from None


def _from_ast(node: ast.expr) -> Dim:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_from_ast(operand)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _from_ast(left), _from_ast(right)
            if isinstance(op, ast.Add):
                return a + b
            if isinstance(op, ast.Sub):
                return a - b
            if isinstance(op, ast.Mult):
                return a * b
        case ast.Call(func=ast.Name(id=name), args=[left, right]) if name in _CALLS:
            return _CALLS[name](_from_ast(left), _from_ast(right))
    raise ValueError(f"not a size: {ast.unparse(node)!r}")

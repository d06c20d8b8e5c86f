"""Names that a slip of the hand exchanges: primitives, attributes and methods of one kind and arity."""

from __future__ import annotations

KINDS = """
lt le gt ge eq ne
slt sle sgt sge
ult ule ugt uge
olt ole ogt oge
add sub mul div
addf subf mulf divf
addi subi muli
max min
maximum minimum
maximumf minimumf
maxnumf minnumf
maxsi minsi
maxui minui
argmax argmin
amax amin
and or xor
and_ or_ xor_
andi ori xori
floor ceil trunc round
exp exp2 expm1
log log2 log10 log1p
sin cos tan
asin acos atan
sinh cosh tanh
asinh acosh atanh
sqrt rsqrt
erf erfc
real imag
shift_left shift_right
shli shrsi shrui
divsi divui floordivsi ceildivsi
remsi remui
extsi extui
sitofp uitofp
fptosi fptoui
sum prod
any all
int8 int16 int32 int64
float16 bfloat16
float32 float64
complex64 complex128
is_float is_int is_complex is_bool
reflect replicate
constant reflect
lower upper
"""

_NEXT: dict[str, str] = {}
for _row in KINDS.strip().splitlines():
    _names = _row.split()
    for _name, _other in zip(_names, [*_names[1:], _names[0]], strict=True):
        _NEXT.setdefault(_name, _other)

_COMMUTATIVE = """
add addf addi mul mulf muli and and_ andi or or_ ori xor xor_ xori eq ne max min maximum minimum
maximumf minimumf maxnumf minnumf maxsi minsi maxui minui
"""
COMMUTATIVE = frozenset(_COMMUTATIVE.split())
"""Calls whose first two operands may be exchanged without a change of meaning."""

_CONVERSIONS = "cast broadcast abs neg not_ fit reshape bitcast clamp round floor real"
CONVERSIONS = frozenset(_CONVERSIONS.split())
"""Calls that give a value like their first operand: what is left out by a slip of the hand."""


def other_of_its_kind(name: str) -> str | None:
    """The name that takes the place of this one, if it is of a kind that has several."""
    return _NEXT.get(name)

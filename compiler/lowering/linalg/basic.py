"""Constants, types and comparisons: the vocabulary that scalar code is written in."""

from __future__ import annotations

from functools import cache
from typing import Any

from torchstone.compiler import mlir

CMPF = {"eq": 1, "gt": 2, "ge": 3, "lt": 4, "le": 5, "ne": 13}  # ordered, but "ne", which is true for NaN
CMPI = {"eq": 0, "ne": 1, "lt": 2, "le": 3, "gt": 4, "ge": 5, "ult": 6, "ule": 7, "ugt": 8, "uge": 9}
UNORDERED = 14


@cache
def integer(bits: int) -> Any:
    return mlir.ir.IntegerType.get_signless(bits)


@cache
def floating(bits: int) -> Any:
    return mlir.ir.F32Type.get() if bits == 32 else mlir.ir.F64Type.get()


def constant(type_: Any, value: Any) -> Any:
    """Return a constant of an integer, index or float type; an integer is taken modulo the width."""
    return mlir.create("arith.constant", type_, (), value=_attribute(type_, value))


def _attribute(type_: Any, value: Any) -> Any:
    ir = mlir.ir
    if isinstance(type_, ir.IntegerType):
        width = type_.width
        value = int(value) & ((1 << width) - 1)
        value -= (1 << width) if width > 1 and value >> (width - 1) else 0
        return ir.IntegerAttr.get(type_, value)
    if isinstance(type_, ir.IndexType):
        return ir.IntegerAttr.get(type_, value)
    return ir.FloatAttr.get(type_, float(value))


def compare_int(relation: str, a: Any, b: Any) -> Any:
    return mlir.create("arith.cmpi", integer(1), (a, b), predicate=_predicate(CMPI[relation]))


def compare_float(relation: str, a: Any, b: Any) -> Any:
    return mlir.create("arith.cmpf", integer(1), (a, b), predicate=_predicate(CMPF[relation]))


def is_nan(x: Any) -> Any:
    return mlir.create("arith.cmpf", integer(1), (x, x), predicate=_predicate(UNORDERED))


@cache
def _predicate(code: int) -> Any:
    return mlir.ir.IntegerAttr.get(integer(64), code)

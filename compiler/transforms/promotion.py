"""Type promotion (PyTorch docs, torch.result_type) and the compute dtype of eager's CPU kernels. No torch here."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.ir import Value
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Expr
from torchstone.compiler.ir.dtypes import BY_NAME, Category, DType


def promote(a: DType, b: DType) -> DType:
    """Return torch.promote_types(a, b). ValueError for pairs PyTorch refuses (float8, mixed large unsigned)."""
    if a == b:
        return a
    for one, other in ((a, b), (b, a)):
        large_unsigned = one.kind is Category.UINT and one.bits > 8
        if (one.is_float and one.bits == 8) or (large_unsigned and not (other.is_float or other.is_complex)):
            raise ValueError(f"PyTorch does not promote {a} and {b}")
    if a.is_bool or b.is_bool:
        return b if a.is_bool else a
    if a.is_int and b.is_int:
        if a.kind == b.kind:
            return a if a.bits >= b.bits else b
        signed, unsigned = (a, b) if a.is_signed else (b, a)
        return signed if signed.bits > unsigned.bits else BY_NAME[f"int{2 * unsigned.bits}"]
    if a.is_int or b.is_int:
        return b if a.is_int else a
    if a.is_complex or b.is_complex:
        real = promote(a.real, b.real)
        return {16: dt.complex32, 32: dt.complex64, 64: dt.complex128}[real.bits]
    if a.bits == b.bits:
        return dt.float32  # float16 with bfloat16
    return a if a.bits > b.bits else b


def scalar_dtype(value: Any) -> DType:
    """Return the default dtype of a Python number: bool, int64, float32, complex64."""
    if isinstance(value, bool):
        return dt.boolean
    if isinstance(value, int | Expr):
        return dt.int64
    return dt.complex64 if isinstance(value, complex) else dt.float32


def result_type(*operands: Any) -> DType:
    """Return torch.result_type over values and Python numbers.

    Tensors with dims outrank 0-d tensors, which outrank Python numbers: a lower rank matters only when its category
    (bool, int, float, complex) is higher.
    """
    levels: list[DType | None] = [None, None, None]
    for operand in operands:
        if operand is None:
            continue
        if isinstance(operand, Value):
            level, dtype = (0 if operand.rank else 1), operand.dtype
        else:
            level, dtype = 2, scalar_dtype(operand)
        known = levels[level]
        levels[level] = dtype if known is None else promote(known, dtype)
    out = _combine(levels[0], _combine(levels[1], levels[2]))
    if out is None:
        raise ValueError("result_type of nothing")
    return out


def _combine(higher: DType | None, lower: DType | None) -> DType | None:
    """Combine two priority levels (c10's combine_categories): the lower one counts when its category is higher."""
    if higher is None or lower is None:
        return lower if higher is None else higher
    if higher.is_complex or (higher.is_float and not lower.is_complex):
        return higher
    if higher.is_float:
        return BY_NAME[f"complex{2 * higher.bits}"] if higher != dt.bfloat16 else dt.complex64
    if higher.is_bool or lower.is_float or lower.is_complex:
        return promote(higher, lower)
    return higher


def opmath(dtype: DType) -> DType:
    """Return the dtype eager's CPU kernels compute in: float32 for 16-bit floats, else the dtype itself."""
    if dtype.is_half:
        return dt.float32
    return dt.complex64 if dtype == dt.complex32 else dtype


def integral_to_float(dtype: DType) -> DType:
    """Return the dtype of a float-valued function of this dtype: ints and bools give float32."""
    return dt.float32 if dtype.is_int or dtype.is_bool else dtype

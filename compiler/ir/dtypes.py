"""The one dtype table: every element type PyTorch and MLIR share, by PyTorch's name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Category(StrEnum):
    """The promotion category of a dtype; the order of the members is the order of promotion."""

    BOOL = "bool"
    UINT = "uint"
    INT = "int"
    FLOAT = "float"
    COMPLEX = "complex"


@dataclass(frozen=True, slots=True, eq=False)
class DType:
    """An element type. There is one object of each, compared by identity: the compiler does little else so often.

    ``name`` is PyTorch's (``torch.<name>``), ``short`` the one the IR prints, ``mlir`` the MLIR type of one element
    (integers are signless there; the sign lives in ``kind``), ``bits`` the size of one element in memory.
    """

    name: str
    short: str
    kind: Category
    bits: int
    mlir: str

    def __str__(self) -> str:
        return self.short

    def __repr__(self) -> str:
        return self.short

    def __reduce__(self) -> tuple[Any, ...]:
        return _by_name, (self.name,)

    @property
    def is_float(self) -> bool:
        return self.kind is Category.FLOAT

    @property
    def is_complex(self) -> bool:
        return self.kind is Category.COMPLEX

    @property
    def is_bool(self) -> bool:
        return self.kind is Category.BOOL

    @property
    def is_int(self) -> bool:
        """True for signed and unsigned integers, not for bool."""
        return self.kind in (Category.INT, Category.UINT)

    @property
    def is_signed(self) -> bool:
        return self.kind is not Category.UINT and self.kind is not Category.BOOL

    @property
    def is_half(self) -> bool:
        """True for the 16-bit floats, which eager computes in float32 and rounds once."""
        return self.kind is Category.FLOAT and self.bits == 16

    @property
    def real(self) -> DType:
        """The dtype of the real part of a complex dtype; a real dtype is its own."""
        return {"complex32": float16, "complex64": float32, "complex128": float64}.get(self.name, self)


def _by_name(name: str) -> DType:
    return BY_NAME[name]


DTYPES: tuple[DType, ...] = (
    DType("bool", "bool", Category.BOOL, 8, "i1"),
    DType("uint8", "u8", Category.UINT, 8, "i8"),
    DType("uint16", "u16", Category.UINT, 16, "i16"),
    DType("uint32", "u32", Category.UINT, 32, "i32"),
    DType("uint64", "u64", Category.UINT, 64, "i64"),
    DType("int8", "i8", Category.INT, 8, "i8"),
    DType("int16", "i16", Category.INT, 16, "i16"),
    DType("int32", "i32", Category.INT, 32, "i32"),
    DType("int64", "i64", Category.INT, 64, "i64"),
    DType("float8_e4m3fn", "f8e4m3fn", Category.FLOAT, 8, "f8E4M3FN"),
    DType("float8_e4m3fnuz", "f8e4m3fnuz", Category.FLOAT, 8, "f8E4M3FNUZ"),
    DType("float8_e5m2", "f8e5m2", Category.FLOAT, 8, "f8E5M2"),
    DType("float8_e5m2fnuz", "f8e5m2fnuz", Category.FLOAT, 8, "f8E5M2FNUZ"),
    DType("float8_e8m0fnu", "f8e8m0fnu", Category.FLOAT, 8, "f8E8M0FNU"),
    DType("float16", "f16", Category.FLOAT, 16, "f16"),
    DType("bfloat16", "bf16", Category.FLOAT, 16, "bf16"),
    DType("float32", "f32", Category.FLOAT, 32, "f32"),
    DType("float64", "f64", Category.FLOAT, 64, "f64"),
    DType("complex32", "c32", Category.COMPLEX, 32, "complex<f16>"),
    DType("complex64", "c64", Category.COMPLEX, 64, "complex<f32>"),
    DType("complex128", "c128", Category.COMPLEX, 128, "complex<f64>"),
)

BY_NAME: dict[str, DType] = {d.name: d for d in DTYPES}
BY_SHORT: dict[str, DType] = {d.short: d for d in DTYPES}

boolean = BY_NAME["bool"]
uint8 = BY_NAME["uint8"]
uint16 = BY_NAME["uint16"]
uint32 = BY_NAME["uint32"]
uint64 = BY_NAME["uint64"]
int8 = BY_NAME["int8"]
int16 = BY_NAME["int16"]
int32 = BY_NAME["int32"]
int64 = BY_NAME["int64"]
float16 = BY_NAME["float16"]
bfloat16 = BY_NAME["bfloat16"]
float32 = BY_NAME["float32"]
float64 = BY_NAME["float64"]
complex32 = BY_NAME["complex32"]
complex64 = BY_NAME["complex64"]
complex128 = BY_NAME["complex128"]

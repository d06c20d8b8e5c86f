"""Where upstream's way from TOSA to linalg gives other numbers than TOSA says, or worse ones, it is made right here.

``as_specified`` rewrites TOSA ops before that way is taken. It changes the code that runs, not the TOSA that is
validated and printed. Each row of ``docs/tosa.md`` names one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from torchstone.compiler import mlir
from torchstone.compiler.lowering.linalg.polynomials import in_float32
from torchstone.compiler.lowering.mlir_passes.sums import operations
from torchstone.compiler.lowering.tosa.products import PRODUCTS, product

# Marks a product that stands for a quotient; with a number, the divisor, else the second factor is a reciprocal.
QUOTIENT = "torchstone.quotient"
# Marks the last op of a formula that stands for a function that TOSA has not, by the function's name.
FUNCTION = "torchstone.function"
# By that name: the op before the last one, whose first operand is the argument, and its place among the last one's.
_FORMULAS = {"erfc": ("tosa.erf", 1), "expm1": ("tosa.exp", 0), "log1p": ("tosa.add", 0), "sqrt": ("tosa.rsqrt", 0)}


def as_specified(module: Any) -> None:
    """Rewrite TOSA ops whose lowering means something else, in place.

    - ``clamp``: a zero keeps its sign (apply_max_s(a, b) is a where a >= b), arith.maximumf gives +0.
    - ``mul`` that is told to be a quotient: a division, which rounds once.
    - ``sub``, ``log`` and ``reciprocal`` that are told to be a function, like e**x - 1: it, which does not cancel.
    - ``add``, ``sub``, ``mul`` with a constant 0: upstream folds x + 0 to x and x * 0 to 0, though x may be -0, NaN or
      infinite. It does not see the constant through a cast to its own type.
    - ``max_pool2d``: padding is no element, upstream's is the least finite float, which beats -inf.
    """
    ir = mlir.ir
    with mlir.context():
        for op in operations(module, *_AS_SPECIFIED):
            if isinstance(op.results[0].type.element_type, ir.IntegerType):
                continue
            with op.location, ir.InsertionPoint(op):
                new = _AS_SPECIFIED[op.name](op)
            if new is not None:
                op.results[0].replace_all_uses_with(new)
                op.erase()


def _constant(shape: list[int], number: Any) -> Any:
    ir = mlir.ir
    kind = ir.RankedTensorType.get(shape, number.type)
    return mlir.tosa.const(ir.DenseElementsAttr.get_splat(kind, number))


def _propagates(op: Any) -> bool:
    return "PROPAGATE" in str(op.attributes["nan_mode"])


def _clamp(op: Any) -> Any:
    ir, x = mlir.ir, op.operands[0]
    if not _propagates(op):
        return None
    kind = x.type
    boolean = ir.RankedTensorType.get(kind.shape, ir.IntegerType.get_signless(1))
    for name, below in (("min_val", True), ("max_val", False)):
        bound = _constant([1] * kind.rank, op.attributes[name])
        outside = mlir.tosa.greater(boolean, *((bound, x) if below else (x, bound)))
        x = mlir.tosa.select(kind, outside, bound, x)
    return x


def _max_pool(op: Any) -> Any:
    ir, x = mlir.ir, op.operands[0]
    if not _propagates(op):
        return None
    top, bottom, left, right = op.attributes["pad"]
    kind = x.type
    batch, height, width, depth = kind.shape
    if (top, bottom, left, right) != (0, 0, 0, 0):
        amounts = [0, 0, top, bottom, left, right, 0, 0]
        index = ir.IndexType.get()
        sizes = mlir.tosa.const_shape(
            ir.Type.parse("!tosa.shape<8>"),
            ir.DenseElementsAttr.get(
                [ir.IntegerAttr.get(index, n) for n in amounts], ir.RankedTensorType.get([8], index)
            ),
        )
        least = _constant([1], ir.FloatAttr.get(kind.element_type, -inf))
        padded = [batch, height + top + bottom, width + left + right, depth]
        x = mlir.tosa.pad(ir.RankedTensorType.get(padded, kind.element_type), x, sizes, least)
    return mlir.tosa.max_pool2d(
        op.results[0].type, x, op.attributes["kernel"], op.attributes["stride"], ir.DenseI64ArrayAttr.get([0] * 4),
        nan_mode=op.attributes["nan_mode"],
    )  # fmt: skip


def _hide_zeros(op: Any) -> None:
    for index, value in enumerate(op.operands[:2]):
        constant = getattr(value.owner, "operation", None)
        if constant is None or constant.name != "tosa.const":
            continue
        numbers = mlir.ir.DenseFPElementsAttr(constant.attributes["values"])
        if numbers.is_splat and numbers.get_splat_value().value == 0:
            op.operands[index] = mlir.tensor.cast(value.type, value)


def _function(op: Any) -> Any:
    """Return what the op stands for, if it does."""
    if FUNCTION not in op.attributes:
        return None
    name = op.attributes[FUNCTION].value
    before, index = _FORMULAS[name]
    inner = getattr(op.operands[index].owner, "operation", None)
    if inner is None or inner.name != before:
        return None
    if name == "sqrt":
        return mlir.math.sqrt(inner.operands[0])
    return _elementwise(op, inner.operands[0:1], lambda x: in_float32(name, x))


def _sub(op: Any) -> Any:
    _hide_zeros(op)
    return _function(op)


def _mul(op: Any) -> Any:
    """x / y for x * (1/y), or for x times a constant; other products stay."""
    if QUOTIENT not in op.attributes:
        _hide_zeros(op)
        return None
    x, y = op.operands[0], op.operands[1]
    divisor = op.attributes[QUOTIENT]
    y = _constant(y.type.shape, divisor) if isinstance(divisor, mlir.ir.FloatAttr) else y.owner.operands[0]
    return _elementwise(op, [x, y], mlir.arith.divf)


def _elementwise(op: Any, operands: Sequence[Any], compute: Callable[..., Any]) -> Any:
    """Return ``compute`` of the elements of the operands, whose dims of size 1 are repeated, in place of ``op``."""
    ir, kind = mlir.ir, op.results[0].type
    dims = range(kind.rank)
    repeated = [[d for d in dims if v.type.shape[d] == 1 != kind.shape[d]] for v in operands]
    exprs = [[ir.AffineConstantExpr.get(0) if d in r else ir.AffineDimExpr.get(d) for d in dims] for r in repeated]
    maps = [ir.AffineMap.get(kind.rank, 0, e) for e in (*exprs, [ir.AffineDimExpr.get(d) for d in dims])]
    sizes = []
    for d in dims:
        long = next(v for v, r in zip(operands, repeated, strict=True) if d not in r)
        if kind.is_dynamic_dim(d):
            sizes.append(mlir.tensor.dim(long, mlir.arith.ConstantOp(ir.IndexType.get(), d).result))
        else:
            sizes.append(kind.shape[d])
    attributes = {
        "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
        "iterator_types": ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * kind.rank),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 1]),
    }
    empty = mlir.tensor.empty(sizes, kind.element_type)
    generic = ir.Operation.create("linalg.generic", [kind], [*operands, empty], attributes, regions=1)
    count = len(operands) + 1
    block = ir.Block.create_at_start(generic.regions[0], [kind.element_type] * count, [op.location] * count)
    with ir.InsertionPoint(block):
        mlir.linalg.YieldOp([compute(*list(block.arguments)[:-1])])
    return generic.result


_AS_SPECIFIED = {
    "tosa.add": _hide_zeros,
    "tosa.clamp": _clamp,
    **dict.fromkeys(PRODUCTS, product),
    "tosa.max_pool2d": _max_pool,
    "tosa.log": _function,
    "tosa.mul": _mul,
    "tosa.reciprocal": _function,
    "tosa.sub": _sub,
}

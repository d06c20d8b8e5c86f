"""The one way to make FlatIR: every op goes through the primitive's shape function on its way into the graph."""

from __future__ import annotations

from typing import Any

from torchstone.compiler.ir import DType, Expr, Location, Operation, Shape, Value, product
from torchstone.compiler.ir.dims import Dim
from torchstone.compiler.ops import PRIMITIVES


class Builder:
    """Appends FlatIR ops to ``ops``. An elementwise primitive is a method: ``b.add(x, y)``, ``b.exp(x)``."""

    def __init__(self, ops: list[Operation], location: Location = Location()) -> None:  # noqa: B008 - frozen
        self.ops = ops
        self.location = location

    def emit(self, name: str, *operands: Value, **attributes: Any) -> tuple[Value, ...]:
        """Append ``flat.<name>``; VerifyError if the primitive refuses the operand types or attributes."""
        row = PRIMITIVES[f"flat.{name}"]
        types = row.infer(*(o.tensor for o in operands), **attributes)
        results = tuple(Value(t) for t in types)
        self.ops.append(Operation(row.op, operands, results, attributes, self.location))
        return results

    def __getattr__(self, name: str) -> Any:
        """``b.<primitive>(*operands, **attributes)`` returns the one result; a trailing ``_`` escapes a keyword."""
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*operands: Value, **attributes: Any) -> Value:
            (result,) = self.emit(name.removesuffix("_"), *operands, **attributes)
            return result

        return call

    # Structured primitives, with no-ops folded: what comes back may be the operand itself.

    def cast(self, x: Value, dtype: DType) -> Value:
        return x if x.dtype == dtype else self.emit("cast", x, dtype=dtype)[0]

    def fit(self, x: Value, shape: Shape) -> Value:
        """``x`` as a value of this shape, where sizes known at run time only are required to be what it says."""
        for dim, (size, wanted) in enumerate(zip(x.shape, shape, strict=True)):
            if size != wanted and (isinstance(size, Expr) or isinstance(wanted, Expr)):
                self.emit("require", left=size, right=wanted, relation="eq")
                x = self.slice(x, dim, 0, wanted)
        return x

    def reshape(self, x: Value, shape: Shape) -> Value:
        shape = tuple(shape)
        if x.shape == shape:
            return x
        if isinstance((count := product(x.shape)) - product(shape), Expr):
            x = self.fit(self.emit("reshape", x, shape=(count,))[0], (product(shape),))
        return self.emit("reshape", x, shape=shape)[0]

    def transpose(self, x: Value, permutation: tuple[int, ...]) -> Value:
        if permutation == tuple(range(x.rank)):
            return x
        return self.emit("transpose", x, permutation=tuple(permutation))[0]

    def broadcast(self, x: Value, shape: Shape, dims: tuple[int, ...] | None = None) -> Value:
        """Broadcast to ``shape``; without ``dims``, trailing dims line up as in PyTorch."""
        shape = tuple(shape)
        if x.shape == shape and dims in (None, tuple(range(x.rank))):
            return x
        dims = tuple(range(len(shape) - x.rank, len(shape))) if dims is None else tuple(dims)
        x = self.fit(x, tuple(1 if size == 1 else shape[d] for size, d in zip(x.shape, dims, strict=True)))
        return self.emit("broadcast", x, shape=shape, dims=dims)[0]

    def contract(
        self,
        x: Value,
        y: Value,
        *,
        a_batch: tuple[int, ...],
        b_batch: tuple[int, ...],
        a_sum: tuple[int, ...],
        b_sum: tuple[int, ...],
    ) -> Value:
        """``flat.contract``, where sizes of ``y`` known at run time only are required to be those of ``x``."""
        shape = list(y.shape)
        for one, other in zip((*a_batch, *a_sum), (*b_batch, *b_sum), strict=True):
            shape[other] = x.shape[one]
        y = self.fit(y, tuple(shape))
        return self.emit("contract", x, y, a_batch=a_batch, b_batch=b_batch, a_sum=a_sum, b_sum=b_sum)[0]

    def reduce(self, x: Value, kind: str, dims: tuple[int, ...]) -> Value:
        return x if not dims else self.emit("reduce", x, kind=kind, dims=tuple(sorted(dims)))[0]

    def scalar(self, value: Any, dtype: DType) -> Value:
        """A 0-d constant."""
        return self.emit("constant", value=value, shape=(), dtype=dtype)[0]

    def full(self, value: Any, shape: Shape, dtype: DType) -> Value:
        """A constant of any shape, symbolic sizes included."""
        return self.broadcast(self.scalar(value, dtype), shape, ())

    def full_like(self, x: Value, value: Any) -> Value:
        return self.full(value, x.shape, x.dtype)

    def slice(self, x: Value, dim: int, start: Dim, limit: Dim, stride: int = 1) -> Value:
        """Slice one dim, keep the others whole."""
        if start == 0 and limit == x.shape[dim] and stride == 1:
            return x
        starts: list[Dim] = [0] * x.rank
        limits, strides = list(x.shape), [1] * x.rank
        starts[dim], limits[dim], strides[dim] = start, limit, stride
        return self.emit("slice", x, start=tuple(starts), limit=tuple(limits), stride=tuple(strides))[0]

"""Fused multiply-add: a product that is added to something is not rounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.tensors import known_version
from torchstone.conformance.controls.control import Control, Kernel, Replaced, functional_form, operator
from torchstone.conformance.controls.operands import accumulator, fused_multiply_add, real
from torchstone.conformance.controls.summation import fused_contractions


def _wide(value: Any, like: Tensor) -> Tensor:
    return (
        torch.as_tensor(value, dtype=accumulator(like.dtype))
        if not isinstance(value, Tensor)
        else value.to(accumulator(like.dtype))
    )


def _same(*operands: Any) -> bool:
    """Whether the tensors among the operands are real, of one dtype."""
    tensors = [each for each in operands if isinstance(each, Tensor)]
    return real(*tensors) and len({each.dtype for each in tensors}) == 1


def addcmul(x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    if not _same(x, a, b):
        return NotImplemented
    return fused_multiply_add(_wide(a, x) * value, _wide(b, x), _wide(x, x)).to(x.dtype)


def addcdiv(x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    if not _same(x, a, b):
        return NotImplemented
    return fused_multiply_add(_wide(a, x) / _wide(b, x), _wide(value, x), _wide(x, x)).to(x.dtype)


class Contracted(Replaced):
    """Remembers the products that it has seen: one that is added to something later is fused with the addition."""

    def __init__(self, ran: list[str]) -> None:
        super().__init__(self._kernel_of, ran)
        self.products: list[tuple[Tensor, int | None, Tensor, Tensor]] = []
        self.table: dict[Any, Kernel] = {operator(name): kernel for name, kernel in fused_contractions().items()}
        self.table |= {operator("addcmul"): addcmul, operator("addcdiv"): addcdiv}
        self.table |= {operator("add.Tensor"): self._add, operator("sub.Tensor"): self._sub}

    def _kernel_of(self, op: Any) -> Kernel | None:
        return self.table.get(op)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        counted = isinstance(out, Tensor) and known_version(out) is not None  # else nobody knows when it is written to
        if func is operator("mul.Tensor") and counted and _same(*args, out):
            x, y = (_wide(each, out).clone() for each in args)
            self.products.append((out, known_version(out), x, y))
        return out

    def _factors(self, value: Any) -> tuple[Tensor, Tensor] | None:
        for out, was, x, y in self.products:
            if out is value and known_version(out) == was:
                return x, y
        return None

    def _add(self, a: Any, b: Any, *, alpha: Any = 1) -> Any:
        if not _same(a, b):
            return NotImplemented
        like = a if isinstance(a, Tensor) else b
        if alpha != 1:
            return fused_multiply_add(_wide(alpha, like), _wide(b, like), _wide(a, like)).to(like.dtype)
        for one, other in ((a, b), (b, a)):
            if (factors := self._factors(one)) is not None:
                return fused_multiply_add(*factors, _wide(other, like)).to(like.dtype)
        return NotImplemented

    def _sub(self, a: Any, b: Any, *, alpha: Any = 1) -> Any:
        if not _same(a, b):
            return NotImplemented
        like = a if isinstance(a, Tensor) else b
        if alpha == 1 and (factors := self._factors(a)) is not None:
            return fused_multiply_add(*factors, -_wide(b, like)).to(like.dtype)
        return self._add(a, b, alpha=-alpha) if alpha != 1 else NotImplemented


def _build(fn: Callable[..., Any], ran: list[str]) -> Callable[..., Any]:
    def run(*tensors: Tensor) -> Any:
        with Contracted(ran):
            return fn(*tensors)

    return run


_KNOWN = Contracted([]).table

CONTROLS = (
    Control(
        "fused_multiply_adds",
        "Products that are added to something are not rounded in between. As close to float64 as eager is, or closer; "
        "of float64, a product beyond the range may come back into it.",
        _build,
        lambda ops: any(functional_form(op) in _KNOWN for op in ops),
    ),
)

"""The float64 twin of a program: the same calls, with every floating dtype made float64 and complex made complex128."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.oracle.op_traits.references import WIDENED_CASTS
from torchstone.conformance.program.literals import map_leaves
from torchstone.conformance.program.program import Call, Program


class NoTwin(Exception):
    """There is no float64 run to referee; the message says why."""


_METHOD = "torch.Tensor."
_WIDENED = {_METHOD + cast: _METHOD + wider for cast, wider in WIDENED_CASTS.ops.items()}


def wider(dtype: torch.dtype) -> torch.dtype:
    """float64 for a floating dtype, complex128 for a complex one, the dtype itself otherwise."""
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def widen_program(program: Program) -> Program:
    """The program with dtype arguments and casts widened."""

    def leaf(value: Any) -> Any:
        return wider(value) if isinstance(value, torch.dtype) else value

    calls = [
        Call(
            _WIDENED.get(call.target, call.target),
            map_leaves(call.args, leaf),
            map_leaves(call.kwargs, leaf),
            call.result,
        )
        for call in program.calls
    ]
    return Program(program.inputs, tuple(calls), program.outputs)


def widen_inputs(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Widened copies with the same sizes, strides, offsets and aliasing. Raises ``NoTwin`` when aliases disagree."""
    rows: dict[int, tuple[torch.dtype, Tensor]] = {}
    result: list[Tensor] = []
    for tensor in tensors:
        plain = tensor.detach()
        negative, conjugate = plain.is_neg(), plain.is_conj()
        plain = torch._neg_view(plain) if negative else plain
        plain = torch._conj(plain) if conjugate else plain
        storage = plain.untyped_storage()
        if storage._cdata not in rows:
            length = storage.nbytes() // plain.element_size()
            row = torch.empty(0, dtype=plain.dtype).set_(storage, 0, (length,), (1,))
            rows[storage._cdata] = (plain.dtype, row.to(wider(plain.dtype), copy=True))
        dtype, row = rows[storage._cdata]
        if dtype != plain.dtype:
            raise NoTwin(f"two inputs view the same memory as {dtype} and as {plain.dtype}")
        copy = row.as_strided(plain.size(), plain.stride(), plain.storage_offset())
        copy = torch._conj(copy) if conjugate else copy
        result.append(torch._neg_view(copy) if negative else copy)
    return tuple(result)


@contextlib.contextmanager
def float64_by_default() -> Iterator[None]:
    """float64 as the default dtype: what integer inputs and Python scalars promote to in the twin."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)

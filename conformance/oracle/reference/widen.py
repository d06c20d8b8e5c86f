"""The float64 twin of a program: the same calls, with every floating dtype made float64 and complex made complex128."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.tensors import flip_bits_of, storage_key
from torchstone.conformance.oracle.op_traits.references import WIDENED_CASTS, WITHOUT_FLOAT64
from torchstone.conformance.oracle.reference.without_float64 import is_float8
from torchstone.conformance.program.literals import leaves
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
    """The program with dtype arguments and casts widened, but for those that a formula reads (``without_float64``), and
    those that say what bits are read as (``bits``).

    A cast to a float of 8 bits stays. Nothing is computed in 8 bits: they are what numbers become, by a conversion that
    is a function of its own. It saturates, has no infinity or no sign, and has as many steps as digits.

    Raises ``NoTwin`` where a program that is given to a call reads bits: what eager's are is not known in there.
    """

    def leaf(value: Any) -> Any:
        if isinstance(value, Program):
            if any(map(viewed_as, value.every_call)):
                raise NoTwin("a body of control flow views numbers as those of another dtype")
            return widen_program(value)
        if not isinstance(value, torch.dtype) or is_float8(value):
            return value
        return wider(value)

    def widened(call: Call) -> Call:
        if WITHOUT_FLOAT64.has(call.operator) or viewed_as(call):
            return call
        return replace(call.map_arguments(leaf), target=_WIDENED.get(call.target, call.target))

    return program.rewrite(widened)


def viewed_as(call: Call) -> torch.dtype | None:
    """The dtype that a call views a tensor as; None of any other call."""
    if call.operator not in ("view", "view_copy"):
        return None
    return next((leaf for leaf in leaves((call.args, call.kwargs)) if isinstance(leaf, torch.dtype)), None)


def widen_inputs(tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Widened copies with the same sizes, strides, offsets and aliasing. Raises ``NoTwin`` when aliases disagree."""
    rows: dict[int, tuple[torch.dtype, Tensor]] = {}
    result: list[Tensor] = []
    for tensor in tensors:
        plain = tensor.detach()
        plain = flip_bits_of(plain, plain)
        storage = plain.untyped_storage()
        if storage_key(storage) not in rows:
            length = storage.nbytes() // plain.element_size()
            row = torch.empty(0, dtype=plain.dtype).set_(storage, 0, (length,), (1,))
            rows[storage_key(storage)] = (plain.dtype, row.to(wider(plain.dtype), copy=True))
        dtype, row = rows[storage_key(storage)]
        if dtype != plain.dtype:
            raise NoTwin(f"two inputs view the same memory as {dtype} and as {plain.dtype}")
        # No view of the row: what a program writes to while it takes gradients must not be one made without them.
        copy = row.new_empty(0).set_(row.untyped_storage(), plain.storage_offset(), plain.size(), plain.stride())
        result.append(flip_bits_of(copy, tensor))
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

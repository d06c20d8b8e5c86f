"""Memory that nobody wrote to: which elements of a program's results are such memory, and eager run with it filled.

``empty`` and its like give what lay there before, on one machine zeros and on another a NaN. So they are filled, as
they run, with a number of ours, in each run with another. What differs then is memory that nobody wrote to, or depends
on it; everything else is determined, and compared like any result. No allocator has a say in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.compiler._torch.operators import base_name
from torchstone.conformance.oracle.equality import same_bits
from torchstone.conformance.oracle.op_traits.trait import Implementations
from torchstone.conformance.oracle.op_traits.undetermined import LEAVES_PARTS_UNWRITTEN, UNINITIALIZED
from torchstone.conformance.oracle.pytree import dense, flatten
from torchstone.conformance.program.program import Call, Program

FILLS = ((101.0, 101), (math.nan, 0), (0.0, 1), (math.inf, 3), (-math.inf, 7))
"""What floats, and what integers, are filled with: true and false, and on both sides of any number."""

_PARTS: Implementations[Callable[..., Tensor | None]] = Implementations(LEAVES_PARTS_UNWRITTEN)
"""From what an operator gives and its arguments to the part of it that was not written, as a view."""


@_PARTS.register("_grouped_mm")
def _in_no_group(
    out: Tensor, self: Tensor, mat2: Tensor, offs: Tensor | None = None, *_: Any, **__: Any
) -> Tensor | None:
    if offs is None or self.dim() == mat2.dim():
        return None
    end = int(offs[-1]) if offs.numel() else 0
    return out[end:] if self.dim() == 2 else out[:, end:]


class _Fill(ComputingMode):
    """Fills what an operator gives unwritten."""

    def __init__(self, fill: tuple[float, int]) -> None:
        super().__init__()
        self._fill = fill

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (part := _PARTS.of(func)) is not None:
            out = func(*args, **(kwargs or {}))
            rest = part(out, *args, **(kwargs or {}))
            return out if rest is None else (rest.fill_(self._fill[0]), out)[1]
        if not UNINITIALIZED.holds(func):
            return func(*args, **(kwargs or {}))
        before = _elements(args[0]) if base_name(func).startswith("resize") else 0
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor) and out.layout is torch.strided and out.device.type == "cpu":
            row = torch.empty(0, dtype=out.dtype).set_(out.untyped_storage(), 0, (_elements(out),), (1,))
            row[before:].fill_(self._fill[not (out.is_floating_point() or out.is_complex())])
        return out


def _elements(tensor: Tensor) -> int:
    return tensor.untyped_storage().nbytes() // tensor.element_size()


_OPERATORS = {name.rpartition(".")[2] for trait in (UNINITIALIZED, LEAVES_PARTS_UNWRITTEN) for name in trait.ops}


def gives_unwritten(call: Call) -> bool:
    """Whether a call may give memory that nobody wrote to."""
    return call.operator in _OPERATORS


def calls_unwritten(program: Program) -> bool:
    """Whether a program calls what gives memory that nobody wrote to."""
    return any(map(gives_unwritten, program.every_call))


def filled(program: Program, fill: tuple[float, int] = FILLS[0]) -> Callable[..., Any]:
    """Return the program as eager runs it with the memory filled; itself where it calls nothing of the kind."""
    if not calls_unwritten(program):
        return program

    def run(*args: Tensor) -> Any:
        with _Fill(fill):
            return program(*args)

    return run


def run_filled(program: Program, args: tuple[Tensor, ...], fill: tuple[float, int] = FILLS[0]) -> list[Any]:
    """Run a program in eager with the memory filled; return the leaves of its results, then its inputs afterwards."""
    with torch.no_grad():
        outputs = filled(program, fill)(*args)
    return flatten((outputs, args))


def unwritten_elements(runs: Sequence[list[Any]]) -> list[Tensor | None] | None:
    """Where runs filled otherwise differ: a mask for each tensor, None for what is no tensor.

    None where it cannot be told of single elements: sizes, structure or Python's numbers depend on the memory.
    """
    if len({len(run) for run in runs}) > 1:
        return None
    masks: list[Tensor | None] = []
    for first, *others in zip(*runs, strict=True):
        mask = torch.zeros(first.shape, dtype=torch.bool) if isinstance(first, Tensor) else None
        for other in others:
            if mask is None or not isinstance(other, Tensor):
                if type(first) is not type(other) or not (first == other or first != first):
                    return None
            elif (first.shape, first.dtype, first.layout) != (other.shape, other.dtype, other.layout):
                return None
            elif not same_bits(first, other):
                if first.layout is not torch.strided:
                    return None
                mask |= _differs(dense(first), dense(other))
        masks.append(mask)
    return masks


def _differs(one: Tensor, other: Tensor) -> Tensor:
    """Where two tensors of one dtype and shape hold other bits."""
    pair = [(torch.view_as_real(t) if t.is_complex() else t.unsqueeze(-1)).contiguous() for t in (one, other)]
    bits = [t.view(torch.uint8).reshape(*one.shape, -1) for t in pair]
    return (bits[0] != bits[1]).any(-1)

"""Inputs moved by one ULP or by a part of one: what a program makes of them tells how well conditioned it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from torchstone.compiler._torch.tensors import storage_key
from torchstone.conformance.oracle.perturbation.draws import LARGEST, DrawStream
from torchstone.conformance.oracle.ulp import precision, step, ulp, wide

NEARBY = 8
"""In ULPs: how far away eager's errors are looked at."""


def _directions(like: Tensor, kind: str, generator: torch.Generator) -> Tensor:
    if kind == "random":
        return torch.randint(0, 2, like.shape, generator=generator) * 2 - 1
    return torch.full(like.shape, 1 if kind == "up" else -1)


def one_ulp(tensor: Tensor, dtype: torch.dtype, kind: str, generator: torch.Generator) -> Tensor:
    """Each number moved by one ULP of its own dtype: ``up`` (away from zero), ``down``, or to a side at ``random``. Not
    one that is known to a finer ULP, which its dtype has no number for."""
    if precision(dtype) > precision(tensor.dtype):
        return tensor
    return step(tensor, _directions(tensor, kind, generator))


def a_few_ulps(tensor: Tensor, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Each number moved by up to ``NEARBY`` of its own ULPs, zeros excepted."""
    moved = tensor
    for _ in range(NEARBY):
        moved = step(moved, torch.randint(-1, 2, tensor.shape, generator=generator))
    numbers, others = wide(tensor), wide(moved)  # PyTorch knows little of float8
    return torch.where(torch.isfinite(others) & (numbers != 0), others, numbers).to(tensor.dtype)


def part_of_an_ulp(tensor: Tensor, dtype: torch.dtype, kind: str, generator: torch.Generator, part: float) -> Tensor:
    """Each finite number moved so, by a part of the largest ULP that ``dtype`` has of a number of its size."""
    relative = part * 2.0 ** (1 - precision(dtype))
    moved = tensor * (1.0 + relative * _directions(tensor, kind, generator).to(torch.float64))
    return torch.where(torch.isfinite(tensor), moved, tensor)


def write_perturbed(
    args: tuple[Tensor, ...], dtypes: Sequence[torch.dtype], move: Callable[[Tensor, torch.dtype], Tensor]
) -> None:
    """Move floating inputs in place, each given the dtype in whose ULPs it is known. One that overlaps itself is moved
    through its storage, once an element."""
    done: set[int] = set()
    for tensor, dtype in zip(args, dtypes, strict=True):
        if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex) or not tensor.numel():
            continue
        storage = tensor.untyped_storage()
        if storage_key(storage) in done:
            continue
        done.add(storage_key(storage))
        length = storage.nbytes() // tensor.element_size()
        row = torch.empty(0, dtype=tensor.dtype).set_(storage, 0, (length,), (1,))
        row.copy_(move(row, dtype))


def write_drawn(args: tuple[Tensor, ...], dtypes: Sequence[torch.dtype], draws: DrawStream) -> None:
    """Move the widened ``args`` by up to one ULP of the dtypes, zeros excepted."""

    def move(row: Tensor, dtype: torch.dtype) -> Tensor:
        moved = row + draws.take(row.shape) / LARGEST * ulp(row.abs(), dtype)
        return torch.where(torch.isfinite(row) & (row != 0), moved, row)

    write_perturbed(args, dtypes, move)


def row_major(tensor: Tensor) -> Tensor:
    """The same numbers row after row."""
    return tensor.clone(memory_format=torch.contiguous_format)


def with_gaps(tensor: Tensor) -> Tensor:
    """The same numbers, row after row, a gap after each."""
    room = tensor.new_zeros((*tensor.shape, 2))[..., 0]
    return room.copy_(tensor)

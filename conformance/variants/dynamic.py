"""Cases that are compiled once and run at several sizes: which dims may vary, and the inputs of other sizes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from torchstone.conformance.execution.undefined_behavior import undefined_behavior
from torchstone.conformance.oracle.equality import equal_tensors
from torchstone.conformance.oracle.pytree import flatten
from torchstone.conformance.program.case import Case

# Every size, or the leading one alone. A size is made larger and smaller, but not 1: PyTorch compiles that apart.
DYNAMIC, BATCH = "dynamic", "batch"
CHANGES = (1, 4, -1)
_LEAST = 2
_MARGIN = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """``dims[i]`` are the dims of input ``i`` whose size may vary; ``others`` are the case at other sizes."""

    dims: tuple[tuple[int, ...], ...]
    others: tuple[Case, ...]


def plan(case: Case) -> Plan | None:
    """The plan of a case in one of these variants, None when nothing can vary that eager takes."""
    if case.variant == BATCH:
        rows = next((t.shape[0] for t in case.args if t.dim()), 0)
        dims = tuple((0,) if t.dim() and t.shape[0] == rows and rows > 1 else () for t in case.args)
    else:
        dims = tuple(tuple(d for d, size in enumerate(t.shape) if size > 1) for t in case.args)
    others = tuple(_others(case, dims)) if any(dims) else ()
    return Plan(dims, others) if others else None


def _others(case: Case, dims: tuple[tuple[int, ...], ...]) -> Iterator[Case]:
    """The case at each of the other sizes that eager takes: sizes that are equal now stay equal."""
    for change in CHANGES:
        inputs = {
            name: _resized(tensor, axes, change) for (name, tensor), axes in zip(case.inputs.items(), dims, strict=True)
        }
        other = case.replace(inputs=inputs)
        try:
            if _reads_beyond(other):
                continue
        except Exception:  # whatever it says, eager does not take these sizes
            continue
        yield other


def _reads_beyond(case: Case) -> bool:
    """Whether eager's results depend on what lies around its inputs in memory; raises what eager raises.

    Offsets and lengths that fitted the sizes of before need not fit these, and eager does not always look.
    """
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        if undefined_behavior(case):
            return True
    found = []
    for around in (1000.0, -1000.0):
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(0)
            found.append(flatten(case.program(*(_surrounded(tensor, around) for tensor in case.args))))
    return any(
        isinstance(a, Tensor) and a.is_floating_point() and not equal_tensors(a, b) for a, b in zip(*found, strict=True)
    )


def _surrounded(tensor: Tensor, around: float) -> Tensor:
    """A copy, of floats with ``around`` on both sides of it in memory."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor.clone()
    row = torch.full((tensor.numel() + 2 * _MARGIN,), around, dtype=tensor.dtype)
    return row[_MARGIN : _MARGIN + tensor.numel()].view(tensor.shape).copy_(tensor)


def _resized(tensor: Tensor, axes: tuple[int, ...], change: int) -> Tensor:
    for axis in axes:
        tensor = resized(tensor, axis, max(tensor.shape[axis] + change, _LEAST))
    return tensor


def resized(tensor: Tensor, axis: int, size: int) -> Tensor:
    """A tensor of another size in one dim, its elements taken from ``tensor`` again and again: indices stay indices.

    Of integers the last one is repeated: what rises goes on rising, as offsets have to.
    """
    places, before = torch.arange(size), tensor.shape[axis]
    floats = tensor.is_floating_point() or tensor.is_complex()
    return tensor.index_select(axis, places % before if floats else places.clamp(max=before - 1))

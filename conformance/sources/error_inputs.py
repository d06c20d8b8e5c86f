"""What eager has to refuse: the error inputs of PyTorch's op database.

A backend passes such a case by refusing it too, at whatever stage; giving a result is a mismatch. Samples come in the
database's order, and one's dtype is that of its first tensor.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from torchstone.conformance.errors import InputError
from torchstone.conformance.execution.verdict import REFUSED
from torchstone.conformance.oracle.pytree import flatten
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.program.literals import DTYPES
from torchstone.conformance.sources import opinfo
from torchstone.conformance.sources.names import match
from torchstone.conformance.sources.sampling import check_dtypes, first_line, seeded

SOURCE = "errors"
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


@functools.cache
def op_names() -> list[str]:
    """Every op of the database that has error inputs, sorted."""
    return [op for op in opinfo.op_names() if opinfo.info_of(op).error_inputs_func is not None]


def dtypes_of(op: str) -> list[str]:
    """The dtypes among the op's error inputs. Raises ``UnknownName``."""
    return list(dict.fromkeys(entry.dtype for entry in _of_op(op)))


def select(ops: Iterable[str] | None = None) -> list[str]:
    """The ops meant by names or shell patterns, sorted. Raises as ``opinfo.select``."""
    return match(ops, op_names())


def tags_of(op: str) -> frozenset[str]:
    """The tags of the op."""
    return opinfo.tags_of(op) | {REFUSED}


def iterate(
    ops: Iterable[str] | None = None, dtypes: Iterable[str] | None = None, limit_per_op: int | None = None
) -> Iterator[Case | Untested]:
    """Cases in a fixed order, as ``opinfo.iterate`` gives them."""
    wanted = check_dtypes(dtypes)
    for op in select(ops):
        counts: dict[str, int] = {}
        for entry in _of_op(op):
            counts[entry.dtype] = counts.get(entry.dtype, 0) + 1
            if (wanted is None or entry.dtype in wanted) and (
                limit_per_op is None or counts[entry.dtype] <= limit_per_op
            ):
                yield entry


def case(op: str, dtype: str, index: int) -> Case:
    """One case by its coordinates. Raises ``UnknownName`` or ``InputError`` when there is none."""
    select([op])
    for entry in _of_op(op):
        if (entry.dtype, entry.index) == (dtype, index):
            if isinstance(entry, Case):
                return entry
            raise InputError(f"{entry.id} cannot be expressed as a program: {entry.reason}")
    raise InputError(f"{op} has no error input {index} of {dtype}")


@functools.lru_cache(maxsize=4)
def _of_op(op: str) -> tuple[Case | Untested, ...]:
    info = opinfo.info_of(op)
    found: list[Case | Untested] = []
    with seeded(f"{SOURCE}:{op}"), _filled_memory():
        try:
            for index, error in enumerate(info.error_inputs("cpu")):
                found.append(_entry(info, op, index, error.sample_input))
        except Exception as error:
            reason = f"sampling raises {type(error).__name__}: {first_line(error)}"
            found.append(Untested(SOURCE, op, "float32", reason))
    return tuple(found)


@contextlib.contextmanager
def _filled_memory() -> Iterator[None]:
    """``torch.empty`` gives the same memory each time: some of the samples are made of it."""
    before, warn_only = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warn_only)


def _entry(info: Any, op: str, index: int, sample: Any) -> Case | Untested:
    tensors = [x for x in flatten((sample.input, sample.args, sample.kwargs)) if isinstance(x, torch.Tensor)]
    dtype = _NAMES.get(tensors[0].dtype, "float32") if tensors else "float32"
    if opinfo.target_of(op) is None:
        return Untested(SOURCE, op, dtype, "the database calls it by a function of its own, which raises", index)
    made = opinfo.entry_of(info, op, dtype, index, sample)
    if isinstance(made, Untested):
        return Untested(SOURCE, op, dtype, made.reason, index)
    return made.replace(source=SOURCE, tags=(REFUSED,))

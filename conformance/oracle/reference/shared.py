"""Runs kept for several judgements of one program on the same inputs.

The runs that a referee makes, and eager's from other seeds, follow from the program, the inputs and fixed seeds, never
from the answer that is judged. Where many backends answer one case, each run is made once for all of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

from torch import Tensor

from torchstone.conformance.oracle.reference.runs import Derive, Referee
from torchstone.conformance.program.program import Program
from torchstone.conformance.program.tensor_storage import LayoutError, copy_tensors, pack

T = TypeVar("T")

_kept: ContextVar[dict[bytes, Any] | None] = ContextVar("_kept", default=None)


@contextlib.contextmanager
def shared_runs() -> Iterator[None]:
    """Within it ``referee_of`` and ``made_once`` give the same again; all is dropped at its end."""
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def referee_of(
    program: Program, args: tuple[Tensor, ...], derive: Derive | None = None, seed: int | None = None
) -> Referee:
    """The referee of a program on its inputs: that of an earlier judgement within ``shared_runs``."""

    def referee(pristine: tuple[Tensor, ...]) -> Referee:
        return Referee(program, pristine, derive, seed=seed)

    return made_once("referee", program, args, referee, derive is not None, seed)


def made_once(
    what: str, program: Program, args: tuple[Tensor, ...], make: Callable[[tuple[Tensor, ...]], T], *told_by: Any
) -> T:
    """What ``make`` makes of the inputs of a program; within ``shared_runs`` what it made before of the same.

    Inputs are the same if their numbers, layouts and shared memory are; ``told_by`` is JSON that tells it apart, too.
    """
    kept = _kept.get()
    key = None if kept is None else _key(program, args, what, *told_by)
    if kept is None or key is None:
        return make(args)
    if key not in kept:
        kept[key] = make(copy_tensors(args))  # whoever calls may write to the inputs afterwards
    return kept[key]


def _key(program: Program, args: tuple[Tensor, ...], *told_by: Any) -> bytes | None:
    """What tells runs apart, as a digest; None for inputs that have no bytes to be told by."""
    try:
        storages, views = pack({str(index): tensor for index, tensor in enumerate(args)})
    except LayoutError:
        return None
    found = hashlib.blake2b(json.dumps([program.to_json(), told_by, views]).encode(), digest_size=16)
    for storage in storages.values():
        found.update(storage.numpy().data)
    return found.digest()

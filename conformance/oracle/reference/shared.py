"""Referees kept for several judgements of one program on the same inputs.

The runs that a referee makes follow from the program, the inputs and fixed seeds, never from the answer that is judged.
Where many backends answer one case, each run is made once for all of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from contextvars import ContextVar

from torch import Tensor

from torchstone.conformance.oracle.reference.runs import Derive, Referee
from torchstone.conformance.program.program import Program
from torchstone.conformance.program.tensor_storage import LayoutError, copy_tensors, pack

_kept: ContextVar[dict[bytes, Referee] | None] = ContextVar("_kept", default=None)


@contextlib.contextmanager
def shared_referees() -> Iterator[None]:
    """Within it ``referee_of`` gives the same referee again; all are dropped at its end."""
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def referee_of(
    program: Program, args: tuple[Tensor, ...], derive: Derive | None = None, seed: int | None = None
) -> Referee:
    """The referee of a program on its inputs: that of an earlier judgement within ``shared_referees``.

    Inputs are the same if their numbers, layouts and shared memory are.
    """
    kept = _kept.get()
    key = None if kept is None else _key(program, args, derive is not None, seed)
    if kept is None or key is None:
        return Referee(program, args, derive, seed=seed)
    if key not in kept:
        own = copy_tensors(args)  # whoever calls may write to the inputs afterwards
        kept[key] = Referee(program, own, derive, seed=seed)
    return kept[key]


def _key(program: Program, args: tuple[Tensor, ...], derived: bool, seed: int | None) -> bytes | None:
    """What tells referees apart, as a digest; None for inputs that have no bytes to be told by."""
    try:
        storages, views = pack({str(index): tensor for index, tensor in enumerate(args)})
    except LayoutError:
        return None
    found = hashlib.blake2b(json.dumps([program.to_json(), derived, seed, views]).encode(), digest_size=16)
    for storage in storages.values():
        found.update(storage.numpy().data)
    return found.digest()

"""State that belongs to no object: PyTorch's settings, and the random numbers of Python and NumPy."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchstone.compiler._torch.modes import device_in_force
from torchstone.compiler.capture.state.blame import Effectful
from torchstone.compiler.capture.state.heap import Heap
from torchstone.compiler.capture.state.settings import SETTINGS, check_readable
from torchstone.compiler.diagnostics import GuardError

_CPU = torch.device("cpu")

# Where Python notes in the globals of a module which of its warnings were given.
_WARNED = "__warningregistry__"


def settings() -> tuple[Any, ...]:
    """Return PyTorch's settings that decide what a program computes: a call has to find those of the capture."""
    autocast = torch.is_autocast_enabled("cpu")
    device = device_in_force() or _CPU
    return torch.get_default_dtype(), torch.get_autocast_dtype("cpu") if autocast else None, device


def check_settings(was: tuple[Any, ...]) -> None:
    """GuardError where the default dtype or device, or autocast, is another than when a program was captured."""
    now = settings()
    if now != was:
        for what, one, other in zip(("the default dtype", "autocast", "the default device"), now, was, strict=True):
            if one != other:
                raise GuardError(f"{what} is another than when compiled: {one}, and was {other}")


@contextlib.contextmanager
def ambient_kept(heap: Heap) -> Iterator[None]:
    """Give PyTorch's settings and the random numbers of Python and NumPy back what they were before the block.

    A warning that a program gives is given again by whoever runs it after that.

    Unsupported for a program that changes them: no graph does that, and a call would draw no numbers.
    """
    check_readable(heap.mentions)
    kept = _kept(heap)
    before = [get() for _, get, _ in kept]
    warned = [(space, dict(space.get(_WARNED, ()))) for space in heap.namespaces()]
    try:
        yield
        for (what, get, _), was in zip(kept, before, strict=True):
            if get() != was:
                message = f"the program {what}, which no graph can do"
                raise Effectful(message, changed=lambda get=get, was=was: get() != was)
    finally:
        for (_, get, put), was in zip(kept, before, strict=True):
            if get() != was:
                put(was)
        for space, given in warned:
            if _WARNED in space:
                space[_WARNED].clear()
                space[_WARNED].update(given)


def _kept(heap: Heap) -> list[tuple[str, Callable[[], Any], Callable[[Any], Any]]]:
    """What a program may change, how it is asked for, and how it is set."""
    kept: list[tuple[str, Callable[[], Any], Callable[[Any], Any]]] = [
        *((f"leaves another {setting.what}", setting.get, setting.put) for setting in SETTINGS),
        ("draws from Python's random numbers", random.getstate, random.setstate),
    ]
    if heap.uses_module("numpy"):  # whose state takes as long to ask for as a small program to run
        import numpy as np

        def state() -> Any:
            found: Any = np.random.get_state(legacy=False)
            return found["state"]["key"].tobytes(), found["state"]["pos"], found["gauss"]

        whole = np.random.get_state()
        kept.append(("draws from NumPy's random numbers", state, lambda _: np.random.set_state(whole)))
    return kept

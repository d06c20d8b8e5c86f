"""PyTorch's random generator during a capture: left as it was, and watched for seeds that the program sets itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from torchstone.compiler._torch.modes import no_dispatch_modes
from torchstone.compiler.diagnostics import Unsupported

# No program sets this one, so that every seed it sets is seen.
_START = 0x5EED_0F_70_2C_45


@contextlib.contextmanager
def generator_kept() -> Iterator[None]:
    """Give the default generator its state back: capturing a program draws nothing."""
    state = torch.default_generator.get_state()
    try:
        yield
    finally:
        torch.default_generator.set_state(state)


@contextlib.contextmanager
def drawn_as_captured() -> Iterator[None]:
    """Draw in the block what a program has drawn while it was captured, and leave the default generator as it was."""
    with generator_kept():
        torch.default_generator.manual_seed(_START)
        yield


class Draws:
    """The state of the default generator after the draws so far."""

    def __init__(self) -> None:
        torch.default_generator.manual_seed(_START)
        self._state = torch.default_generator.get_state()

    def drawn(self) -> None:
        """Note that the program has drawn. Where a draw was only recorded, the generator moves on all the same: the
        seed of before, set once more, is another state then."""
        with no_dispatch_modes():
            if torch.equal(torch.default_generator.get_state(), self._state):
                torch.rand(1)
            self._state = torch.default_generator.get_state()

    def seed(self) -> int | None:
        """Return the seed that the program has set since its last draw, None when it has not."""
        with no_dispatch_modes():
            state = torch.default_generator.get_state()
            if torch.equal(state, self._state):
                return None
            seed = torch.default_generator.initial_seed()
            if seed == _START or not torch.equal(state, torch.Generator().manual_seed(seed).get_state()):
                raise Unsupported("the program sets the state of the random generator", stage="capture")
            self._state = state
            return seed

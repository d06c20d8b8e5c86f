"""Runs of the rounding model whose every rounding is drawn for itself: one by one, or many at once.

A search may ask for a thousand runs of a program of few numbers, where nearly all the time goes to PyTorch's own
dispatch. Where each step works element by element, on tensors that all have the shape of the inputs, the runs are made
at once: the inputs of all are stacked, and each draws its own numbers, so that it gives what it would give alone. One
is made alone as well, and if it is another, all are.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.conformance.oracle.equality import same_bits
from torchstone.conformance.oracle.perturbation.draws import LARGEST, Draws, DrawStream, Mix, Streams
from torchstone.conformance.oracle.perturbation.inputs import write_drawn
from torchstone.conformance.oracle.perturbation.rounding import RandomRounding
from torchstone.conformance.oracle.pytree import leaves_of

if TYPE_CHECKING:
    from torchstone.conformance.oracle.reference.runs import Referee, ReferenceRun

SEED = 0x5EED
SCATTERED_SCALES = (1.0,) * 8 + (LARGEST,) * 8
"""In ULPs: how far the first runs of a scatter are rounded."""
KEPT_NUMBERS = 1 << 21
"""How many numbers the runs of a scatter keep for another result, or another answer, of the same program."""
AT_ONCE = 1 << 17
"""How many numbers the runs that are made at once have together in one tensor."""


def one_run(draws: Draws) -> Mix:
    """What a run draws that is no mix of others."""
    return ((draws, 1.0),)


class Scatter:
    """Runs of the rounding model whose every rounding is drawn for itself.

    With ``inputs`` these are moved as well. ``on_grid``: each step gives a number of the dtype.
    """

    def __init__(self, referee: Referee, inputs: bool, on_grid: bool = False) -> None:
        self.referee = referee
        self.inputs = inputs
        self.on_grid = on_grid
        self._kept: dict[Mix, ReferenceRun] = {}
        self._room = KEPT_NUMBERS
        self._stacks: bool | None = None

    def run(self, draws: Mix) -> ReferenceRun:
        """The run of these draws, kept for the other results, which ask for the same."""
        if draws not in self._kept:
            run = self._run(DrawStream(draws))
            self._keep(draws, run)
            return run
        return self._kept[draws]

    def runs(self, many: list[Mix]) -> list[ReferenceRun]:
        """The runs of several draws."""
        self._run_at_once([draws for draws in many if draws not in self._kept])
        return [self.run(draws) for draws in many]

    @functools.cached_property
    def first(self) -> list[tuple[Mix, ReferenceRun]]:
        """Runs to begin with: to either side, with roundings of one ULP and of several; those that raise left out."""
        drawn = [one_run(Draws(SEED, direction=side)) for side in (1, -1)]
        drawn += [one_run(Draws(SEED + k, scale)) for k, scale in enumerate(SCATTERED_SCALES)]
        runs = zip(drawn, self.runs(drawn), strict=True)
        return [(draws, run) for draws, run in runs if not run.problem]

    def _keep(self, draws: Mix, run: ReferenceRun) -> None:
        self._room -= sum(leaf.numel() for leaf in run.leaves if isinstance(leaf, Tensor))
        if self._room >= 0:
            self._kept[draws] = run

    def _run(self, stream: DrawStream) -> ReferenceRun:
        return self.referee.twin_run(self._mode(stream), self._move(stream))

    def _mode(self, stream: DrawStream | Streams, stacked: bool = False) -> RandomRounding:
        referee = self.referee
        return RandomRounding(
            referee.dtype,
            SEED,
            found=referee.found,
            draws=stream,
            on_grid=self.on_grid,
            calls=referee.call_precision,
            stacked=stacked,
        )

    def _move(self, stream: DrawStream) -> Any:
        return functools.partial(write_drawn, dtypes=self.referee.input_dtypes, draws=stream) if self.inputs else None

    def _run_at_once(self, many: list[Mix]) -> None:
        """Make the runs of several draws and keep them, if they can be made at once."""
        if len(many) < 2 or self._stacks is False or not self.referee.runs_stack:
            return
        most = max(2, AT_ONCE // max(1, self.referee.pristine[0].numel()))
        for some in (many[start : start + most] for start in range(0, len(many), most)):
            found = self._stacked(some)
            if self._stacks is None or found is None:
                self._stacks = found is not None and _same(found[0], self.run(some[0]))
            if not self._stacks or found is None:
                return
            for draws, run in zip(some, found, strict=True):
                self._keep(draws, run)

    def _stacked(self, many: list[Mix]) -> list[ReferenceRun] | None:
        """The runs of several draws, made at once; None if one of them draws what another does not."""
        alone = [DrawStream(draws) for draws in many]
        args = [self.referee.moved_inputs(self._move(stream)) for stream in alone]
        streams = Streams(alone)
        whole = self.referee.run_widened(tuple(map(torch.stack, zip(*args, strict=True))), self._mode(streams, True))
        if whole.problem or streams.differ or any(leaf.shape[:1] != (len(many),) for leaf in whole.leaves):
            return None
        return [type(whole)([leaf[k] for leaf in whole.leaves]) for k in range(len(many))]


def _same(run: ReferenceRun, other: ReferenceRun) -> bool:
    pairs = zip(run.leaves, other.leaves, strict=False)
    return len(run.leaves) == len(other.leaves) and all(a.shape == b.shape and same_bits(a, b) for a, b in pairs)


class ElementByElement(ComputingMode):
    """Watches whether each step works element by element, on tensors that all have one shape."""

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self.shape = shape
        self.always = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.always = self.always and (torch.Tag.pointwise in func.tags or func in _COPIES)
        self.always = self.always and torch.Tag.nondeterministic_seeded not in func.tags
        self.always = self.always and all(
            leaf.shape == self.shape for leaf in leaves_of(args, kwargs, out) if isinstance(leaf, Tensor)
        )
        return out


_COPIES = (torch.ops.aten._to_copy.default, torch.ops.aten.clone.default, torch.ops.aten.detach.default)

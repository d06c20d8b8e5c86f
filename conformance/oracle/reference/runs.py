"""The extra runs that decide when eager and the backend differ: float64, the rounding model, and moved inputs.

Each is made once for a case, on first need: most cases are settled by the same-dtype comparison.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.tensors import storage_key
from torchstone.conformance.oracle.ambiguity.phases import Aligned, Factors
from torchstone.conformance.oracle.exactness.signed_zero import keeps_nans, keeps_zeros
from torchstone.conformance.oracle.exactness.single_rounding import Steps
from torchstone.conformance.oracle.overflow.model import Overflow
from torchstone.conformance.oracle.perturbation.rounding import CallLog, Found, RoundingNoise, is_exact
from torchstone.conformance.oracle.pytree import flatten
from torchstone.conformance.oracle.random.replay import Given, Noted
from torchstone.conformance.oracle.reference.documented_formulas import Formulas
from torchstone.conformance.oracle.reference.widen import NoTwin, float64_by_default, widen_inputs, widen_program
from torchstone.conformance.oracle.tolerances import TINY_STEP
from torchstone.conformance.oracle.ulp import precision, step
from torchstone.conformance.program.program import Program
from torchstone.conformance.program.tensor_storage import copy_tensors

NOISE = ((1.0, 0), (1.0, 0), (1.0, 0), (1.0, 0))
MORE_NOISE = ((1.0, 0),) * 12
CALM = 1 / 16
WILD_NOISE = ((4.0, 1), (4.0, -1), (4.0, 0), (4.0, 0), (4.0, 0), (4.0, 0), (4.0, 0), (4.0, 0))
"""Runs of the rounding model: ULPs, and the side to round to (0: each step at random)."""

SIDES = ("up", "down", "both", "none")
ORDERS = (*[(side, steps) for side in SIDES for steps in ("never", "moments")], *[("any", "never")] * 3)
CANCELLED = (("lost", "never"),) * 12
OVERFLOWS = (*[(side, "always") for side in SIDES], *[("any", "some")] * 9)
"""Runs of the overflow model: which way accumulations overflow, and which other steps do."""

MOVES = ("up", "down", "random", "random", "random", "random", "random", "random")
SEED = 0x5EED

Derive = Callable[[tuple[Tensor, ...], Any], Any]
"""From a program's inputs and outputs to what is compared in place of the outputs."""


@dataclass(frozen=True)
class Run:
    """The leaves of a program's outputs and of its inputs afterwards, in one flat list; or why there are none."""

    leaves: list[Any]
    problem: str = ""


class Referee:
    """The runs of one program on one set of inputs."""

    def __init__(
        self,
        program: Program,
        pristine: tuple[Tensor, ...],
        derive: Derive | None = None,
        around: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
        seed: int | None = None,
    ) -> None:
        self.program = program
        self.pristine = pristine
        self.derive = derive or (lambda inputs, outputs: outputs)
        self.around = around
        self.found: Found = {}
        self.seed = seed
        """Of a program that draws at random: eager draws from this seed, and every other run is given its numbers."""

    def args(self) -> tuple[Tensor, ...]:
        """Copies of the inputs to run on."""
        return copy_tensors(self.pristine)

    @functools.cached_property
    def dtype(self) -> torch.dtype:
        """The narrowest of the inputs' floating dtypes."""
        dtypes = [tensor.dtype for tensor in self.pristine if tensor.is_floating_point() or tensor.is_complex()]
        return min(dtypes, key=precision, default=torch.float32)

    def _run(self, program: Program, args: tuple[Tensor, ...], mode: Any = None, after: Any = None) -> Run:
        """A run inside a mode; the mode ``after`` is given what that makes of each step of the program."""
        drawn = contextlib.nullcontext() if self.seed is None else Given(self._draws)
        with torch.no_grad(), warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            try:
                before = copy_tensors(args)
                with self.around(), drawn, mode or contextlib.nullcontext(), after or contextlib.nullcontext():
                    outputs = program(*args)
                return Run(flatten((self.derive(before, outputs), args)))
            except Exception as error:
                return Run([], f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}")

    @functools.cached_property
    def _draws(self) -> list[Any]:
        """The numbers that eager draws."""
        assert self.seed is not None
        with torch.no_grad(), warnings.catch_warnings(), torch.random.fork_rng(devices=[]), Noted() as noted:
            warnings.simplefilter("ignore")
            torch.default_generator.manual_seed(self.seed)
            self.program(*self.args())
        return noted.found

    @functools.cached_property
    def twin(self) -> tuple[Program, tuple[Tensor, ...]]:
        """The widened program and inputs. Raises ``NoTwin``."""
        return widen_program(self.program), widen_inputs(self.args())

    def _twin_run(self, mode: Any = None, move: Callable[[Tensor], Tensor] | None = None) -> Run:
        try:
            program, _ = self.twin
            args = widen_inputs(self.args())
        except NoTwin as error:
            return Run([], str(error))
        if move is not None:
            _write_moved(args, move)
        # Eager's own runs come first: float64 is not its default.
        after = Aligned(self.factors) if self.factors else None
        with float64_by_default():
            return self._run(program, args, mode, after)

    @functools.cached_property
    def eager(self) -> Run:
        """Eager's run once more."""
        return self._run(self.program, self.args())

    @functools.cached_property
    def factors(self) -> list[Any]:
        """Eager's factorizations with vectors of free sign, whose signs the float64 runs take."""
        factors = Factors()
        self._run(self.program, self.args(), factors)
        return factors.found

    @functools.cached_property
    def float64(self) -> Run:
        """The float64 run."""
        return self._twin_run()

    @functools.cached_property
    def formulas(self) -> Run:
        """The float64 run by the documented formulas of those functions whose eager kernels lose a NaN."""
        return self._twin_run(Formulas())

    @functools.cached_property
    def noisy(self) -> list[Run]:
        """Runs of the rounding model; those that raise are left out."""
        return self._noisy_runs(NOISE)

    @functools.cached_property
    def more_noisy(self) -> list[Run]:
        """More such runs, for what the first few do not settle."""
        return self._noisy_runs(MORE_NOISE, SEED + len(NOISE))

    @functools.cached_property
    def calm(self) -> list[Run]:
        """The same runs with the same signs and much smaller roundings: what does not jump shrinks in proportion."""
        return self._noisy_runs(tuple((CALM * ulps, side) for ulps, side in NOISE))

    @functools.cached_property
    def wild(self) -> list[Run]:
        """Runs with larger roundings, which look for jumps nearby."""
        return self._noisy_runs(WILD_NOISE)

    def _noisy_runs(self, kinds: tuple[tuple[float, int], ...], seed: int = SEED) -> list[Run]:
        modes = [RoundingNoise(self.dtype, seed + k, *kind, self.found) for k, kind in enumerate(kinds)]
        runs = [self._twin_run(mode) for mode in modes]
        return [run for run in runs if not run.problem]

    @functools.cached_property
    def reordered(self) -> list[Run]:
        """Runs of the overflow model in which accumulations overflow where some order of their terms does."""
        return self._overflow_runs(ORDERS)

    @functools.cached_property
    def overflowed(self) -> list[Run]:
        """Runs of the overflow model in which every other step overflows too, unless it is fused into the next."""
        return self._overflow_runs(OVERFLOWS)

    @functools.cached_property
    def cancelled(self) -> list[Run]:
        """Runs of the overflow model in which nothing overflows: of float64, sums that cancel, in many an order."""
        return self._overflow_runs(CANCELLED)

    def _overflow_runs(self, kinds: tuple[tuple[str, str], ...]) -> list[Run]:
        runs = [self._twin_run(Overflow(self.dtype, SEED + k, *kind)) for k, kind in enumerate(kinds)]
        return [run for run in runs if not run.problem]

    @functools.cached_property
    def moved(self) -> list[Run]:
        """Eager again, inputs moved by one ULP."""
        return self._moved_runs(1.0)

    @functools.cached_property
    def barely_moved(self) -> list[Run]:
        """The float64 run again, inputs moved by a small part of one ULP of their own dtype."""
        return self._moved_runs(TINY_STEP)

    def _moved_runs(self, ulps: float) -> list[Run]:
        runs: list[Run] = []
        for k, kind in enumerate(MOVES):
            generator = torch.Generator().manual_seed(SEED + k)
            if ulps == 1.0:
                args = self.args()
                _write_moved(args, functools.partial(_step, kind=kind, generator=generator))
                run = self._run(self.program, args)
            else:
                relative = ulps * 2.0 ** (1 - precision(self.dtype))
                run = self._twin_run(move=functools.partial(_nudge, kind=kind, generator=generator, relative=relative))
            if not run.problem:
                runs.append(run)
        return runs

    @functools.cached_property
    def all_exact(self) -> bool:
        """Whether the program only selects, moves, compares and rounds."""
        return self._always(is_exact)

    @functools.cached_property
    def keeps_zeros(self) -> bool:
        """Whether the signs of the zeros it gives are part of the program's result."""
        return self._always(keeps_zeros)

    @functools.cached_property
    def keeps_nans(self) -> bool:
        """Whether the signs of the NaN it gives are part of the program's result."""
        return self._always(keeps_nans)

    @functools.cached_property
    def rounds_once(self) -> torch.dtype | None:
        """The dtype that a program rounds to if all of it is one operation of IEEE 754, and moving numbers about."""
        log = Steps()
        run = self._run(self.program, self.args(), log)
        return None if run.problem else log.once

    def _always(self, holds: Callable[[Any], bool]) -> bool:
        log = CallLog(holds)
        run = self._run(self.program, self.args(), log)
        return not run.problem and log.always


def _directions(like: Tensor, kind: str, generator: torch.Generator) -> Tensor:
    if kind == "random":
        return torch.randint(0, 2, like.shape, generator=generator) * 2 - 1
    return torch.full(like.shape, 1 if kind == "up" else -1)


def _step(tensor: Tensor, kind: str, generator: torch.Generator) -> Tensor:
    return step(tensor, _directions(tensor, kind, generator))


def _nudge(tensor: Tensor, kind: str, generator: torch.Generator, relative: float) -> Tensor:
    moved = tensor * (1.0 + relative * _directions(tensor, kind, generator).to(torch.float64))
    return torch.where(torch.isfinite(tensor), moved, tensor)


def _write_moved(args: tuple[Tensor, ...], move: Callable[[Tensor], Tensor]) -> None:
    """Move floating inputs in place. One that overlaps itself is moved through its storage, once an element."""
    done: set[int] = set()
    for tensor in args:
        if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex) or not tensor.numel():
            continue
        storage = tensor.untyped_storage()
        if storage_key(storage) in done:
            continue
        done.add(storage_key(storage))
        length = storage.nbytes() // tensor.element_size()
        row = torch.empty(0, dtype=tensor.dtype).set_(storage, 0, (length,), (1,))
        row.copy_(move(row))

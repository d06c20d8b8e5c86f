"""The extra runs that decide when eager and the backend differ: float64, the rounding model, and moved inputs.

Each is made once for a case, on first need: most cases are settled by the same-dtype comparison.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.tensors import storage_key
from torchstone.conformance.execution.memory import known_writes
from torchstone.conformance.oracle.ambiguity.phases import AlignPhases, RecordFactors
from torchstone.conformance.oracle.exactness.nan_sign import keeps_nan_signs
from torchstone.conformance.oracle.exactness.narrowest_step import CallPrecision, RecordPrecision
from torchstone.conformance.oracle.exactness.signed_zero import keeps_zero_signs
from torchstone.conformance.oracle.exactness.single_rounding import RecordRoundings, SingleRounding
from torchstone.conformance.oracle.exactness.steps import EveryStep, never_rounds
from torchstone.conformance.oracle.op_traits.execution import READS_THE_LAYOUT
from torchstone.conformance.oracle.overflow.model import RandomOverflow
from torchstone.conformance.oracle.own_fault import raise_own_fault
from torchstone.conformance.oracle.perturbation.draws import Draws
from torchstone.conformance.oracle.perturbation.inputs import (
    a_few_ulps,
    one_ulp,
    part_of_an_ulp,
    row_major,
    with_gaps,
    write_perturbed,
)
from torchstone.conformance.oracle.perturbation.rounding import CheckedDecompositions, RandomRounding
from torchstone.conformance.oracle.perturbation.subnormals import FlushSubnormals
from torchstone.conformance.oracle.pytree import flatten
from torchstone.conformance.oracle.random.replay import RecordRng, ReplayRng
from torchstone.conformance.oracle.reference.by_scipy import BySciPy
from torchstone.conformance.oracle.reference.documented_formulas import ByDocumentedFormulas
from torchstone.conformance.oracle.reference.dtype_defaults import RecordOperands
from torchstone.conformance.oracle.reference.failed_factorizations import FailedFactorizations
from torchstone.conformance.oracle.reference.limits import LimitsAtInfinity
from torchstone.conformance.oracle.reference.other_kernels import InVectors, OneByOne
from torchstone.conformance.oracle.reference.scatter import SEED, ElementByElement, Scatter, one_run
from torchstone.conformance.oracle.reference.widen import NoTwin, float64_by_default, widen_inputs, widen_program
from torchstone.conformance.oracle.reference.without_float64 import WithoutFloat64
from torchstone.conformance.oracle.tolerances import SUB_ULP_STEP, real_dtype
from torchstone.conformance.oracle.ulp import precision
from torchstone.conformance.program.program import Perform, Program
from torchstone.conformance.program.tensor_storage import copy_tensors

ROUNDING_RUNS = ((1.0, 0), (1.0, 0), (1.0, 0), (1.0, 0))
MORE_ROUNDING_RUNS = ((1.0, 0),) * 12
AMPLIFIED_SCALES = (2.0**8, 2.0**4)
AMPLIFIED_RUNS = 12
GRID_RUNS = 64
GRID_RUNS_AT_ONCE = 8
NEARBY_RUNS = 12

SIDES = ("up", "down", "both", "none")
REORDERED_RUNS = (*[(side, steps) for side in SIDES for steps in ("never", "within")], *[("any", "never")] * 3)
REORDERED_RUNS += (("any", "some within"),) * 6
CANCELLED_RUNS = (("lost", "never"),) * 12
MORE_CANCELLED_RUNS = (("lost", "never"),) * 36
OVERFLOWED_RUNS = (*[(side, "always") for side in SIDES], *[("any", "some")] * 36)
"""Runs of the overflow model: which way accumulations overflow, and which other steps do. A number that hangs on three
steps is missed by one of a hundred such draws."""

PERTURBATIONS = ("up", "down", "random", "random", "random", "random", "random", "random")

Derive = Callable[[tuple[Tensor, ...], Any], Any]
"""From a program's inputs and outputs to what is compared in place of the outputs."""


@dataclass(frozen=True)
class ReferenceRun:
    """The leaves of a program's outputs and of its inputs afterwards, in one flat list; or why there are none."""

    leaves: list[Any]
    problem: str = ""


class MadeOnce:
    """Runs that are made when they are first asked for, and kept: who has seen enough of them makes no more."""

    def __init__(self, runs: Iterator[ReferenceRun]) -> None:
        self._made: list[ReferenceRun] = []
        self._rest = runs

    def __iter__(self) -> Iterator[ReferenceRun]:
        at = 0
        while True:
            if at == len(self._made):
                run = next(self._rest, None)
                if run is None:
                    return
                self._made.append(run)
            yield self._made[at]
            at += 1


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
        self.changed = derive is not None or around is not contextlib.nullcontext
        """Whether it is more than the program that is run."""
        self.derive = derive or (lambda inputs, outputs: outputs)
        self.around = around
        self.found: CheckedDecompositions = {}
        self.found_in_range: CheckedDecompositions = {}
        self._scaled: dict[float, list[ReferenceRun]] = {}
        self.seed = seed
        """Of a program that draws at random: eager draws from this seed, and every other run is given its numbers."""

    def inside(self, mode: Callable[[], contextlib.AbstractContextManager[Any]]) -> Referee:
        """The referee of the same program and inputs, whose every run is made inside of another mode."""
        return Referee(self.program, self.pristine, around=mode, seed=self.seed)

    def args(self) -> tuple[Tensor, ...]:
        """Copies of the inputs to run on."""
        return copy_tensors(self.pristine)

    @functools.cached_property
    def dtype(self) -> torch.dtype:
        """The narrowest dtype that a step rounds to; if none does, the narrowest of the inputs' floating dtypes."""
        if self.precisions is not None and self.precisions.narrowest is not None:
            return self.precisions.narrowest
        dtypes = [tensor.dtype for tensor in self.pristine if tensor.is_floating_point() or tensor.is_complex()]
        return min(dtypes, key=precision, default=torch.float32)

    @functools.cached_property
    def precisions(self) -> RecordPrecision | None:
        """In which precision eager computes; None if it does not run a second time."""
        args = self.args()
        log = RecordPrecision(args)
        run = self._run(self.program, args, log)
        if run.problem:
            return None
        self.leaf_dtypes = [log.of_leaf(leaf) for leaf in run.leaves]
        return log

    def call_precision(self, index: int) -> CallPrecision:
        """What a call of the program rounds to."""
        return self.precisions.call(index) if self.precisions is not None else CallPrecision(self.dtype)

    def leaf_dtype(self, index: int) -> torch.dtype | None:
        """The narrowest real dtype that a leaf of the results was rounded to; None if nothing rounded it."""
        if self.precisions is None or index >= len(self.leaf_dtypes):
            return real_dtype(self.dtype)
        return self.leaf_dtypes[index]

    @functools.cached_property
    def input_dtypes(self) -> list[torch.dtype]:
        """The dtypes in whose ULPs the inputs are known: see ``RecordPrecision.of_input``."""
        if self.precisions is None:
            return [tensor.dtype for tensor in self.pristine]
        return [
            self.precisions.of_input(index)
            if tensor.dtype.is_floating_point or tensor.dtype.is_complex
            else tensor.dtype
            for index, tensor in enumerate(self.pristine)
        ]

    @functools.cached_property
    def known_writes(self) -> list[bool]:
        """Whether a step of the program writes to each input, be it the number that is there already."""
        return known_writes(self.program, self.pristine)

    def _run(
        self,
        program: Program,
        args: tuple[Tensor, ...],
        mode: Any = None,
        after: Any = None,
        perform: Perform | None = None,
    ) -> ReferenceRun:
        """A run inside a mode; the mode ``after`` is given what that makes of each step of the program. ``perform``
        makes its calls, in place of the mode's."""
        replay = contextlib.nullcontext() if self.seed is None else ReplayRng(self._draws)
        with torch.no_grad(), warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            try:
                before = copy_tensors(args)
                with self.around(), replay, mode or contextlib.nullcontext(), after or contextlib.nullcontext():
                    outputs = program.run(args, perform or getattr(mode, "perform", None))
                return ReferenceRun(flatten((self.derive(before, outputs), args)))
            except Exception as error:
                raise_own_fault(error)
                return ReferenceRun(
                    [], f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
                )

    @functools.cached_property
    def _draws(self) -> list[Any]:
        """The numbers that eager draws."""
        assert self.seed is not None
        with torch.no_grad(), warnings.catch_warnings(), torch.random.fork_rng(devices=[]), RecordRng() as noted:
            warnings.simplefilter("ignore")
            torch.default_generator.manual_seed(self.seed)
            self.program(*self.args())
        return noted.found

    @functools.cached_property
    def twin(self) -> tuple[Program, tuple[Tensor, ...]]:
        """The widened program and inputs. Raises ``NoTwin``."""
        return widen_program(self.program), widen_inputs(self.args())

    def twin_run(
        self,
        mode: Any = None,
        move: Callable[[tuple[Tensor, ...]], None] | None = None,
        args: tuple[Tensor, ...] | None = None,
    ) -> ReferenceRun:
        """A run of the float64 twin inside a mode, on inputs that ``move`` has written to; or on other inputs."""
        try:
            return self.run_widened(self.moved_inputs(move, args), mode)
        except NoTwin as error:
            return ReferenceRun([], str(error))

    def moved_inputs(
        self,
        move: Callable[[tuple[Tensor, ...]], None] | None = None,
        args: tuple[Tensor, ...] | None = None,
    ) -> tuple[Tensor, ...]:
        """Widened copies of the inputs, or of others, that ``move`` has written to. Raises ``NoTwin``."""
        widened = widen_inputs(self.args() if args is None else args)
        if move is not None:
            move(widened)
        return widened

    def run_widened(self, args: tuple[Tensor, ...], mode: Any = None) -> ReferenceRun:
        """A run of the float64 twin on widened inputs, inside a mode. Raises ``NoTwin``."""
        program, _ = self.twin
        # Eager's own runs come first: float64 is not its default.
        after = AlignPhases(self.factorizations) if self.factorizations else None
        perform = self.operands.told(getattr(mode, "perform", None)) if self.operands else None
        with float64_by_default(), LimitsAtInfinity(), FailedFactorizations(), WithoutFloat64():
            return self._run(program, args, mode, after, perform)

    @functools.cached_property
    def operands(self) -> RecordOperands:
        """What eager's calls are given that compute another function of another dtype."""
        operands = RecordOperands(self.program)
        if operands:
            self._run(self.program, self.args(), perform=operands.perform)
        return operands

    @functools.cached_property
    def relaid_runs(self) -> list[ReferenceRun]:
        """Eager on the same numbers elsewhere in memory, row after row and with gaps, and in other company: it has
        other kernels for these, and not each gives the same."""
        runs = [self._run(self.program, self.args(), mode) for mode in (OneByOne(), InVectors())]
        reads = any(READS_THE_LAYOUT.has(call.operator) for call in self.program.every_call)
        if not reads and len(set(map(storage_key, self.pristine))) == len(self.pristine):
            runs += [self._run(self.program, tuple(map(move, self.args()))) for move in (row_major, with_gaps)]
        return [run for run in runs if not run.problem]

    @functools.cached_property
    def eager(self) -> ReferenceRun:
        """Eager's run once more."""
        return self._run(self.program, self.args())

    @functools.cached_property
    def flushed_runs(self) -> list[ReferenceRun]:
        """Eager's run with subnormal results of its steps flushed to zero."""
        run = self._run(self.program, self.args(), FlushSubnormals())
        return [] if run.problem else [run]

    @functools.cached_property
    def factorizations(self) -> list[Any]:
        """Eager's factorizations with vectors of free sign, whose signs the float64 runs take."""
        factorizations = RecordFactors()
        self._run(self.program, self.args(), factorizations)
        return factorizations.found

    @functools.cached_property
    def float64(self) -> ReferenceRun:
        """The float64 run."""
        return self.twin_run()

    @functools.cached_property
    def by_formulas(self) -> ReferenceRun:
        """The float64 run by the documented formulas of those functions whose eager kernels lose or make a NaN."""
        return self.twin_run(ByDocumentedFormulas())

    @functools.cached_property
    def by_scipy(self) -> ReferenceRun:
        """The float64 run with SciPy's values of special functions; without results where the program has none."""
        mode = BySciPy()
        run = self.twin_run(mode)
        return run if mode.found else ReferenceRun([], "no function of SciPy's")

    @functools.cached_property
    def rounded_runs(self) -> list[ReferenceRun]:
        """Runs of the rounding model; those that raise are left out."""
        return self.scaled_runs(1.0)

    @functools.cached_property
    def more_rounded_runs(self) -> list[ReferenceRun]:
        """More such runs, for what the first few do not settle."""
        return self._rounded_runs(MORE_ROUNDING_RUNS, SEED + len(ROUNDING_RUNS))

    @functools.cached_property
    def runs_on_grid(self) -> Iterable[ReferenceRun]:
        """Runs in which each step gives a number of the dtype: in few bits a difference is often exactly zero."""
        return MadeOnce(self._on_grid(inputs=not self.all_exact))

    @functools.cached_property
    def roundings_on_grid(self) -> Iterable[ReferenceRun]:
        """Such runs on the inputs as they are."""
        return MadeOnce(self._on_grid(inputs=False))

    def _on_grid(self, inputs: bool) -> Iterator[ReferenceRun]:
        scatter, draws = Scatter(self, inputs, on_grid=True), [one_run(Draws(SEED + k)) for k in range(GRID_RUNS)]
        for start in range(0, GRID_RUNS, GRID_RUNS_AT_ONCE):
            yield from (run for run in scatter.runs(draws[start : start + GRID_RUNS_AT_ONCE]) if not run.problem)

    @functools.cached_property
    def roundings_scattered(self) -> Scatter:
        """Runs on the inputs as they are."""
        return Scatter(self, inputs=False)

    @functools.cached_property
    def inputs_scattered(self) -> Scatter:
        """Runs on inputs that are moved by up to one ULP, if there is anything that rounds."""
        return Scatter(self, inputs=not self.all_exact)

    @functools.cached_property
    def runs_stack(self) -> bool:
        """Whether runs may be made at once: see ``scatter``."""
        shapes = {tensor.shape for tensor in self.pristine}
        if len(shapes) != 1 or not min(shapes) or self.seed is not None or self.changed or self.factorizations:
            return False
        if not all(tensor.is_contiguous() and not tensor.is_neg() for tensor in self.pristine):
            return False
        log = ElementByElement(min(shapes))
        run = self._run(self.program, self.args(), log)
        return not run.problem and log.always and all(isinstance(leaf, Tensor) for leaf in run.leaves)

    def scaled_runs(self, scale: float) -> list[ReferenceRun]:
        """The same runs with the same signs and roundings of another size: what does not jump strays in proportion."""
        if scale not in self._scaled:
            self._scaled[scale] = self._rounded_runs(tuple((scale * ulps, side) for ulps, side in ROUNDING_RUNS))
        return self._scaled[scale]

    @functools.cached_property
    def amplified_runs(self) -> list[tuple[ReferenceRun, ReferenceRun]]:
        """Runs with the same signs and larger roundings, of two sizes. Those of one ULP of float64 lie on a lattice,
        which the largest terms of a sum are rounded to."""
        runs = [self._rounded_runs(((ulps, 0),) * AMPLIFIED_RUNS) for ulps in AMPLIFIED_SCALES]
        return list(zip(*runs, strict=True)) if len(runs[0]) == len(runs[1]) else []

    def _rounded_runs(self, kinds: tuple[tuple[float, int], ...], seed: int = SEED) -> list[ReferenceRun]:
        modes = [
            RandomRounding(self.dtype, seed + k, *kind, self.found, calls=self.call_precision)
            for k, kind in enumerate(kinds)
        ]
        runs = [self.twin_run(mode) for mode in modes]
        return [run for run in runs if not run.problem]

    @functools.cached_property
    def reordered_runs(self) -> Iterable[ReferenceRun]:
        """Runs of the overflow model in which accumulations overflow where some order of their terms does."""
        return MadeOnce(self._overflow_runs(REORDERED_RUNS))

    @functools.cached_property
    def overflowed_runs(self) -> Iterable[ReferenceRun]:
        """Runs of the overflow model in which every other step overflows too, unless it is fused into the next."""
        return MadeOnce(self._overflow_runs(OVERFLOWED_RUNS))

    @functools.cached_property
    def cancelled_runs(self) -> dict[int, list[ReferenceRun]]:
        """Runs of the overflow model in which nothing overflows: of float64, sums that cancel, in many an order. Those
        of each formula are a list, since nothing lies between two formulas."""
        return self._by_formula(CANCELLED_RUNS, SEED)

    @functools.cached_property
    def more_cancelled_runs(self) -> dict[int, list[ReferenceRun]]:
        """More such runs, for what the first few do not settle."""
        return self._by_formula(MORE_CANCELLED_RUNS, SEED + len(CANCELLED_RUNS))

    def _by_formula(self, kinds: tuple[tuple[str, str], ...], seed: int) -> dict[int, list[ReferenceRun]]:
        found: dict[int, list[ReferenceRun]] = {}
        for formula, run in self._runs_by_formula(kinds, seed):
            found.setdefault(formula, []).append(run)
        return found

    def _overflow_runs(self, kinds: tuple[tuple[str, str], ...]) -> Iterator[ReferenceRun]:
        return (run for _, run in self._runs_by_formula(kinds))

    def _runs_by_formula(
        self, kinds: tuple[tuple[str, str], ...], seed: int = SEED
    ) -> Iterator[tuple[int, ReferenceRun]]:
        """Runs of each kind by each formula that there is of an op of the program. Where one met nothing to choose, no
        more are made of those that let the same decompositions stand for their ops."""
        formula, formulas = 0, 1
        while formula < formulas:
            settled: set[bool] = set()
            for k, kind in enumerate(kinds):
                in_steps = kind[1] != "never"
                if in_steps in settled:
                    continue
                mode = RandomOverflow(
                    self.dtype, seed + k, *kind, formula, found=self.found_in_range, calls=self.call_precision
                )
                run = self.twin_run(mode)
                if not run.problem:
                    yield formula, run
                formulas = max(formulas, mode.formulas)
                if not mode.open:
                    settled.add(in_steps)
            formula += 1

    @functools.cached_property
    def ulp_perturbed(self) -> list[ReferenceRun]:
        """Eager again, inputs moved by one ULP."""
        return self._perturbed_runs(1.0)

    @functools.cached_property
    def sub_ulp_perturbed(self) -> list[ReferenceRun]:
        """The float64 run again, inputs moved by a small part of one ULP of their own dtype."""
        return self._perturbed_runs(SUB_ULP_STEP)

    @functools.cached_property
    def runs_nearby(self) -> list[tuple[ReferenceRun, ReferenceRun]]:
        """Eager and float64 on inputs that are a few ULPs away, the same for both."""
        if self.all_exact:
            return []
        pairs = []
        for k in range(NEARBY_RUNS):
            args = self.args()
            generator = torch.Generator().manual_seed(SEED + k)
            write_perturbed(args, self.input_dtypes, functools.partial(a_few_ulps, generator=generator))
            pairs.append((self._run(self.program, copy_tensors(args)), self.twin_run(args=args)))
        return [pair for pair in pairs if not (pair[0].problem or pair[1].problem)]

    def _perturbed_runs(self, ulps: float) -> list[ReferenceRun]:
        runs: list[ReferenceRun] = []
        for k, kind in enumerate(PERTURBATIONS):
            generator = torch.Generator().manual_seed(SEED + k)
            if ulps == 1.0:
                args = self.args()
                write_perturbed(args, self.input_dtypes, functools.partial(one_ulp, kind=kind, generator=generator))
                run = self._run(self.program, args)
            else:
                step = functools.partial(part_of_an_ulp, kind=kind, generator=generator, part=ulps)
                run = self.twin_run(move=functools.partial(write_perturbed, dtypes=self.input_dtypes, move=step))
            if not run.problem:
                runs.append(run)
        return runs

    @functools.cached_property
    def all_exact(self) -> bool:
        """Whether the program only selects, moves, compares and rounds."""
        return self._always(never_rounds)

    @functools.cached_property
    def keeps_zero_signs(self) -> bool:
        """Whether the signs of the zeros it gives are part of the program's result."""
        return self._always(keeps_zero_signs)

    @functools.cached_property
    def keeps_nan_signs(self) -> bool:
        """Whether the signs of the NaN it gives are part of the program's result."""
        return not any(tensor.is_neg() for tensor in self.pristine) and self._always(keeps_nan_signs)

    @functools.cached_property
    def rounds_once(self) -> SingleRounding | None:
        """What a program rounds by if all of it is one operation of IEEE 754, and moving numbers about."""
        log = RecordRoundings()
        run = self._run(self.program, self.args(), log)
        return None if run.problem else log.once

    def _always(self, holds: Callable[[Any], bool]) -> bool:
        log = EveryStep(holds)
        run = self._run(self.program, self.args(), log)
        return not run.problem and log.always

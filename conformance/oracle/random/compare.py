"""Cases whose values eager draws at random, or leaves unwritten: what can be compared of them, and how.

- Memory that nobody wrote to: shape, dtype, layout and device. They are all that ``empty`` and its like decide, so that
  is a pass. Of another program what was written is compared; where that is nothing, the case is ``untested``.
- The numbers that eager draws from the same seed are right. A backend that claims to give them (``random_numbers`` is
  ``eager``) has to, within the tolerance. Any other has them by chance where eager draws them from other seeds too.
- Any other backend's are compared by their distribution. Where that differs, results that nothing drawn reaches are
  judged as those of any other program. A backend that claims ``seeded`` has to give the same numbers for the same seed.
  Where sizes depend on what is drawn, or the program is too large to be run so often, shapes and dtypes are compared,
  and the case is ``untested``.
- A program that seeds the generator itself gives one set of numbers, which only eager's generator has. Whoever has
  another generator is asked without the seed (``without_seed``).

How often a program is run follows from its size, never from a clock: a verdict is the same on every machine.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from torchstone.conformance.execution.memory import find_stray_writes, known_writes
from torchstone.conformance.execution.repeatability import is_nondeterministic, observe, same_leaves
from torchstone.conformance.execution.undefined_behavior import SEED
from torchstone.conformance.execution.verdict import FAILURES, Kind, Outcome
from torchstone.conformance.oracle.ambiguity.factorizations import derivation
from torchstone.conformance.oracle.compare import judge
from torchstone.conformance.oracle.finding import Finding, Observed
from torchstone.conformance.oracle.own_fault import raise_own_fault
from torchstone.conformance.oracle.pytree import dense, flatten, map_leaves, paths, shape_of
from torchstone.conformance.oracle.random.distribution import RUNS, SEEN, Sample, compare_distributions
from torchstone.conformance.oracle.random.free_factors import Open, decide_all, open_numbers
from torchstone.conformance.oracle.random.rounding_room import rounding_rooms
from torchstone.conformance.oracle.random.undrawn import apart, same_in_all, with_leaves
from torchstone.conformance.oracle.random.unwritten import (
    FILLS,
    calls_unwritten,
    gives_unwritten,
    run_filled,
    unwritten_elements,
)
from torchstone.conformance.oracle.random.work import affordable, work
from torchstone.conformance.oracle.reference.shared import made_once
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Program

RESEEDS = 16
MORE_RESEEDS = 512
"""Before a backend is convicted, or excused: what is drawn once in a hundred runs is mostly not seen in sixteen."""
ROOM_SEEDS = 8
"""Seeds that show how far rounding moves an element: what one leaves out of a sum, another leaves in."""
LATER_RUNS = RUNS // 2
"""Runs of a compiled program whose distribution was right already, on other inputs: at other sizes, in a later call.
What goes wrong there alone (a result that is kept, elements left out) shows in fewer, down to a coin that is kept."""
UNWRITTEN, DRAWN = "unwritten", "drawn"
EAGER, SEEDED = "eager", "seeded"

_judged: MutableMapping[Any, bool] = WeakIdKeyDictionary()
"""The compiled programs whose distribution was right."""

_SEED = "torch.manual_seed"
_ELSEWHERE = 1 << 20
"""Seeds from here on are none that a case is run from, and hardly any that a program sets."""


@functools.cache
def _start() -> Tensor:
    """The state of the common generator before anything is drawn."""
    return torch.Generator().manual_seed(SEED).get_state()


def drew() -> bool:
    """Whether what ran last, from the common seed, took numbers from the generator."""
    return not torch.equal(_start(), torch.get_rng_state())


def draws(case: Case) -> bool:
    """Whether eager takes numbers from the generator for these inputs: it may for some alone, as ``rrelu`` does."""
    with contextlib.suppress(Exception):
        observe(_unseeded(case.program), case.fresh_args())
        return drew()
    return False


def undetermined(case: Case, drawn: bool, reseeds: int = RESEEDS) -> str:
    """Why eager's own values are not determined by the inputs, ``unwritten`` or ``drawn``, or an empty string.

    ``drawn``: whether eager took numbers from the generator; it may have done so without effect, which this many
    seeds show, or as many as there is room for.
    """
    if calls_unwritten(case.program) and _has_unwritten(case):
        return UNWRITTEN
    if not drawn:
        return ""
    first = observe(_unseeded(case.program), case.fresh_args())
    return DRAWN if any(not same_leaves(first, run) for run in _reseeded(case, SEED + 1, reseeds - 1)) else ""


def without_seed(case: Case, backend: Any) -> Case:
    """The case as a backend is asked it: without seeds of the program's own, if it has not eager's generator."""
    if getattr(backend, "random_numbers", "") == EAGER or not any(c.target == _SEED for c in case.program.calls):
        return case
    return case.replace(program=_unseeded(case.program))


def _unseeded(program: Program) -> Program:
    return program.rewrite(lambda call: None if call.target == _SEED else call)


def _reseeded(case: Case, start: int, most: int) -> Iterator[Observed]:
    """Eager's runs from other seeds, ``most`` of them; of a large program fewer, but ``RESEEDS``."""
    program = _unseeded(case.program)
    if most > RESEEDS:
        most = max(affordable(most, work(program, case.fresh_args())), RESEEDS)
    for count in range(most):
        with contextlib.suppress(Exception):  # what eager refuses of these numbers
            yield observe(program, case.fresh_args(), seed=start + count)


def _by_chance(case: Case, expected: Observed) -> bool:
    """Whether eager draws its numbers from another seed too: who gives them need not have its generator."""

    def draws_again(_: Any) -> bool:
        return any(same_leaves(expected, run) for run in _reseeded(case, _ELSEWHERE, MORE_RESEEDS))

    return made_once("by chance", case.program, case.args, draws_again)


def compare(
    why: str, case: Case, backend: Any, executable: Callable[..., Any], expected: Observed, actual: Observed
) -> Finding:
    """What can be said of a backend's run of a case that is ``undetermined``, and why it is."""
    masks = unwritten_elements(_filled(case)) if why == UNWRITTEN else []
    if why == UNWRITTEN and not masks:
        return Finding(Outcome.UNTESTED, message="random: sizes depend on memory that nobody wrote to")
    claim = getattr(backend, "random_numbers", "")
    mismatch = outline(expected, actual) or _stray_writes(case, expected, actual)
    if mismatch is not None:
        if mismatch.kind == Kind.SHAPE and why == DRAWN and claim != EAGER and _draws_sizes(case, expected):
            return Finding(Outcome.UNTESTED, message="random: sizes depend on what is drawn")
        return mismatch
    if masks:
        return _unwritten(case, expected, actual, masks)
    if same_leaves(expected, actual) and (claim == EAGER or not _by_chance(case, expected)):
        return Finding(Outcome.PASS, evidence={"rule": "the numbers that eager draws from the same seed"})
    if claim == EAGER:
        return judge(case.program, case.args, expected, actual, seed=SEED)
    if claim == SEEDED and is_nondeterministic(case, executable, actual):
        message = "calls from one seed differ, and the backend claims that they do not"
        return Finding(Outcome.MISMATCH, Kind.NONDETERMINISTIC, message)
    return _judge_drawn(case, executable, expected)


def _draws_sizes(case: Case, expected: Observed) -> bool:
    """Whether eager gives other sizes from other seeds."""
    return any(outline(expected, run) is not None for run in _reseeded(case, SEED + 1, MORE_RESEEDS))


def _untested(reason: str) -> Finding:
    return Finding(Outcome.UNTESTED, message=f"{reason}; shapes and dtypes agree")


def _stray_writes(case: Case, expected: Observed, actual: Observed) -> Finding | None:
    """A mismatch where the backend wrote to memory that eager leaves alone: that is determined, whatever is drawn."""
    known = functools.partial(known_writes, case.program, case.args)
    _, message, evidence = find_stray_writes(case.args, expected.inputs, actual.inputs, known)
    return Finding(Outcome.MISMATCH, Kind.MUTATION, f"mutated: {message}", evidence) if message else None


def _filled(case: Case) -> list[list[Any]]:
    """The leaves of runs of eager whose unwritten memory is filled otherwise; none where eager refuses one."""
    runs = []
    for fill in FILLS:
        torch.default_generator.manual_seed(SEED)
        try:
            runs.append(run_filled(case.program, case.fresh_args(), fill))
        except Exception:  # what is filled in decides that too
            return []
    return runs


def _has_unwritten(case: Case) -> bool:
    masks = unwritten_elements(_filled(case))
    return not masks or any(mask is not None and bool(mask.any()) for mask in masks)


def _unwritten(case: Case, expected: Observed, actual: Observed, masks: list[Tensor | None]) -> Finding:
    """Compare what was written of results, some of whose memory was not: where ``masks`` have it."""
    call = next(call for call in case.program.every_call if gives_unwritten(call))
    untested = _untested(f"random: {call.target} gives memory nobody wrote to")
    outputs = flatten(expected.outputs)
    open_ones = [mask is not None and bool(mask.numel()) and bool(mask.all()) for mask in masks[: len(outputs)]]
    if any(open_ones):
        if len(case.program.calls) > 1:
            return untested
        return Finding(Outcome.PASS, evidence={"rule": "metadata alone: PyTorch promises nothing of the values"})
    torch.default_generator.manual_seed(SEED)
    run_filled(case.program, case.fresh_args())
    if drew():
        return untested
    left, given = (flatten((run.outputs, run.inputs)) for run in (expected, actual))
    right = iter([_with_masked(*leaf) for leaf in zip(given, left, masks, strict=True)])
    filled = map_leaves(lambda _: next(right), actual.outputs)
    finding = judge(case.program, case.args, expected, Observed(filled, tuple(right)))
    note = {"unwritten": sum(int(mask.sum()) for mask in masks if mask is not None)}
    return replace(finding, evidence=finding.evidence | note)


def _with_masked(leaf: Any, eagers: Any, mask: Tensor | None) -> Any:
    """A leaf with eager's numbers where nobody wrote any."""
    return leaf if mask is None or not bool(mask.any()) else torch.where(mask, dense(eagers), dense(leaf))


class BackendRaised(Exception):
    """The backend raised ``error`` in one of the further runs that a distribution takes."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def _judge_drawn(case: Case, executable: Callable[..., Any], expected: Observed) -> Finding:
    """By the distribution, and by the oracle where that differs in results which nothing drawn reaches."""
    finding = _distribution(case, executable, expected)
    if finding.outcome is not Outcome.MISMATCH:
        return finding
    places, undrawn = _undrawn(case, executable, expected)
    if not places or undrawn.outcome in FAILURES:
        return finding

    def with_eagers(*args: Tensor) -> Any:
        run = with_leaves(Observed(executable(*args), args), expected, places)
        for mine, eagers in zip(args, run.inputs, strict=True):
            if mine is not eagers:
                mine.copy_(eagers)
        return run.outputs

    rest = _distribution(case, with_eagers, expected)
    return undrawn if rest.outcome is Outcome.PASS and undrawn.outcome is not Outcome.PASS else rest


def _distribution(case: Case, executable: Callable[..., Any], expected: Observed) -> Finding:
    if affordable(RUNS, work(case.program, case.fresh_args())) < RUNS:
        return _untested(f"random: the program is too large to be run {SEEN + 2 * RUNS} times")

    derive = derivation(_unseeded(case.program))  # of factors of a matrix, what no sign or phase of theirs changes

    def compared(run: Observed) -> tuple[Any, Any]:
        return derive(case.args, run.outputs) if derive else run.outputs, run.inputs

    def results(function: Callable[..., Any], seed: int) -> list[Any]:
        return flatten(compared(observe(function, case.fresh_args(), seed=seed)))

    def of_eager(seed: int, mode: Any) -> list[Any]:
        def run(*args: Tensor) -> Any:
            with mode or contextlib.nullcontext():
                return case.program(*args)

        return results(run, seed)

    def leaves(function: Callable[..., Any], seed: int) -> list[Any]:
        found = results(function, seed)
        return [leaf if free is None else free.closed(leaf) for leaf, free in zip(found, free_ones, strict=True)]

    def eager_leaves(seed: int) -> list[Any]:
        try:
            return leaves(case.program, SEED + seed)
        except Exception as error:
            raise ValueError("eager refuses some of the numbers drawn") from error

    def backend(seed: int) -> list[Any]:
        try:
            return leaves(executable, _ELSEWHERE + seed)
        except Exception as error:
            raise BackendRaised(error) from error

    free_ones = _free_numbers(case, of_eager)
    if decide_all(free_ones[: len(flatten(expected.outputs))]):
        return _untested("random: signs of vectors decide all numbers")
    free_ones = free_ones or [None] * len(flatten(compared(expected)))
    eager = made_once("sample", case.program, case.args, lambda _: Sample(eager_leaves))
    outputs, inputs = compared(expected)
    names = [name for name, _ in [*paths(outputs, "output"), *paths(list(inputs), "input")]]
    runs = LATER_RUNS if _was_judged(executable) else RUNS

    def rooms() -> list[Tensor | None]:
        return made_once("rooms", case.program, case.args, lambda _: _rooms(case))

    try:
        message, evidence = compare_distributions(eager, backend, names, runs, rooms)
    except ValueError as error:
        return _untested(f"random: {error}")
    if message:
        return Finding(Outcome.MISMATCH, Kind.DISTRIBUTION, message, evidence)
    with contextlib.suppress(TypeError):  # what nothing refers to weakly is judged in full each time
        _judged[executable] = True
    return Finding(Outcome.PASS, evidence={"rule": "distribution", **evidence})


def _undrawn(case: Case, executable: Callable[..., Any], expected: Observed) -> tuple[set[int], Finding]:
    """The places of results that nothing drawn reaches and that are not eager's; what the oracle says of them."""
    try:
        runs = [observe(executable, case.fresh_args(), seed=_ELSEWHERE + seed) for seed in range(RESEEDS)]
    except Exception as error:
        raise BackendRaised(error) from error
    eagers = [expected, *_reseeded(case, SEED + 1, MORE_RESEEDS - 1)]
    places = same_in_all(eagers) & same_in_all(runs) & apart(expected, runs[0])
    if not places:
        return places, Finding(Outcome.PASS)
    return places, judge(case.program, case.args, expected, with_leaves(expected, runs[0], places), seed=SEED)


def _free_numbers(case: Case, run: Callable[[int, Any], list[Any]]) -> list[Open | None]:
    """What signs of vectors decide; nothing where eager refuses some of the numbers drawn, which is found again."""
    try:
        return made_once("free", case.program, case.args, lambda _: open_numbers(run, _ELSEWHERE))
    except Exception as error:
        raise_own_fault(error)
        return []


def _was_judged(executable: Callable[..., Any]) -> bool:
    try:
        return executable in _judged
    except TypeError:
        return False


def _rooms(case: Case) -> list[Tensor | None]:
    """How far rounding may set apart equal elements: the largest room that a few seeds show. One that is zero for all
    of these seeds, as what is dropped may be, has that of the others."""
    program = _unseeded(case.program)
    rows = []
    for seed in range(_ELSEWHERE, _ELSEWHERE + ROOM_SEEDS):
        run = observe(program, case.fresh_args(), seed=seed)
        rows.append(rounding_rooms(program, case.args, run, seed))
    return [
        _known(functools.reduce(torch.fmax, rooms)) if all(room is not None for room in rooms) else None
        for rooms in zip(*rows, strict=True)
    ]


def _known(rooms: Tensor) -> Tensor:
    """The rooms with the largest of them in the place of those that are not known."""
    known = rooms[~rooms.isnan()]
    return torch.where(rooms.isnan(), known.amax() if known.numel() else 0.0, rooms)


def outline(expected: Observed, actual: Observed) -> Finding | None:
    """A mismatch of structure, shape or dtype, for results whose values cannot be judged."""
    left, right = flatten((expected.outputs, expected.inputs)), flatten((actual.outputs, actual.inputs))
    if [name for name, _ in paths(expected.outputs, "")] != [name for name, _ in paths(actual.outputs, "")]:
        what = f"expected {shape_of(expected.outputs)}, got {shape_of(actual.outputs)}"
        return Finding(Outcome.MISMATCH, Kind.STRUCTURE, f"the results have another structure: {what}")
    for index, (wanted, given) in enumerate(zip(left, right, strict=True)):
        if isinstance(wanted, Tensor) != isinstance(given, Tensor):
            return Finding(Outcome.MISMATCH, Kind.STRUCTURE, f"value {index}: one is a tensor, the other is not")
        if isinstance(wanted, Tensor) and isinstance(given, Tensor):
            if wanted.dtype != given.dtype:
                message = f"value {index}: expected {wanted.dtype}, got {given.dtype}"
                return Finding(Outcome.MISMATCH, Kind.DTYPE, message)
            if wanted.shape != given.shape:
                message = f"value {index}: expected shape {list(wanted.shape)}, got {list(given.shape)}"
                return Finding(Outcome.MISMATCH, Kind.SHAPE, message)
            if wanted.layout != given.layout:
                message = f"value {index}: expected {wanted.layout}, got {given.layout}"
                return Finding(Outcome.MISMATCH, Kind.STRUCTURE, message)
            if wanted.device != given.device:
                message = f"value {index}: expected a tensor on {wanted.device}, got one on {given.device}"
                return Finding(Outcome.MISMATCH, Kind.DEVICE, message)
        elif type(wanted) is not type(given):
            message = f"value {index}: expected a {type(wanted).__name__}, got a {type(given).__name__}"
            return Finding(Outcome.MISMATCH, Kind.DTYPE, message)
    return None

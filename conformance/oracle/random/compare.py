"""Cases whose values eager draws at random, or leaves unwritten: what can be compared of them, and how.

- Memory that nobody wrote to: shape and dtype. They are all that ``empty`` and its like decide, so that is a pass; any
  other program with such memory is ``untested``.
- The numbers that eager draws from the same seed are right. A backend that claims to give them (``random_numbers`` is
  ``eager``) has to, within the tolerance. Any other has them by chance where eager draws them from other seeds too.
- Any other backend's are compared by their distribution. One that claims ``seeded`` has to give the same numbers for
  the same seed. Where a program seeds the generator itself, or its sizes depend on what it draws, or the runs would
  take too long, shapes and dtypes are compared, and the case is ``untested``.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.execution.repeatability import is_nondeterministic, observe, same_leaves
from torchstone.conformance.execution.undefined_behavior import SEED
from torchstone.conformance.execution.verdict import Kind, Outcome
from torchstone.conformance.oracle.compare import Finding, Observed, judge
from torchstone.conformance.oracle.pytree import flatten, paths
from torchstone.conformance.oracle.random.distribution import RUNS, alike
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import UNINITIALIZED, Program

RESEEDS = 16
MORE_RESEEDS = 512
"""Before a backend is convicted: what is drawn once in a hundred runs is mostly not seen in sixteen."""
UNWRITTEN, DRAWN = "unwritten", "drawn"
EAGER, SEEDED = "eager", "seeded"

BUDGET = 3.0
"""Seconds that the runs of a backend may take together; with fewer than ``FEWEST`` nothing is told."""
FEWEST = 32
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


def undetermined(case: Case, drawn: bool, reseeds: int = RESEEDS) -> str:
    """Why eager's own values are not determined by the inputs, ``unwritten`` or ``drawn``, or an empty string.

    ``drawn``: whether eager took numbers from the generator; it may have done so without effect, which this many
    seeds show, if ``BUDGET`` is not up before.
    """
    if any(call.operator in UNINITIALIZED for call in case.program.calls):
        return UNWRITTEN
    if not drawn:
        return ""
    first = observe(_unseeded(case.program), case.fresh_args())
    return DRAWN if any(not same_leaves(first, run) for run in _reseeded(case, SEED + 1, reseeds - 1)) else ""


def _unseeded(program: Program) -> Program:
    """Without a seed of its own: that is part of what eager does, but compilers may have generators of their own."""
    return program.rewrite(lambda call: None if call.target == _SEED else call)


def _reseeded(case: Case, start: int, most: int) -> Iterator[Observed]:
    """Eager's runs from other seeds, ``most`` of them, or as many as ``BUDGET`` has room for and some."""
    program, started = _unseeded(case.program), time.perf_counter()
    for count in range(most):
        if count >= RESEEDS and time.perf_counter() - started > BUDGET:
            return
        with contextlib.suppress(Exception):  # what eager refuses of these numbers
            yield observe(program, case.fresh_args(), seed=start + count)


def _by_chance(case: Case, expected: Observed) -> bool:
    """Whether eager draws these numbers from another seed too: who gives them need not have its generator."""
    return any(same_leaves(expected, run) for run in _reseeded(case, _ELSEWHERE, MORE_RESEEDS))


def compare(
    why: str, case: Case, backend: Any, executable: Callable[..., Any], expected: Observed, actual: Observed
) -> Finding:
    """What can be said of a backend's run of a case that is ``undetermined``, and why it is."""
    mismatch = outline(expected, actual)
    if mismatch is not None:
        return mismatch
    if why == UNWRITTEN:
        return _unwritten(case.program)
    claim = getattr(backend, "random_numbers", "")
    if same_leaves(expected, actual) and (claim == EAGER or not _by_chance(case, expected)):
        return Finding(Outcome.PASS, evidence={"rule": "the numbers that eager draws from the same seed"})
    if claim == EAGER:
        return judge(case.program, case.args, expected, actual, seed=SEED)
    if claim == SEEDED and is_nondeterministic(case, executable, actual):
        message = "calls from one seed differ, and the backend claims that they do not"
        return Finding(Outcome.MISMATCH, Kind.NONDETERMINISTIC, message)
    if any(call.target == _SEED for call in case.program.calls):
        return _untested("random: the program sets the seed, and nothing tells that the backend has eager's generator")
    return _distribution(case, executable, expected)


def _untested(reason: str) -> Finding:
    return Finding(Outcome.UNTESTED, message=f"{reason}; shapes and dtypes agree")


def _unwritten(program: Program) -> Finding:
    call = program.calls[0]
    if len(program.calls) > 1 or call.operator.startswith("resize"):
        return _untested(f"random: {call.target} gives memory nobody wrote to")
    return Finding(Outcome.PASS, evidence={"rule": "metadata alone: PyTorch promises nothing of the values"})


def _distribution(case: Case, executable: Callable[..., Any], expected: Observed) -> Finding:
    def sample(function: Callable[..., Any], offset: int) -> Callable[[int], list[Any]]:
        def run(seed: int) -> list[Any]:
            run = observe(function, case.fresh_args(), seed=offset + seed)
            return flatten((run.outputs, run.inputs))

        return run

    backend = sample(executable, _ELSEWHERE)
    started = time.perf_counter()
    backend(0)
    runs = min(RUNS, int(BUDGET / (time.perf_counter() - started)))
    if runs < FEWEST:
        return _untested("random: the backend takes too long to be run many times")
    names = [name for name, _ in [*paths(expected.outputs, "output"), *paths(list(expected.inputs), "input")]]
    try:
        message, evidence = alike(sample(case.program, SEED), backend, names, runs)
    except ValueError as error:
        return _untested(f"random: {error}")
    if message:
        return Finding(Outcome.MISMATCH, Kind.DISTRIBUTION, message, evidence)
    return Finding(Outcome.PASS, evidence={"rule": "distribution", **evidence})


def outline(expected: Observed, actual: Observed) -> Finding | None:
    """A mismatch of structure, shape or dtype, for results whose values cannot be judged."""
    left, right = flatten((expected.outputs, expected.inputs)), flatten((actual.outputs, actual.inputs))
    if len(left) != len(right):
        return Finding(Outcome.MISMATCH, Kind.STRUCTURE, f"expected {len(left)} values, got {len(right)}")
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
        elif type(wanted) is not type(given):
            message = f"value {index}: expected a {type(wanted).__name__}, got a {type(given).__name__}"
            return Finding(Outcome.MISMATCH, Kind.DTYPE, message)
    return None

"""The variant ``rewritten``: a program beside others that compute the same (``rewrites``). They have to agree.

Where eager itself is wrong, or where the oracle has no answer, a backend may contradict itself all the same. What it
gives for a program is compared with what it gives for the rewritten one, under the rules that hold between a backend
and eager; and before one of the two is called wrong, eager is asked for both programs:

- Where nothing rounds, PyTorch leaves nothing open, and the rewrite changes no rounding, the two have to be equal.
- Anywhere else the second result is wrong if it is wrong beside the first and beside eager's for each program, by the
  float64 run of the program that it stands beside.
- Or eager gives two results as well. That is believed only if they are apart by half of their digits, and by the
  float64 run of the rewritten program the first is wrong.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.backends.protocol import Backend, BackendUnsupported
from torchstone.conformance.execution.failure import failure
from torchstone.conformance.execution.poison import FILL
from torchstone.conformance.execution.repeatability import is_nondeterministic, observe
from torchstone.conformance.execution.run_case import Compiled, compare_with_eager
from torchstone.conformance.execution.undefined_behavior import undefined_behavior
from torchstone.conformance.execution.verdict import Kind, Outcome, Stage
from torchstone.conformance.oracle.compare import judge
from torchstone.conformance.oracle.equality import equal, same_values
from torchstone.conformance.oracle.exactness.steps import EveryStep, never_rounds
from torchstone.conformance.oracle.finding import Finding, Observed
from torchstone.conformance.oracle.op_traits.right_answers import MANY_RIGHT_ANSWERS, ORDERS_TIES, PICKS_ONE_OF_TIES
from torchstone.conformance.oracle.overflow.conversions import undefined_elements
from torchstone.conformance.oracle.pytree import dense, flatten, paths
from torchstone.conformance.oracle.random.unwritten import calls_unwritten
from torchstone.conformance.oracle.tolerances import real_dtype
from torchstone.conformance.program.bundle import bundle, members
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import ProgramError
from torchstone.conformance.program.program import Program
from torchstone.conformance.program.tensor_storage import copy_tensors
from torchstone.conformance.variants.protocol import NotApplicable, Variant
from torchstone.conformance.variants.rewrites import REWRITES, Rewrite, values_of

MOST = 3
"""Rewrites that one case is asked in."""

JUDGED = frozenset({Outcome.PASS, Outcome.FALLBACK, Outcome.ILL_CONDITIONED, Outcome.UNTESTED})
"""What may have become of the program by itself for its rewrites to be asked."""


@dataclass(frozen=True)
class Pair:
    """A case, the program that it was rewritten to, and what eager gives for both."""

    case: Case
    rewrite: Rewrite
    program: Program
    eager: Observed
    eager_rewritten: Observed


def pairs(case: Case) -> Iterator[Pair]:
    """Yield a case with what its program may be rewritten to, as the case's id has it, where eager takes it.

    Raises NotApplicable for a program that none rewrites.
    """
    if calls_unwritten(case.program) or undefined_behavior(case):
        raise NotApplicable("PyTorch leaves open what it gives")
    values = values_of(case)
    start = int(hashlib.sha256(case.id.encode()).hexdigest(), 16) % len(REWRITES)
    eager = observe(case.program, case.fresh_args())
    made = 0
    for rewrite in (*REWRITES[start:], *REWRITES[:start]):
        try:
            program = rewrite.apply(case, values)
            again = observe(program, case.fresh_args())
        except (NotApplicable, ProgramError):
            continue
        except Exception:  # eager refuses what it was rewritten to, as views of other layouts
            continue
        if _form(again) != _form(eager):
            continue
        yield Pair(case, rewrite, program, eager, again)
        made += 1
        if made == MOST:
            return


def _form(run: Observed) -> list[Any]:
    return [(leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else type(leaf) for leaf in flatten(run.outputs)]


def _make(case: Case) -> Case:
    with torch.no_grad():
        if next(pairs(case), None) is None:
            raise NotApplicable("there is no rewrite of any of its calls")
    return case


def compare_rewritten(case: Case, backend: Backend, compiled: Compiled | None) -> tuple[Stage, Finding]:
    """Compare a case with eager, and then with what its program may be rewritten to."""
    executable = compiled
    if executable is None:
        try:
            executable = backend.compile(case.program, case.fresh_args())
        except Exception as error:
            executable = error
    stage, finding = compare_with_eager(case, backend, executable)
    if isinstance(executable, Exception) or finding.outcome not in JUDGED:
        return stage, finding
    found = []
    for member in members(case):
        with contextlib.suppress(Exception):  # a program that is not rewritten
            found.append(list(pairs(member)))
            continue
        found.append([])
    try:
        run = observe(executable, case.fresh_args(), FILL)
    except Exception:  # that the backend refuses
        return stage, finding
    asked = []
    for step in itertools.zip_longest(*found):
        some = {at: pair for at, pair in enumerate(step) if pair is not None}
        reached, wrong = _compare(case, some, backend, executable, run)
        if wrong is not None:
            return reached, wrong
        asked += [pair.rewrite.name for pair in some.values()]
    return stage, replace(finding, evidence=finding.evidence | {"rewritten": asked})


def _compare(
    case: Case, pairs: dict[int, Pair], backend: Backend, executable: Callable[..., Any], run: Observed
) -> tuple[Stage, Finding | None]:
    """What is wrong with a pair, and at which stage. Of a bundle several are compiled as one, by member.

    Where a backend refuses what one of these is rewritten to, each is asked by itself.
    """
    rewritten = bundle([pair.case.replace(program=pair.program) for pair in pairs.values()])
    stage = Stage.COMPILE
    try:
        other = backend.compile(rewritten.program, rewritten.fresh_args())
        stage = Stage.RUN
        again = observe(other, rewritten.fresh_args(), FILL)
    except Exception as error:
        reached, finding = failure(error, stage)
        if isinstance(error, BackendUnsupported) or finding.outcome is Outcome.UNSUPPORTED:
            apart = [{at: pair} for at, pair in pairs.items()] if len(pairs) > 1 else []
            tried = (_compare(case, one, backend, executable, run) for one in apart)
            return next(((where, wrong) for where, wrong in tried if wrong is not None), (stage, None))
        names = ", ".join(dict.fromkeys(pair.rewrite.name for pair in pairs.values()))
        told = f"rewritten ({names}): {finding.message}"
        return reached, replace(finding, message=told, evidence=finding.evidence | _evidence(pairs.values()))
    whole, agains = len(members(case)) > 1, again.outputs if len(pairs) > 1 else [again.outputs]
    for (at, pair), given in zip(pairs.items(), agains, strict=True):
        first = Observed(run.outputs[at], run.inputs) if whole else run
        wrong = disagreement(pair, first, Observed(given, again.inputs))
        runs = ((case, executable, run), (rewritten, other, again))
        # Of a bundle it may be another member that is: this one is then asked by itself.
        if wrong is None or (not whole and any(is_nondeterministic(*each) for each in runs)):
            continue
        said = wrong.evidence | _evidence([pair])
        if whole and isinstance(where := said.get("where"), str):
            said["where"] = where.replace("output", f"output[{at}]", 1)
        return Stage.COMPARE, replace(wrong, evidence=said)
    return Stage.COMPARE, None


def _evidence(pairs: Iterable[Pair]) -> dict[str, str]:
    pairs = list(pairs)
    names = ", ".join(dict.fromkeys(pair.rewrite.name for pair in pairs))
    return {"rewrite": names, "program": "\n".join(str(pair.program) for pair in pairs)[:2000]}


def disagreement(pair: Pair, run: Observed, again: Observed) -> Finding | None:
    """What is wrong with the results of a backend for the two programs of a pair; None if they agree."""
    program, args, name = pair.case.program, pair.case.args, pair.rewrite.name

    def differs(expected: Observed, actual: Observed, of: Program = program) -> Finding | None:
        finding = judge(of, args, Observed(expected.outputs, args), Observed(actual.outputs, args))
        return finding if finding.outcome is Outcome.MISMATCH and finding.kind is Kind.VALUE else None

    if pair.rewrite.rounds_alike and _leaves_nothing_open(program, args):
        return _first_difference(run, again, f"rewritten ({name}), it gives other numbers")
    found = differs(run, again)
    if found is not None and differs(pair.eager, again) and differs(pair.eager_rewritten, again, pair.program):
        return _told(found, f"rewritten ({name}), it is wrong")
    if not _half_wrong(run, again):
        return None
    found = differs(again, run, pair.program)
    if found is not None and differs(pair.eager_rewritten, run, pair.program):
        return _told(found, f"rewritten ({name}), it gives other numbers, and so does eager")
    return None


def _leaves_nothing_open(program: Program, args: tuple[Tensor, ...]) -> bool:
    """Whether nothing in a program rounds, has a choice among ties, or converts numbers out of range."""
    if any(MANY_RIGHT_ANSWERS.has(call.operator) for call in program.every_call):
        return False
    log = EveryStep(lambda f: never_rounds(f) and not (ORDERS_TIES.holds(f) or PICKS_ONE_OF_TIES.holds(f)))
    given = copy_tensors(args)
    try:
        with torch.no_grad(), log:
            program(*given)
    except Exception:  # what eager does not run under a mode
        return False
    return log.always and not undefined_elements(program, args)[0]


def _first_difference(run: Observed, again: Observed, what: str) -> Finding | None:
    """A difference between two results that have to be equal; a NaN is a NaN, and 0 is -0."""
    for (name, one), (_, other) in zip(paths(run.outputs, "output"), paths(again.outputs, "output"), strict=True):
        if equal(one, other):
            continue
        evidence = {"where": name}
        if isinstance(one, Tensor) and isinstance(other, Tensor) and one.shape == other.shape:
            at = (
                tuple((~same_values(dense(one), dense(other))).nonzero()[0].tolist())
                if one.dtype == other.dtype
                else ()
            )
            evidence |= {"expected": str(one[at].tolist()), "actual": str(other[at].tolist())}
        return Finding(Outcome.MISMATCH, Kind.VALUE, f"{what}: {name}: {_values(evidence)}", evidence)
    return None


def _values(evidence: dict[str, str]) -> str:
    return f"{evidence['actual']} for {evidence['expected']}" if "actual" in evidence else "another form"


def _told(finding: Finding, what: str) -> Finding:
    return replace(finding, message=f"{what}: {finding.message}")


def _half_wrong(run: Observed, again: Observed) -> bool:
    """Whether two finite results are apart by half of their digits, of the largest number among them."""
    for one, other in zip(flatten(run.outputs), flatten(again.outputs), strict=True):
        if not isinstance(one, Tensor) or not (one.dtype.is_floating_point or one.dtype.is_complex) or not one.numel():
            continue
        wide = torch.complex128 if one.dtype.is_complex else torch.float64
        left, right = dense(one).to(wide), dense(other).to(wide)
        both = torch.isfinite(left) & torch.isfinite(right)
        if not bool(both.any()):
            continue
        largest = float(torch.maximum(left[both].abs(), right[both].abs()).max())
        if float((left - right)[both].abs().max()) > largest * torch.finfo(real_dtype(one.dtype)).eps ** 0.5:
            return True
    return False


REWRITTEN = Variant(
    "The program beside others that compute the same, which the backend has to agree on.",
    _make,
    compare_rewritten,
    compiled_alone=True,
    bundle_of=4,
)

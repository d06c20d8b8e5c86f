"""Try the oracle on generated functions, and print what it lets through or accuses.

python -m tests.conformance.oracle.generated.sweep gaps 0 200
python -m tests.conformance.oracle.generated.sweep ill-conditioned 0 200
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor

from tests.conformance.oracle.generated.evaluations import evaluations
from tests.conformance.oracle.generated.gaps import gap_function
from tests.conformance.oracle.generated.ill_conditioned import ill_conditioned
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.compare import judge
from torchstone.conformance.oracle.finding import Finding, Observed
from torchstone.conformance.oracle.reference.runs import Referee
from torchstone.conformance.program.program import Program
from torchstone.conformance.program.tensor_storage import copy_tensors

EVERY = 20
"""After how many functions the sweep says how far it is."""


def finding_of(program: Program, inputs: tuple[Tensor, ...], answer: Tensor, referee: Referee | None = None) -> Finding:
    """What the oracle says of a backend that gives ``answer``."""
    given = copy_tensors(inputs)
    eager, backend = Observed(program(*given), given), Observed(answer, copy_tensors(inputs))
    return judge(program, inputs, eager, backend, referee=referee)


def absolved(seed: int, count: int = 4) -> Iterator[tuple[float, Finding]]:
    """The answers in gaps of a seed's function that are no mismatch."""
    gap, rng = gap_function(seed), random.Random(seed)
    eager, referee = gap.program(gap.x.clone()), Referee(gap.program, (gap.x,))
    for value in gap.answers_in_gaps(rng, count):
        answer = eager.clone()
        answer[rng.randrange(gap.x.numel())] = value
        finding = finding_of(gap.program, (gap.x,), answer, referee)
        if finding.outcome is not Outcome.MISMATCH:
            yield value, finding


def accused(program: Program, inputs: tuple[Tensor, ...], seed: int) -> Iterator[tuple[str, Finding]]:
    """The right evaluations of a program that are a mismatch."""
    referee = Referee(program, inputs)
    for name, evaluation in evaluations(program, inputs[0].dtype, random.Random(seed)):
        finding = finding_of(program, inputs, evaluation(*copy_tensors(inputs)), referee)
        if finding.outcome is Outcome.MISMATCH:
            yield name, finding


def main() -> None:
    """Sweep the seeds of the command line."""
    kind, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    found: Counter[str] = Counter()
    started = time.perf_counter()
    for seed in range(first, last):
        if kind == "gaps":
            gap = gap_function(seed)
            family, program, inputs = gap.family, gap.program, (gap.x,)
            for value, finding in absolved(seed):
                found[f"absolved {family}"] += 1
                print(seed, family, gap.x.dtype, value, finding.outcome, finding.message, flush=True)
        else:
            case = ill_conditioned(seed)
            family, program, inputs = case.family, case.program, case.inputs
        for name, finding in accused(program, inputs, seed):
            found[f"accused {family}"] += 1
            print(seed, family, inputs[0].dtype, "ACCUSED", name, finding.message[:200], flush=True)
        if (seed + 1 - first) % EVERY == 0 or seed + 1 == last:
            spent = time.perf_counter() - started
            print(f"{seed + 1 - first} functions, {spent:.0f} s:", dict(found), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()

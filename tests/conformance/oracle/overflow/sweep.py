"""Try the oracle on generated programs near the end of the range, and print what it accuses or lets through.

python -m tests.conformance.oracle.overflow.sweep 0 200
"""

from __future__ import annotations

import random
import sys
import warnings
from collections import Counter
from collections.abc import Iterator

import torch

from tests.conformance.oracle.generated.sweep import finding_of
from tests.conformance.oracle.overflow.programs import Generated, generated, right_answers, wrong_answers
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.finding import Finding


def accused(case: Generated) -> Iterator[tuple[str, Finding]]:
    """The right answers that are a mismatch."""
    for name, answer in right_answers(case):
        finding = finding_of(case.program, case.inputs, answer)
        if finding.outcome is Outcome.MISMATCH:
            yield name, finding


def absolved(case: Generated, seed: int) -> Iterator[tuple[str, Finding]]:
    """The wrong answers that are none."""
    eager = case.program(*case.inputs)
    for name, answer in wrong_answers(case, eager, random.Random(seed)):
        finding = finding_of(case.program, case.inputs, answer)
        if finding.outcome is not Outcome.MISMATCH:
            yield name, finding


def main() -> None:
    """Sweep the seeds of the command line."""
    first, last = int(sys.argv[1]), int(sys.argv[2])
    found: Counter[str] = Counter()
    for seed in range(first, last):
        case = generated(seed)
        found["programs"] += 1
        found["right"] += sum(1 for _ in right_answers(case))
        found["wrong"] += sum(1 for _ in wrong_answers(case, case.program(*case.inputs), random.Random(seed)))
        for kind, pairs in (("ACCUSED", accused(case)), ("ABSOLVED", absolved(case, seed))):
            for name, finding in pairs:
                found[kind] += 1
                found[f"{kind} {case.family}"] += 1
                print(
                    seed,
                    case.family,
                    case.inputs[0].dtype,
                    kind,
                    name,
                    finding.message[:150],
                    finding.evidence.get("rule"),
                )
    print(dict(found))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    main()

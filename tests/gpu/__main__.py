"""All that needs a GPU, and one file of what came of it: ``python tests/gpu [STEP …]``.

Where there is no GPU, or no TensorRT, the file says which steps were not run and why. Exit code 1 if a step found
failures or died, else 0.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from results import report
from running import ROOT, Budget, run
from steps import STEPS


def main(argv: Sequence[str] | None = None) -> int:
    """Run the steps asked for, tell of each as it ends, and of all together."""
    parser = argparse.ArgumentParser(prog="python tests/gpu", description=__doc__)
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"{', '.join(step.name for step in STEPS)}  [all]")
    parser.add_argument(
        "--out", type=Path, default=ROOT / ".torchstone" / "gpu", help="folder of results.json and logs"
    )
    parser.add_argument("--time", type=float, default=1800.0, help="seconds for all steps together  [1800]")
    parser.add_argument("--jobs", "-j", default="auto", help="worker processes")
    parser.add_argument("--options", default="--limit 2", help='options of `torchstone run`  ["--limit 2"]')
    parser.add_argument("--list", action="store_true", help="list the steps, and what they lack here")
    asked = parser.parse_args(argv)
    if unknown := set(asked.steps) - {step.name for step in STEPS}:
        parser.error(f"no step {', '.join(sorted(unknown))}: there are {', '.join(step.name for step in STEPS)}")
    steps = [step for step in STEPS if not asked.steps or step.name in asked.steps]
    if asked.list:
        print("\n".join(f"{step.name}\t{step.lacking() or 'can run'}" for step in steps).expandtabs(12))
        return 0
    asked.out.mkdir(parents=True, exist_ok=True)
    budget = Budget(asked.time, sum(step.share for step in steps if not step.lacking()))
    results = []
    for step in steps:
        results.append(run(step, asked.out.resolve(), budget, asked.jobs, asked.options.split()))
        print(results[-1].line(), flush=True)
        report(results, asked.out)  # as it stands: a machine that is taken back leaves what was done
    print(f"\n{report(results, asked.out)}")
    return 0 if all(result.well for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())

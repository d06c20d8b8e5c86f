"""How long the fuzzer takes to find a bug in each of twelve new ops: six it was developed on, six held out.

Half of the ops have no sample function. A bug is found with the first wrong result that is reduced. The time is that of
the command: learning what the op takes, looking at its promises, and the cases on the backend.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUGS = {
    "tests.new_ops": {
        "rounds_integers": "newops::mean_of_two",
        "loses_the_last": "newops::shifted",
        "ignores_strides": "newops::pair_sums",
        "caps_early": "newops::soft_cap",
        "misses_the_write": "newops::accumulate",
        "drops_nan": "newops::reduced",
    },
    "tests.new_ops_held_out": {
        "adds_a_dim": "heldout::clip_norm",
        "copies": "heldout::every_other",
        "loses_the_sign": "heldout::huber",
        "keeps_the_size": "heldout::windows",
        "wraps": "heldout::dot_last",
        "races": "heldout::scatter_mean",
    },
}
"""Module, backend in it, op."""


def find(module: str, backend: str, name: str, seconds: float) -> str:
    """What was found first, and when; empty where nothing was."""
    from torchstone.conformance.custom import registration, source
    from torchstone.fuzz.alone import run_alone
    from torchstone.fuzz.campaign import CampaignOptions, Tally

    op, started = registration.ask(name), time.monotonic()

    def stop(tally: Tally) -> None:
        if any(finding.signature.outcome == "mismatch" for finding in tally.findings.ranked()):
            raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as folder:
        source.FOLDER = Path(folder) / "ops"
        plan = CampaignOptions(f"{module}:{backend}", seconds, 0, Path(folder), jobs=2, reduce_seconds=10.0)
        report = run_alone(plan, op.name, progress=stop)
    wrong = [finding for finding in report.tally.findings.ranked() if finding.signature.outcome == "mismatch"]
    taken = time.monotonic() - started
    return f"{taken:5.0f} s  case {report.tally.tried:4}  {wrong[0].signature}" if wrong else ""


def main() -> None:
    """Print a line for each bug, and how many were found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time", type=float, default=120.0, help="seconds for each bug")
    parser.add_argument("--bug", action="append", help="only this backend; repeatable")
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from torchstone.conformance.custom import registration

    found = 0
    chosen = [(m, b, op) for m, rows in BUGS.items() for b, op in rows.items() if not given.bug or b in given.bug]
    for module, backend, op in chosen:
        registration.load_modules([module])
        line = find(module, backend, op, given.time)
        samples = "given  " if registration.ask(op).sample else "learned"
        print(f"{backend:18} {op:22} {samples} {line or 'not found'}", flush=True)
        found += bool(line)
    print(f"{found} of {len(chosen)} found")


if __name__ == "__main__":
    main()

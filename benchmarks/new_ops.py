"""How long the fuzzer takes to find a bug in each of twenty-four new ops: eighteen it was developed on, six held out.

Half of the ops have no sample function. A bug is found with the first wrong result that is reduced. The time is that of
the command: learning what the op takes, looking at its promises, and the cases on the backend. With ``--right`` the
backend has no bug, and whatever is found is a false alarm.
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
    "tests.new_ops_by_signature": {
        "keeps_the_dtype": "signatures::weighted",
        "takes_the_first": "signatures::interleave",
        "reads_in_a_row": "signatures::tile_sum",
        "adds_a_dim": "signatures::bounds",
        "is_zero_of_nothing": "signatures::log_mean_exp",
        "loses_nan": "signatures::edge",
        "copies_one": "signatures::halves",
        "misses_one_write": "signatures::step_",
        "does_not_conjugate": "signatures::rotate",
        "divides_by_the_first": "signatures::centered",
        "wraps": "signatures::energy",
        "loses_one_in_five": "signatures::histogram",
    },
}
"""Module, backend in it, op."""
RIGHT = {
    "tests.new_ops": "tests.new_ops:changes_nothing",
    "tests.new_ops_held_out": "tests.new_ops:changes_nothing",
    "tests.new_ops_by_signature": "tests.new_ops_by_signature:right",
}
"""The backend without a bug for a module's ops."""


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


def accuse(module: str, name: str, seconds: float) -> list[str]:
    """What a backend without a bug, and the op, are accused of, alone and among others."""
    from torchstone.conformance.custom import registration, source
    from torchstone.fuzz.campaign import CampaignOptions
    from torchstone.fuzz.session import ask_alone

    with tempfile.TemporaryDirectory() as folder:
        source.FOLDER = Path(folder) / "ops"
        plan = CampaignOptions(RIGHT[module], seconds, 0, Path(folder) / "out", jobs=2, reduce_seconds=10.0)
        (asked,) = ask_alone(plan, [registration.ask(name).name], lambda tally: None)
    report = asked.report
    found = [f"{one.signature} in {one.best.id}: {one.verdict.message[:120]}" for one in report.findings]
    return found + [f"{one.check} of {one.case}: {one.message[:120]}" for one in report.complaints if one.blame]


def main() -> None:
    """Print a line for each bug, and how many were found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time", type=float, default=120.0, help="seconds for each bug")
    parser.add_argument("--bug", action="append", help="only this backend; repeatable")
    parser.add_argument("--module", action="append", choices=list(BUGS), help="only its ops; repeatable")
    parser.add_argument("--right", action="store_true", help="a backend without the bug: whatever is found is wrong")
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from torchstone.conformance.custom import registration

    found = 0
    modules = {module: rows for module, rows in BUGS.items() if not given.module or module in given.module}
    chosen = [(m, b, op) for m, rows in modules.items() for b, op in rows.items() if not given.bug or b in given.bug]
    for module, backend, op in chosen:
        registration.load_modules([module])
        if given.right:
            accused = accuse(module, op, given.time)
            print(f"{op:22} {len(accused)} false alarms", *accused, sep="\n    ", flush=True)
            found += len(accused)
            continue
        line = find(module, backend, op, given.time)
        samples = "given  " if registration.ask(op).sample else "learned"
        print(f"{backend:18} {op:22} {samples} {line or 'not found'}", flush=True)
        found += bool(line)
    print(f"{found} false alarms, {len(chosen)} ops" if given.right else f"{found} of {len(chosen)} found")


if __name__ == "__main__":
    main()

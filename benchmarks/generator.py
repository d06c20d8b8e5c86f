"""What the fuzzer's generator makes in a given time, alone: programs a second, how many are valid, what they reach."""

from __future__ import annotations

import argparse
import time


def main() -> None:
    """Print a line for each tenth of the time, and the rates at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--time", type=float, default=60.0, help="seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-ops", type=int, default=5, help="calls in a program, at most")
    parser.add_argument("--programs", type=int, help="stop after this many: rates rise as samples are kept")
    parser.add_argument(
        "--guided", action="store_true", help="draw what was not there yet more often, as a campaign does"
    )
    given = parser.parse_args()

    import torch

    from torchstone.fuzz.generator.catalog import all_rules
    from torchstone.fuzz.generator.extend import Drafts
    from torchstone.fuzz.generator.generate import nth_program
    from torchstone.fuzz.generator.novelty import Novelty
    from torchstone.fuzz.vocabulary import Vocabulary

    torch.set_num_threads(1)
    rules, reached, drafts = all_rules(), Vocabulary(), Drafts()
    novelty = Novelty() if given.guided else None
    started, worked, told = time.monotonic(), time.process_time(), 0.0
    while (seconds := time.monotonic() - started) < given.time and drafts.programs_kept != given.programs:
        reached.add(
            nth_program(given.seed, drafts.programs_kept, max_ops=given.max_ops, drafts=drafts, novelty=novelty)
        )
        if seconds - told >= given.time / 10:
            told = seconds
            print(f"{seconds:5.0f} s  {drafts.programs_kept:7} programs  {reached}", flush=True)
    worked = time.process_time() - worked
    print(f"{drafts.programs_kept / worked:.0f} programs a second of the processor, of {len(rules)} ops: {reached}")
    programs, calls = drafts.programs_kept / drafts.programs, drafts.calls_kept / drafts.calls
    print(f"valid: {programs:.1%} of programs, {calls:.1%} of calls")


if __name__ == "__main__":
    main()

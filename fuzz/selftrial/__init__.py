"""The self-trial: each mutant of the built-in compiler against the suite and the fuzzer, as a user would run them.

The ops of a mutant decide what is tried: their samples in every dtype and in variants, what they have to refuse, and
random programs that call them. The first failure ends the trial if the compiler without the mutant passes the same
case. If that fails too, the failure is a false alarm.
"""

from torchstone.fuzz.selftrial.cases import trial_cases
from torchstone.fuzz.selftrial.results import (
    TrialResult,
    append_to_journal,
    markdown_tables,
    read_journal,
    table_rows,
)
from torchstone.fuzz.selftrial.trial import SelfTrial, run_trials

__all__ = [
    "SelfTrial",
    "TrialResult",
    "append_to_journal",
    "markdown_tables",
    "read_journal",
    "run_trials",
    "table_rows",
    "trial_cases",
]

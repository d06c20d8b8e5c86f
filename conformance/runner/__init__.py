"""The isolated runner: a pool of spawned worker processes, and the run that feeds it."""

from torchstone.conformance.runner.pool import Pool, Result
from torchstone.conformance.runner.run import Summary, run

__all__ = ["Pool", "Result", "Summary", "run"]

"""The isolated runner: a pool of worker processes, and the run that feeds it."""

from torchstone.conformance.runner.pool import Pool
from torchstone.conformance.runner.retry import Result
from torchstone.conformance.runner.run import Summary, run

__all__ = ["Pool", "Result", "Summary", "run"]

"""The isolated runner: a pool of worker processes, and the run that feeds it."""

from torchstone.conformance.runner.pool import Pool
from torchstone.conformance.runner.retry import CaseResult
from torchstone.conformance.runner.run import RunSummary, run_cases

__all__ = ["CaseResult", "Pool", "RunSummary", "run_cases"]

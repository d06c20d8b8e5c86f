"""What a backend is known to fail, and why: TOML files that a run is held against (docs/expectations.md)."""

from torchstone.conformance.expectations.baseline import (
    Finding,
    Judgement,
    Result,
    check_backends,
    check_complete,
    judge,
    judged,
)
from torchstone.conformance.expectations.parse import ExpectationError, load, read
from torchstone.conformance.expectations.rows import Expectations, Row
from torchstone.conformance.expectations.update import Update, new_document, update

__all__ = [
    "ExpectationError",
    "Expectations",
    "Finding",
    "Judgement",
    "Result",
    "Row",
    "Update",
    "check_backends",
    "check_complete",
    "judge",
    "judged",
    "load",
    "new_document",
    "read",
    "update",
]

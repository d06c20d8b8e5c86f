"""What a backend is known to fail, and why: TOML files that a run is held against (docs/expectations.md)."""

from torchstone.conformance.expectations.baseline import (
    CheckedVerdict,
    ExpectationReport,
    StoredVerdict,
    check_complete,
    check_run,
    checked_verdicts,
    files_by_backend,
)
from torchstone.conformance.expectations.expectation import Expectation, ExpectationFile
from torchstone.conformance.expectations.parse import ExpectationError, load_expectations, read_document
from torchstone.conformance.expectations.update import Update, new_document, update_document

__all__ = [
    "CheckedVerdict",
    "Expectation",
    "ExpectationError",
    "ExpectationFile",
    "ExpectationReport",
    "StoredVerdict",
    "Update",
    "check_complete",
    "check_run",
    "checked_verdicts",
    "files_by_backend",
    "load_expectations",
    "new_document",
    "read_document",
    "update_document",
]

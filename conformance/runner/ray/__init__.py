"""TODO conformance/runner/ray."""

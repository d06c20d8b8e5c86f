"""TODO conformance/selection."""

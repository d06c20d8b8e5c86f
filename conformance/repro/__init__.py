"""TODO conformance/repro."""

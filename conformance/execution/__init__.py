"""TODO conformance/execution."""

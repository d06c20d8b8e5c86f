"""TODO conformance/backends/adapters."""

"""TODO conformance/program."""

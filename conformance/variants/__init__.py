"""TODO conformance/variants."""

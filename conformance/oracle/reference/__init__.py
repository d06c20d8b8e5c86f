"""TODO conformance/oracle/reference."""

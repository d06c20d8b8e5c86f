"""TODO conformance/oracle/overflow."""

"""TODO conformance/oracle/ambiguity."""

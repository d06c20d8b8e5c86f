"""TODO conformance/oracle/random."""

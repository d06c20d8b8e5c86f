"""TODO conformance/oracle/exactness."""

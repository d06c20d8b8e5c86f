"""TODO conformance/oracle/perturbation."""

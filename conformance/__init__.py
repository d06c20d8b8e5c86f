"""Cases, the backends on trial, the oracle, the isolated runner and the store of verdicts."""

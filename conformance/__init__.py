"""Cases, the backends under test, the oracle, the isolated runner and the store of verdicts."""

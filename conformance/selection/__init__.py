"""Which cases a run asks."""

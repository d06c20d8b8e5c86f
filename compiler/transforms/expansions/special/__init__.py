"""TODO compiler/transforms/expansions/special."""

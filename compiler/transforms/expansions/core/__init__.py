"""TODO compiler/transforms/expansions/core."""

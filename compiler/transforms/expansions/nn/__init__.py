"""TODO compiler/transforms/expansions/nn."""

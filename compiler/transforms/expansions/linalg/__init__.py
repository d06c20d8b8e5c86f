"""TODO compiler/transforms/expansions/linalg."""

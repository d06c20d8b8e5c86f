"""TODO compiler/transforms/expansions/indexing."""

"""TODO fuzz/generator."""

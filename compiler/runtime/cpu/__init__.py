"""TODO compiler/runtime/cpu."""

"""TODO compiler/capture/symbolic."""

"""TODO compiler/capture/export."""

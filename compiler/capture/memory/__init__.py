"""TODO compiler/capture/memory."""

"""TODO compiler/capture/trace."""

"""torchstone conformance."""

"""torchstone conformance/sources."""

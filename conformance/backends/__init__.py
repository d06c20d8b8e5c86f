"""torchstone conformance/backends."""

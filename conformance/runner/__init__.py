"""torchstone conformance/runner."""

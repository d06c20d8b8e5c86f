"""torchstone reports."""

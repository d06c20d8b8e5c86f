"""torchstone fuzz."""

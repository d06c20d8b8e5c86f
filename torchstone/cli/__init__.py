"""torchstone torchstone/cli."""

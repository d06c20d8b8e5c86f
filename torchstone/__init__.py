"""torchstone torchstone."""

"""torchstone compiler/contract."""

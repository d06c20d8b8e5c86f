"""torchstone compiler/ops."""

"""torchstone compiler/runtime."""

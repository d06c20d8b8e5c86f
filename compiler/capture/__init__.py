"""torchstone compiler/frontends."""

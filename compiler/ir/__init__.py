"""torchstone compiler/ir."""

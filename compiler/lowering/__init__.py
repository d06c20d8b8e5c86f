"""torchstone compiler/lowering."""

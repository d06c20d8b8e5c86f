"""torchstone compiler/lowering/tosa."""

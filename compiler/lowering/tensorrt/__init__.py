"""torchstone compiler/lowering/tensorrt."""

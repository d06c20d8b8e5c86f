"""torchstone compiler/lowering/linalg."""

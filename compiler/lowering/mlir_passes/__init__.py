"""TODO compiler/lowering/mlir_passes."""

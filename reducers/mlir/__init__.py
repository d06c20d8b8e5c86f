"""Shrinking an MLIR module and a pass pipeline that crash, fail, hang, or change what the module computes."""

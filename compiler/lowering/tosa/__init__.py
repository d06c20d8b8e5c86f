"""FlatIR -> the TOSA dialect, validated, then upstream's lowering to linalg and the CPU runtime."""

from torchstone.compiler.lowering.target import Target
from torchstone.compiler.lowering.tosa.program import lower, takes

TARGET = Target("tosa", takes, lower)

__all__ = ["TARGET"]

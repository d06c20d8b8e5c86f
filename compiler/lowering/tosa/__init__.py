"""FlatIR -> the TOSA dialect, validated, then upstream's lowering to linalg and the CPU runtime."""

from torchstone.compiler.lowering.mlir_passes.cpu import CPU
from torchstone.compiler.lowering.target import Target
from torchstone.compiler.lowering.tosa.program import lower, prepare, takes
from torchstone.compiler.lowering.tosa.validate import TOSA_TO_LINALG

TARGET = Target("tosa", takes, lower, schedules=True, pipelines=(TOSA_TO_LINALG, CPU), prepare=prepare)

__all__ = ["TARGET"]

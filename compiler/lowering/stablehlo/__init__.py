"""FlatIR -> StableHLO, verified, then upstream's lowering to linalg and the CPU runtime."""

from torchstone.compiler.lowering.mlir_passes.cpu import CPU
from torchstone.compiler.lowering.stablehlo.program import lower, lower_to_interpreter, takes
from torchstone.compiler.lowering.stablehlo.to_linalg import STABLEHLO_TO_LINALG
from torchstone.compiler.lowering.target import Target

TARGET = Target("stablehlo", takes, lower, schedules=True, pipelines=(STABLEHLO_TO_LINALG, CPU))
INTERPRETER = Target("stablehlo-interpreter", takes, lower_to_interpreter, schedules=True)

__all__ = ["INTERPRETER", "TARGET"]

"""FlatIR -> StableHLO, verified, and three that run it: our runtime, StableHLO's interpreter, and XLA."""

from torchstone.compiler.lowering.mlir_passes.cpu import CPU
from torchstone.compiler.lowering.stablehlo.program import lower, lower_to_interpreter, lower_to_xla, takes
from torchstone.compiler.lowering.stablehlo.to_linalg import STABLEHLO_TO_LINALG
from torchstone.compiler.lowering.target import Target

TARGET = Target("stablehlo", takes, lower, schedules=True, pipelines=(STABLEHLO_TO_LINALG, CPU))
INTERPRETER = Target("stablehlo-interpreter", takes, lower_to_interpreter, schedules=True)
XLA = Target("stablehlo-xla", takes, lower_to_xla, schedules=True)

__all__ = ["INTERPRETER", "TARGET", "XLA"]

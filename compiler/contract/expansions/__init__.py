"""ATen -> FlatIR, one op family a file. PyTorch's semantics are written here, once for all targets."""

from torchstone.compiler.contract.expansions import elementwise
from torchstone.compiler.contract.rules import expands as EXPANSIONS

FAMILIES = (elementwise,)

__all__ = ["EXPANSIONS", "FAMILIES"]

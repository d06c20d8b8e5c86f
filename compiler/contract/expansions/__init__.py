"""ATen -> FlatIR, one op family a file. PyTorch's semantics are written here, once for all targets."""

from torchstone.compiler.contract.expansions import (
    activation,
    comparison,
    creation,
    elementwise,
    join,
    matmul,
    normalization,
    power,
    reduction,
    view,
)
from torchstone.compiler.contract.rules import expands as EXPANSIONS

FAMILIES = (elementwise, power, comparison, activation, reduction, normalization, view, join, creation, matmul)

__all__ = ["EXPANSIONS", "FAMILIES"]

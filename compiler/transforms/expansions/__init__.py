"""ATen -> FlatIR, one op family a file. PyTorch's semantics are written here, once for all targets."""

from torchstone.compiler.transforms.expansions.core import (
    bits,
    comparison,
    creation,
    elementwise,
    join,
    ordering,
    power,
    reduction,
    scan,
    view,
)
from torchstone.compiler.transforms.expansions.indexing import index, scatter, searching, segment
from torchstone.compiler.transforms.expansions.linalg import distance, fourier, masks, matmul
from torchstone.compiler.transforms.expansions.nn import (
    activation,
    adaptive,
    attention,
    convolution,
    embedding,
    folding,
    fractional,
    grid_sampler,
    loss,
    normalization,
    padding,
    pooling,
    quantization,
    upsampling,
)
from torchstone.compiler.transforms.expansions.special import functions, gamma, incomplete, polynomials
from torchstone.compiler.transforms.rules import expands as EXPANSIONS

FAMILIES = (
    elementwise, power, comparison, activation, reduction, normalization, view, join, creation, matmul, attention,
    convolution, folding, pooling, adaptive, padding, fractional, upsampling, fourier, distance, functions,
    gamma, incomplete, polynomials, scan, ordering, searching, bits, index, scatter,
    embedding, grid_sampler, masks, loss, segment, quantization,
)  # fmt: skip

__all__ = ["EXPANSIONS", "FAMILIES"]

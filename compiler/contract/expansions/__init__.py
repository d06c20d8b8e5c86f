"""ATen -> FlatIR, one op family a file. PyTorch's semantics are written here, once for all targets."""

from torchstone.compiler.contract.expansions import (
    activation,
    adaptive,
    attention,
    bits,
    comparison,
    convolution,
    creation,
    distance,
    elementwise,
    embedding,
    folding,
    fourier,
    fractional,
    grid_sampler,
    indexing,
    join,
    loss,
    masks,
    matmul,
    normalization,
    ordering,
    padding,
    pooling,
    power,
    quantization,
    reduction,
    scan,
    scatter,
    searching,
    segment,
    special_functions,
    special_gamma,
    special_incomplete,
    special_polynomials,
    unpooling,
    upsampling,
    view,
)
from torchstone.compiler.contract.rules import expands as EXPANSIONS

FAMILIES = (
    elementwise, power, comparison, activation, reduction, normalization, view, join, creation, matmul, attention,
    convolution, folding, pooling, adaptive, padding, fractional, upsampling, fourier, distance, special_functions,
    special_gamma, special_incomplete, special_polynomials, scan, ordering, searching, bits, indexing, scatter,
    embedding, grid_sampler, masks, loss, segment, unpooling, quantization,
)  # fmt: skip

__all__ = ["EXPANSIONS", "FAMILIES"]

"""ATen -> FlatIR, one op family a file. PyTorch's semantics are written here, once for all targets."""

from torchstone.compiler.transforms.expansions.nn import activation
from torchstone.compiler.transforms.expansions.nn import adaptive
from torchstone.compiler.transforms.expansions.nn import attention
from torchstone.compiler.transforms.expansions.core import bits
from torchstone.compiler.transforms.expansions.core import comparison
from torchstone.compiler.transforms.expansions.nn import convolution
from torchstone.compiler.transforms.expansions.core import creation
from torchstone.compiler.transforms.expansions.linalg import distance
from torchstone.compiler.transforms.expansions.core import elementwise
from torchstone.compiler.transforms.expansions.nn import embedding
from torchstone.compiler.transforms.expansions.nn import folding
from torchstone.compiler.transforms.expansions.linalg import fourier
from torchstone.compiler.transforms.expansions.nn import fractional
from torchstone.compiler.transforms.expansions.nn import grid_sampler
from torchstone.compiler.transforms.expansions.indexing import index
from torchstone.compiler.transforms.expansions.core import join
from torchstone.compiler.transforms.expansions.nn import loss
from torchstone.compiler.transforms.expansions.linalg import masks
from torchstone.compiler.transforms.expansions.linalg import matmul
from torchstone.compiler.transforms.expansions.nn import normalization
from torchstone.compiler.transforms.expansions.core import ordering
from torchstone.compiler.transforms.expansions.nn import padding
from torchstone.compiler.transforms.expansions.nn import pooling
from torchstone.compiler.transforms.expansions.core import power
from torchstone.compiler.transforms.expansions.nn import quantization
from torchstone.compiler.transforms.expansions.core import reduction
from torchstone.compiler.transforms.expansions.core import scan
from torchstone.compiler.transforms.expansions.indexing import scatter
from torchstone.compiler.transforms.expansions.indexing import searching
from torchstone.compiler.transforms.expansions.indexing import segment
from torchstone.compiler.transforms.expansions.special import functions
from torchstone.compiler.transforms.expansions.special import gamma
from torchstone.compiler.transforms.expansions.special import incomplete
from torchstone.compiler.transforms.expansions.special import polynomials
from torchstone.compiler.transforms.expansions.nn import unpooling
from torchstone.compiler.transforms.expansions.nn import upsampling
from torchstone.compiler.transforms.expansions.core import view
from torchstone.compiler.transforms.rules import expands as EXPANSIONS

FAMILIES = (
    elementwise, power, comparison, activation, reduction, normalization, view, join, creation, matmul, attention,
    convolution, folding, pooling, adaptive, padding, fractional, upsampling, fourier, distance, functions,
    gamma, incomplete, polynomials, scan, ordering, searching, bits, index, scatter,
    embedding, grid_sampler, masks, loss, segment, unpooling, quantization,
)  # fmt: skip

__all__ = ["EXPANSIONS", "FAMILIES"]

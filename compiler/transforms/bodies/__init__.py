"""The bodies of composites: what each is made of, for targets that do not have it whole. One family a file."""

from torchstone.compiler.transforms.bodies import activation, convolution, normalization, pooling
from torchstone.compiler.transforms.rules import body as BODIES

FAMILIES = (activation, convolution, normalization, pooling)

__all__ = ["BODIES", "FAMILIES"]

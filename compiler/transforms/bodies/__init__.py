"""The bodies of composites: what each is made of, for targets that do not have it whole. One family a file."""

from torchstone.compiler.transforms.bodies import activation, convolution, pooling
from torchstone.compiler.transforms.rules import body as BODIES

FAMILIES = (activation, convolution, pooling)

__all__ = ["BODIES", "FAMILIES"]

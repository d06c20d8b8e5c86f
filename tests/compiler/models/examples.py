"""How the models of the suite are trained here, and how their batch is dynamic."""

from typing import Any

import torch
from torch.utils import _pytree as pytree

from torchstone.conformance.sources.models.examples import EXAMPLES, Example

__all__ = ["EXAMPLES", "dynamic", "loss_of"]


def dynamic(example: Example) -> Any:
    """Return what torch.export takes for a batch of any size."""
    batch = torch.export.Dim("batch", min=2, max=64)
    return pytree.tree_map(lambda dim: {dim: batch}, example.batch_dims)


def loss_of(result: Any) -> torch.Tensor:
    """Return one number that every float among the results has a part in."""
    leaves = [leaf for leaf in pytree.tree_leaves(result) if leaf.is_floating_point()]
    losses = [(leaf * torch.linspace(-1, 1, leaf.numel(), dtype=leaf.dtype).view_as(leaf)).square() for leaf in leaves]
    return torch.stack([loss.mean() for loss in losses]).sum()

"""The models with inputs for any batch size, how their batch is dynamic, and a loss to train them by."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from tests.compiler.models.bert import Bert
from tests.compiler.models.gpt import GPT
from tests.compiler.models.lstm import CharLSTM
from tests.compiler.models.mlp import MLP
from tests.compiler.models.resnet import ResNet
from tests.compiler.models.unet import UNet


@dataclass(frozen=True)
class Example:
    """``batch_dims`` has the dim of each leaf of the inputs that is the batch, None where there is none."""

    make: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[Any, ...]]
    batch_dims: Any

    def model(self) -> nn.Module:
        """Return the model, the same numbers each time. In double precision, where sums in any order agree."""
        torch.manual_seed(0)
        return self.make().double()

    def args(self, batch: int) -> tuple[Any, ...]:
        torch.manual_seed(batch)
        return self.inputs(batch)

    def dynamic(self) -> Any:
        batch = torch.export.Dim("batch", min=2, max=64)
        return pytree.tree_map(lambda dim: {dim: batch}, self.batch_dims)


def image(size: int) -> Callable[[int], tuple[Any, ...]]:
    return lambda batch: (torch.randn(batch, 3, size, size, dtype=torch.float64),)


def sentences(batch: int) -> tuple[Any, ...]:
    tokens = torch.randint(1, 32, (batch, 7))
    tokens[1:, 5:] = 0
    return tokens, torch.randint(0, 2, (batch, 7))


def cached(batch: int) -> tuple[Any, ...]:
    cache = [(torch.randn(batch, 2, 5, 8).double(), torch.randn(batch, 2, 5, 8).double())]
    return torch.randint(0, 32, (batch, 1)), cache


def characters(batch: int) -> tuple[Any, ...]:
    state = (torch.randn(2, batch, 8, dtype=torch.float64), torch.randn(2, batch, 8, dtype=torch.float64))
    return torch.randint(0, 12, (batch, 3)), state


EXAMPLES = {
    "mlp": Example(MLP, lambda batch: (torch.randn(batch, 8, dtype=torch.float64),), (0,)),
    "resnet": Example(ResNet, image(32), (0,)),
    "bert": Example(lambda: Bert(depth=1), sentences, (0, 0)),
    "gpt": Example(lambda: GPT(depth=1), lambda batch: (torch.randint(0, 32, (batch, 6)),), (0,)),
    "gpt with cache": Example(lambda: GPT(depth=1), cached, (0, [(0, 0)])),
    "lstm": Example(CharLSTM, characters, (0, (1, 1))),
    "unet": Example(UNet, image(16), (0,)),
}


def loss_of(result: Any) -> torch.Tensor:
    """Return one number that every float among the results has a part in."""
    leaves = [leaf for leaf in pytree.tree_leaves(result) if leaf.is_floating_point()]
    losses = [(leaf * torch.linspace(-1, 1, leaf.numel(), dtype=leaf.dtype).view_as(leaf)).square() for leaf in leaves]
    return torch.stack([loss.mean() for loss in losses]).sum()

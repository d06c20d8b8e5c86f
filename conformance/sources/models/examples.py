"""The models with random weights, inputs for any batch size, and which of their dims are the batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torchstone.conformance.sources.models.bert import Bert
from torchstone.conformance.sources.models.example import Example, image
from torchstone.conformance.sources.models.gpt import GPT
from torchstone.conformance.sources.models.lstm import CharLSTM
from torchstone.conformance.sources.models.mlp import MLP
from torchstone.conformance.sources.models.resnet import ResNet
from torchstone.conformance.sources.models.unet import UNet


def _sentences(batch: int, dtype: torch.dtype) -> tuple[Any, ...]:
    tokens = torch.randint(1, 32, (batch, 7))
    tokens[1:, 5:] = 0
    return tokens, torch.randint(0, 2, (batch, 7))


def _cached(batch: int, dtype: torch.dtype) -> tuple[Any, ...]:
    cache = [(torch.randn(batch, 2, 5, 8).to(dtype), torch.randn(batch, 2, 5, 8).to(dtype))]
    return torch.randint(0, 32, (batch, 1)), cache


def _characters(batch: int, dtype: torch.dtype) -> tuple[Any, ...]:
    state = tuple(torch.randn(2, batch, 8, dtype=torch.float64).to(dtype) for _ in range(2))
    return torch.randint(0, 12, (batch, 3)), state


EXAMPLES: Mapping[str, Example] = {
    "mlp": Example(MLP, lambda batch, dtype: (torch.randn(batch, 8, dtype=torch.float64).to(dtype),), (0,)),
    "resnet": Example(ResNet, image(32), (0,)),
    "bert": Example(lambda: Bert(depth=1), _sentences, (0, 0)),
    "gpt": Example(lambda: GPT(depth=1), lambda batch, dtype: (torch.randint(0, 32, (batch, 6)),), (0,)),
    "gpt-cached": Example(lambda: GPT(depth=1), _cached, (0, [(0, 0)])),
    "lstm": Example(CharLSTM, _characters, (0, (1, 1))),
    "unet": Example(UNet, image(16), (0,)),
}

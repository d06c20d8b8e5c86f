"""A multilayer perceptron with normalization, dropout off."""

import torch
from torch import nn


class MLP(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(8, width),
            nn.BatchNorm1d(width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, 4),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)

"""U-Net's shape: two levels down by pooling, two up by transposed convolution, with skip connections."""

import torch
from torch import nn


def twice(channels_in: int, channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels_in, channels, 3, padding=1),
        nn.GroupNorm(2, channels),
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.down = nn.ModuleList([twice(3, width), twice(width, 2 * width)])
        self.bottom = twice(2 * width, 4 * width)
        self.grow = nn.ModuleList(
            [nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2), nn.ConvTranspose2d(2 * width, width, 2, stride=2)]
        )
        self.up = nn.ModuleList([twice(4 * width, 2 * width), twice(2 * width, width)])
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        skips = []
        for down in self.down:
            x = down(x)
            skips.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.bottom(x)
        for grow, up, skip in zip(self.grow, self.up, reversed(skips), strict=True):
            x = up(torch.cat([grow(x), skip], 1))
        return self.head(x)

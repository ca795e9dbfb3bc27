"""ResNet-50 in plain torch, so that the step is the same with and without torchvision."""

from __future__ import annotations

import torch
from torch import nn

WIDTH, BLOCKS, CLASSES = 64, (3, 4, 6, 3), 1000


def convolution(channels_in: int, channels: int, size: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels_in, channels, size, stride, size // 2, bias=False),
        nn.BatchNorm2d(channels),
    )


class Bottleneck(nn.Module):
    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.first = convolution(channels_in, channels, 1)
        self.second = convolution(channels, channels, 3, stride)
        self.third = convolution(channels, 4 * channels, 1)
        self.beside: nn.Module = nn.Identity()
        if stride != 1 or channels_in != 4 * channels:
            self.beside = convolution(channels_in, 4 * channels, 1, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.third(self.relu(self.second(self.relu(self.first(x)))))
        return self.relu(y + self.beside(x))


class ResNet(nn.Module):
    """As it is, ResNet-50 (the stride in the 3x3 convolution, as torchvision has it)."""

    def __init__(
        self, width: int = WIDTH, counts: tuple[int, ...] = BLOCKS, classes: int = CLASSES
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            convolution(3, width, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        blocks: list[nn.Module] = []
        channels_in = width
        for number, count in enumerate(counts):
            channels = width << number
            for position in range(count):
                stride = 2 if number and not position else 1
                blocks.append(Bottleneck(channels_in, channels, stride))
                channels_in = 4 * channels
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels_in, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))

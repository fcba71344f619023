"""Features of images: the output of one layer of a network, ready to be clustered and explained."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from neonxc.modules import check_evaluating
from neonxc.progress_bars import progress_bar

from .layers import find_module, layer_output, unwrap
from .layout import Pool, arrange, check_pool

__all__ = ["FeatureExtractor"]


class FeatureExtractor(nn.Module):
    """The output of one layer of a network; what comes after that layer is never computed.

    The extractor leaves the training mode and `requires_grad` of the network as they are. Call ``net.eval()``
    first: batch statistics and dropout make the features of an image depend on its batch. The parameters are
    attributes, too, and may be changed.

    Parameters
    ----------
    net : nn.Module
        Any network that takes a batch of images. Of `DataParallel` and `DistributedDataParallel` the network
        inside is taken.
    layer : str
        A name of `net.named_modules()`, such as ``"features.30"``; ``""`` is the network's own output. If the
        network runs the layer more than once, its first output counts.
    pool : {"avg", "class"}, optional
        ``"avg"``: the mean over all positions, features [N, d]. ``"class"``: the first token, [N, d]. None:
        features as they are, [N, d, h, w] (or [N, d], which pooling leaves alone).
    normalize : bool, default=False
        Scale the features to unit Euclidean norm along the channels (after pooling). A zero vector stays zero.
    mean, std : tuple of float, optional
        Mean and standard deviation of the images that the network was trained on, one number per channel, for
        pixels in 0..1: `preprocess` applies them, `deprocess` takes them back. Give both or neither. `forward`
        does not apply them. ``mean=(0, 0, 0), std=(1, 1, 1)`` is for a network that takes images in 0..1.
    tokens : int, optional
        For a layer of a vision transformer, which gives tokens [N, T, d]: how many of them, class and register
        tokens, come before those of the patches. ``pool=None`` then arranges the patch tokens as a map
        [N, d, h, w], and ``"avg"`` is their mean. 0 also takes a map with its channels last, [N, h, w, d].
        None: channels are dimension 1, there are no tokens.
    size : tuple of int, optional
        Height and width of the images, for a network that takes no other ones. None: any.

    Raises
    ------
    ValueError
        There is no such layer or pooling, a class token is asked for without `tokens`, or `mean` and `std` are
        not one number each per channel with `std` above 0.

    Examples
    --------
    A network of your own says what its inputs are by `mean` and `std`:

    >>> import torch
    >>> from neonxc.models import FeatureExtractor
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten())
    >>> extractor = FeatureExtractor(net, "1", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    >>> images = extractor.preprocess(torch.rand(2, 3, 6, 6))
    >>> extractor(images).shape
    torch.Size([2, 8, 4, 4])
    >>> extractor.points(images).shape
    torch.Size([32, 8])
    """

    wraps: ClassVar[str] = "net"  # rules of LRP name the layers of that network as it does itself
    settings: ClassVar[tuple[str, ...]] = ("pool", "normalize", "tokens", "mean", "std")  # what a recipe keeps
    _warned = False  # that the normalisation is unknown

    def __init__(
        self,
        net: nn.Module,
        layer: str,
        *,
        pool: Pool = None,
        normalize: bool = False,
        mean: tuple[float, ...] | None = None,
        std: tuple[float, ...] | None = None,
        tokens: int | None = None,
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        net, layer = unwrap(net, layer)
        find_module(net, layer)
        check_pool(pool, tokens)
        _check_normalisation(mean, std)
        self.net = net
        self.layer = layer
        self.pool = pool
        self.normalize = normalize
        self.mean = None if mean is None else tuple(map(float, mean))
        self.std = None if std is None else tuple(map(float, std))
        self.tokens = tokens
        self.size = size
        self._origin: tuple[str, nn.Module] | None = None  # the builder's name, and the network it built

    @property
    def recipe(self) -> dict[str, Any] | None:
        """What makes this extractor again, apart from its weights, or None if no builder made its network.

        JSON values for `neonxc.models.backbones.build`.
        """
        if self._origin is None or self._origin[1] is not self.net:
            return None
        values = {name: getattr(self, name) for name in ("layer", *self.settings)}
        lists = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
        return {"builder": self._origin[0], **lists}

    def forward(self, images: Tensor) -> Tensor:
        """Features of `images`, differentiable.

        Parameters
        ----------
        images : Tensor [N, C, H, W]
            What the network takes (see `preprocess`), on its device and in its dtype.

        Returns
        -------
        Tensor [N, d, h, w] or [N, d]
            On the device and in the dtype of the network's layer.

        Raises
        ------
        ValueError
            `images` has another number of dimensions or, where the network minds, another size; or the layer
            gives fewer than two dimensions, or no such tokens.
        TypeError, RuntimeError
            `images` or the layer's output is no tensor; the network does not run the layer.
        """
        _check_images(images)
        if self.size is not None and tuple(images.shape[2:]) != tuple(self.size):
            needed, got = (f"{height} x {width}" for height, width in (self.size, images.shape[2:]))
            raise ValueError(
                f"{type(self.net).__name__} takes images of {needed} pixels; got {got} "
                "(load_image(path, size) sets the shorter side; crop the longer one)"
            )
        check_pool(self.pool, self.tokens)
        features = layer_output(self.net, self.layer, images)
        if not isinstance(features, Tensor):
            got = type(features).__name__
            raise TypeError(f"layer {self.layer!r} gives a {got}, not a tensor; choose a layer inside it")
        if features.ndim < 2:
            shape = list(features.shape)
            raise ValueError(f"layer {self.layer!r} gives shape {shape}; needed are [N, d, ...] features")
        features = arrange(features, self.pool, self.tokens, images.shape[2:])
        return F.normalize(features, dim=1) if self.normalize else features

    def points(self, images: Tensor, batch_size: int = 32) -> Tensor:
        """Features as rows, without gradient: what a clusterer is fitted on.

        Parameters
        ----------
        images : Tensor [N, C, H, W]
            As in `forward`.
        batch_size : int, default=32
            How many images go through the network at once.

        Returns
        -------
        Tensor [n, d]
            One row per image if the features are [N, d]. Otherwise one row per position, image by image and
            row-major within each: n = N h w, and ``points.view(N, h, w, d)`` is the map again.

        Raises
        ------
        ValueError
            There are no images, `batch_size` is below 1, or the network is in training mode; and what `forward`
            raises.
        """
        _check_images(images)
        if len(images) == 0:
            raise ValueError("images is empty; needed is at least one")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1; got {batch_size}")
        check_evaluating(self.net, "net")
        chunks = progress_bar(torch.split(images, batch_size), desc="features")
        with torch.no_grad():
            return torch.cat([self(chunk).movedim(1, -1).flatten(0, -2) for chunk in chunks])

    def preprocess(self, images: Tensor) -> Tensor:
        """From images in 0..1 to what the network takes.

        Without `mean` and `std` images pass unchanged; the first time there is a warning.

        Parameters
        ----------
        images : Tensor [..., C, H, W]
            Floating point in 0..1, as `load_image` and `to_tensor` give them.

        Returns
        -------
        Tensor [..., C, H, W]
            ``(images - mean) / std`` per channel, in the same dtype and on the same device.

        Raises
        ------
        TypeError, ValueError
            No tensor; not floating point, outside 0..1 (NaN included), or another number of channels.
        """
        _check_tensor(images)
        if not images.is_floating_point():
            raise ValueError(f"images must be floating point in 0..1; got {images.dtype} (divide bytes by 255)")
        if self.mean is None or self.std is None:
            if not self._warned:
                warnings.warn(
                    "images pass unchanged, since the mean and std of the network's inputs are unknown; give "
                    "FeatureExtractor mean= and std=, most often (0.485, 0.456, 0.406) and (0.229, 0.224, 0.225), "
                    "or (0, 0, 0) and (1, 1, 1) if the network takes images in 0..1",
                    stacklevel=2,
                )
            self._warned = True
            return images
        if images.numel() and not (images.min() >= 0 and images.max() <= 1):
            low, high = images.min().item(), images.max().item()
            raise ValueError(f"images must be in 0..1; got values from {low:.4g} to {high:.4g}")
        return (images - _per_channel(self.mean, images)) / _per_channel(self.std, images)

    def deprocess(self, images: Tensor) -> Tensor:
        """Back from what the network takes, [..., C, H, W], to images in 0..1, clamped.

        The inverse of `preprocess`; the identity if `mean` is None. Another number of channels is a ValueError.
        """
        if self.mean is None or self.std is None:
            return images
        return (images * _per_channel(self.std, images) + _per_channel(self.mean, images)).clamp(0, 1)

    def pixel_range(self) -> tuple[Tensor, Tensor]:
        """What black and white pixels are for the network: the range of its inputs.

        Returns
        -------
        low, high : Tensor [C, 1, 1]
            0 and 1 as `preprocess` turns them out, on the device and in the dtype of the network's parameters.
            A ValueError says that `mean` and `std` are unknown.
        """
        if self.mean is None or self.std is None:
            raise ValueError("the range of the network's inputs needs its mean and std; they are None")
        like = next(self.net.parameters(), torch.empty(0))
        black = like.new_zeros(len(self.mean), 1, 1)
        return self.preprocess(black), self.preprocess(black + 1)

    def extra_repr(self) -> str:
        """Show the layer and what is done to its output (for ``print``)."""
        shown = f"layer={self.layer!r}, pool={self.pool!r}, normalize={self.normalize}"
        return shown if self.tokens is None else f"{shown}, tokens={self.tokens}"


def _per_channel(values: tuple[float, ...], images: Tensor) -> Tensor:
    # Without this check a grey image would silently be broadcast to three channels.
    if images.ndim < 3 or images.shape[-3] != len(values):
        raise ValueError(f"images must be [..., {len(values)}, H, W]; got shape {list(images.shape)}")
    return images.new_tensor(values)[:, None, None]


def _check_normalisation(mean: tuple[float, ...] | None, std: tuple[float, ...] | None) -> None:
    if mean is None and std is None:
        return
    if mean is None or std is None or len(mean) != len(std) or not all(value > 0 for value in std):
        raise ValueError(
            f"mean and std must be given together, one number per channel, std > 0; got {mean} and {std}"
        )


def _check_images(images: Tensor) -> None:
    _check_tensor(images)
    # Convolutions take a single [C, H, W] image too, and its rows would then pass for channels.
    if images.ndim != 4:
        raise ValueError(f"images must be [N, C, H, W]; got shape {list(images.shape)}")


def _check_tensor(images: object) -> None:
    if not isinstance(images, Tensor):
        raise TypeError(
            f"images must be a tensor; got {type(images).__name__} (load_image makes one of a file, to_tensor of "
            "a PIL image or an array of bytes, and torch.stack one of several)"
        )

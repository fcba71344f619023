"""Features of images: the output of one layer of a network, ready to be clustered and explained."""

from __future__ import annotations

import difflib
import threading
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

__all__ = ["FeatureExtractor"]

Pool = Literal["avg"] | None


class _Reached(Exception):
    """Leaves the network as soon as the wanted layer has its output, and carries that output."""

    def __init__(self, call: object, output: object) -> None:
        super().__init__()
        self.call = call
        self.output = output


class FeatureExtractor(nn.Module):
    """The output of one layer of a network; what comes after that layer is never computed.

    Neither the training mode nor `requires_grad` of the network is touched: call ``net.eval()`` first, or
    batch statistics and dropout make the features of an image depend on its batch.

    Parameters
    ----------
    net : nn.Module
        Any network that takes a batch of images.
    layer : str
        A name of `net.named_modules()`, such as ``"features.30"``; ``""`` is the network's own output. If the
        network runs the layer more than once, its first output counts.
    pool : {"avg"}, optional
        ``"avg"``: the mean over all positions, features [N, d]. None: features as they are, [N, d, h, w] (or
        [N, d], which pooling leaves alone). Channels are dimension 1.
    normalize : bool, default=False
        Scale to unit Euclidean norm along the channels (after pooling). A zero vector stays zero.
    mean, std : tuple of float, optional
        The normalisation of the network's inputs, one number per channel, for images in 0..1: `preprocess`
        and `deprocess`. Both or neither. `forward` does not apply it.

    Attributes
    ----------
    recipe : dict or None
        What `neonxc.models.backbones.build` needs to make this extractor again, apart from the weights: JSON
        values. None if the network is not one of `neonxc.models.BACKBONES`.

    Raises
    ------
    ValueError
        No such layer, no such pooling, `mean` and `std` that are no normalisation.

    Examples
    --------
    >>> import torch
    >>> from neonxc.models import FeatureExtractor
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten())
    >>> extractor = FeatureExtractor(net, "1")
    >>> extractor(torch.rand(2, 3, 6, 6)).shape
    torch.Size([2, 8, 4, 4])
    >>> extractor.points(torch.rand(2, 3, 6, 6)).shape
    torch.Size([32, 8])
    """

    def __init__(
        self,
        net: nn.Module,
        layer: str,
        *,
        pool: Pool = None,
        normalize: bool = False,
        mean: tuple[float, ...] | None = None,
        std: tuple[float, ...] | None = None,
    ) -> None:
        super().__init__()
        _check_layer(net, layer)
        if pool not in ("avg", None):
            raise ValueError(f'pool must be "avg" or None; got {pool!r}')
        _check_normalisation(mean, std)
        self.net = net
        self.layer = layer
        self.pool = pool
        self.normalize = normalize
        self.mean = mean
        self.std = std
        self.recipe: dict[str, Any] | None = None

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
            `images` has another number of dimensions, or the layer's output has fewer than two.
        TypeError
            `images` or the layer's output is no tensor.
        RuntimeError
            The network does not run the layer.
        """
        _check_images(images)
        features = self._layer_output(images)
        if not isinstance(features, Tensor):
            got = type(features).__name__
            raise TypeError(f"layer {self.layer!r} gives a {got}, not a tensor; choose a layer inside it")
        if features.ndim < 2:
            raise ValueError(
                f"layer {self.layer!r} gives shape {list(features.shape)}; needed are [N, d, ...] features"
            )
        if self.pool == "avg" and features.ndim > 2:
            features = features.flatten(2).mean(2)
        return F.normalize(features, dim=1) if self.normalize else features

    def _layer_output(self, images: Tensor) -> object:
        # The output travels in the exception, which knows its call, and the hook minds its own thread only:
        # extractors may share a network, contain each other and run at the same time.
        call, thread = object(), threading.get_ident()

        def stop(module: nn.Module, args: tuple[Any, ...], output: object) -> None:
            if threading.get_ident() == thread:
                raise _Reached(call, output)

        hook = self.net.get_submodule(self.layer).register_forward_hook(stop)
        try:
            self.net(images)
        except _Reached as reached:
            if reached.call is not call:
                raise
            return reached.output
        finally:
            hook.remove()
        raise RuntimeError(f"layer {self.layer!r} does not run when {type(self.net).__name__} is called")

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
            No images, or `batch_size` below 1; and what `forward` raises.
        """
        _check_images(images)
        if len(images) == 0:
            raise ValueError("images is empty; needed is at least one")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1; got {batch_size}")
        chunks = tqdm(torch.split(images, batch_size), desc="features", delay=2, leave=False)
        with torch.no_grad():
            return torch.cat([_rows(self(chunk)) for chunk in chunks])

    def preprocess(self, images: Tensor) -> Tensor:
        """From images in 0..1 to what the network takes; the identity if `mean` is None.

        Parameters
        ----------
        images : Tensor [..., C, H, W]
            Floating point in 0..1.

        Returns
        -------
        Tensor [..., C, H, W]
            ``(images - mean) / std`` per channel, in the same dtype and on the same device.

        Raises
        ------
        ValueError
            Not floating point, outside 0..1 (NaN included), or another number of channels.
        """
        if self.mean is None or self.std is None:
            return images
        if not images.is_floating_point():
            raise ValueError(f"images must be floating point in 0..1; got {images.dtype} (see to_tensor)")
        if images.numel() and not (images.min() >= 0 and images.max() <= 1):
            low, high = images.min().item(), images.max().item()
            raise ValueError(f"images must be in 0..1; got values from {low:.4g} to {high:.4g}")
        return (images - self._per_channel(self.mean, images)) / self._per_channel(self.std, images)

    def deprocess(self, images: Tensor) -> Tensor:
        """Back from what the network takes to images in 0..1, clamped; the identity if `mean` is None.

        Parameters
        ----------
        images : Tensor [..., C, H, W]
            Floating point, normalised as by `preprocess`.

        Returns
        -------
        Tensor [..., C, H, W]
            In the same dtype and on the same device.

        Raises
        ------
        ValueError
            Another number of channels.
        """
        if self.mean is None or self.std is None:
            return images
        restored = images * self._per_channel(self.std, images) + self._per_channel(self.mean, images)
        return restored.clamp(0, 1)

    def extra_repr(self) -> str:
        """Show the layer and what is done to its output (for ``print``)."""
        return f"layer={self.layer!r}, pool={self.pool!r}, normalize={self.normalize}"

    @staticmethod
    def _per_channel(values: tuple[float, ...], images: Tensor) -> Tensor:
        # Without this check a grey image would silently be broadcast to three channels.
        if images.ndim < 3 or images.shape[-3] != len(values):
            raise ValueError(f"images must be [..., {len(values)}, H, W]; got shape {list(images.shape)}")
        return images.new_tensor(values)[:, None, None]


def _rows(features: Tensor) -> Tensor:
    return features.movedim(1, -1).reshape(-1, features.shape[1])


def _check_layer(net: nn.Module, layer: str) -> None:
    names = [name for name, _ in net.named_modules(remove_duplicate=False)]
    if layer in names:
        return
    close = difflib.get_close_matches(str(layer), names, n=5, cutoff=0.5)
    hint = f"close matches: {', '.join(map(repr, close))}; " if close else ""
    raise ValueError(
        f"layer {layer!r} is no module of {type(net).__name__}; {hint}"
        "all names: [name for name, _ in net.named_modules()]"
    )


def _check_normalisation(mean: tuple[float, ...] | None, std: tuple[float, ...] | None) -> None:
    if mean is None and std is None:
        return
    if mean is None or std is None or len(mean) != len(std) or not all(value > 0 for value in std):
        raise ValueError(
            f"mean and std must be given together, one number per channel, std > 0; got {mean} and {std}"
        )


def _check_images(images: Tensor) -> None:
    if not isinstance(images, Tensor):
        raise TypeError(f"images must be a tensor; got {type(images).__name__} (see load_image, to_tensor)")
    # Convolutions take a single [C, H, W] image too, and its rows would then pass for channels.
    if images.ndim != 4:
        raise ValueError(f"images must be [N, C, H, W]; got shape {list(images.shape)}")

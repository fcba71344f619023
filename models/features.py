"""Feature extraction: the output of one layer of a network, in a form that can be clustered and explained.

1. x = (image - mean) / std                      preprocess; deprocess is the inverse
2. h = output of the layer for x                 ``layers.layer_output``, without the layers after it
3. a = h as a map [N, d, h, w] or pooled [N, d]  ``layers.arrange``
4. a / |a| at every position                     if `normalize`
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from neonxc.common.arguments import kind_of
from neonxc.common.modules import evaluated, may_vary, unwrapped
from neonxc.common.progress import progress_bar
from neonxc.common.warnings import warn
from neonxc.data.inputs import LOADED, check_no_bytes
from neonxc.inputs.layout import first_layer

from .images import normalization
from .layers import (
    Pool,
    arrange,
    check_pool,
    dimensions_of,
    find_module,
    in_raster_order,
    is_in_raster_order,
    layer_output,
    layout,
    vision_settings,
)

# What networks take, by the dimensions that their first convolution slides over
SHAPES = {1: ("[N, C, T]", "series"), 2: ("[N, C, H, W]", "image"), 3: ("[N, C, D, H, W]", "volume")}


class FeatureExtractor(nn.Module):
    """Extract the output of one layer of a network. The layers after it are not computed.

    The extractor does not change the training mode or `requires_grad` of the network. Call ``net.eval()`` first,
    because batch statistics and dropout would make the features of an image depend on its batch. The parameters
    are also attributes, which may be changed later.

    Parameters
    ----------
    net : nn.Module
        Network that takes a batch of images [N, C, H, W], series [N, C, T] or volumes [N, C, D, H, W]; its first
        convolution tells which. `DataParallel` and `DistributedDataParallel` are unwrapped. For a
        vision transformer of the library transformers (such as ``ViTModel``, ``Dinov2Model`` and
        ``CLIPVisionModel``, or the part ``vision_model`` of a ``CLIPModel``), `tokens` and `size` are found out.
    layer : str
        Name of the layer in `net.named_modules()`, such as ``"features.30"``; ``""`` is the output of the network
        (the ``last_hidden_state`` of a transformer). If the network calls the layer several times, the first
        output is used.
    pool : {"avg", "class"}, optional
        ``"avg"`` averages over all positions and returns features [N, d]. ``"class"`` returns the class token,
        [N, d]. None returns a feature map [N, d, h, w] (of series [N, d, t], of volumes [N, d, t, h, w]), or
        [N, d] if the layer's output has no positions.
    normalize : bool, default=False
        Whether to scale the features (after pooling) to unit Euclidean norm along the channels. A zero vector
        stays zero.
    mean, std : tuple of float, optional
        Mean and standard deviation, per channel, of the images on which the network was trained, for pixels in
        [0, 1]. `preprocess` applies them and `deprocess` reverses them; `forward` does not use them. Give both or
        neither; use ``mean=(0, 0, 0), std=(1, 1, 1)`` for a network that takes images in [0, 1].
    tokens : int, optional
        For a layer of a vision transformer with output [N, T, d]: the number of class and register tokens before
        the patch tokens. With ``pool=None``, the patch tokens are arranged as a map [N, d, h, w]; ``"avg"`` is
        their mean. 0 is also for maps whose channels come last, [N, h, w, d], and for series, [N, t, d]. By
        default it is found out from the widths and patches of the network's layers, or dimension 1 holds the
        channels.
    size : tuple of int, optional
        Height and width of the images, if the network accepts only one size. None accepts any size.
    processor : callable, optional
        Image processor of transformers, or transform of torchvision or timm, that turns a photo into inputs of the
        network. `mean` and `std` are those of what it does to colours, unless they are given; its resizing and
        cropping are not used.

    Raises
    ------
    ValueError
        If the layer or the pooling does not exist, if `mean` and `std` are not given together with one number per
        channel and `std` > 0, if `processor` does more to colours, or if a network of transformers needs texts.

    Examples
    --------
    Pass `mean` and `std` for your own network, so that `preprocess` knows its inputs:

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

    wraps: ClassVar[str] = "net"  # LRP rules refer to layers by their names in this network
    settings: ClassVar[tuple[str, ...]] = ("pool", "normalize", "tokens", "mean", "std")  # stored in a recipe
    _ordered: tuple[str, int | None] | None = None  # layer and tokens whose order was looked at
    _warned = False  # whether a warning about the missing mean and std has been issued

    def __init__(
        self,
        net: nn.Module,
        layer: str = "",
        *,
        pool: Pool = None,
        normalize: bool = False,
        mean: tuple[float, ...] | None = None,
        std: tuple[float, ...] | None = None,
        tokens: int | None = None,
        size: tuple[int, int] | None = None,
        processor: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__()
        wrapper = net
        net = unwrapped(net)
        if net is not wrapper and not hasattr(net, "module"):
            layer = f"{layer}.".removeprefix("module.").removesuffix(".")
        find_module(net, layer)
        if hasattr(net, "main_input_name"):  # a model of transformers
            tokens, size = vision_settings(net, layer, tokens, size)
        if processor is not None and mean is None and std is None:
            channels = (module.in_channels for module in net.modules() if isinstance(module, nn.Conv2d))
            mean, std = normalization(processor, next(channels, 3))
        if mean is not None:
            mean = tuple(map(float, mean))
        if std is not None:
            std = tuple(map(float, std))
        check_pool(pool, tokens)
        if len(mean or ()) != len(std or ()) or not all(value > 0 for value in std or ()):
            raise ValueError(
                f"mean and std must be given together, one number per channel, std > 0; got {mean} and {std}"
            )
        self.net = net
        self.layer = layer
        self.pool = pool
        self.normalize = normalize
        self.mean = mean
        self.std = std
        self.tokens = tokens
        self.size = size
        self._origin: tuple[str, nn.Module] | None = None  # name in `backbone`, and the network that it built

    @property
    def recipe(self) -> dict[str, Any] | None:
        """Description from which `neonxc.models.backbones.build` rebuilds this extractor without its weights.

        It consists of JSON values. None if the network was not made by :func:`neonxc.models.backbone`.
        """
        if self._origin is None:
            return None
        builder, built = self._origin
        if built is not self.net:
            return None
        recipe: dict[str, Any] = {"builder": builder}
        for name in ("layer", *self.settings):
            value = getattr(self, name)
            recipe[name] = list(value) if isinstance(value, tuple) else value
        return recipe

    if TYPE_CHECKING:  # nn.Module calls `forward`, and says of it nothing but `Any`

        def __call__(self, images: Tensor) -> Tensor:
            """Compute the features of images."""

    def forward(self, images: Tensor) -> Tensor:
        """Compute the features of images. The result is differentiable.

        Parameters
        ----------
        images : Tensor [N, C, H, W], [N, C, T] or [N, C, D, H, W]
            Inputs of the network (see `preprocess`), with its device and dtype.

        Returns
        -------
        Tensor [N, d, h, w], [N, d, t], [N, d, t, h, w] or [N, d]
            With the device and dtype of the layer's output.

        Raises
        ------
        ValueError
            If `images` has a wrong number of dimensions or a size that the network does not accept, or if the
            layer's output has fewer than two dimensions, does not match `tokens` or could be read in two ways.
        TypeError
            If `images` or the layer's output is not a tensor.
        RuntimeError
            If the network does not call the layer.
        """
        self._check_images(images)
        if self.size is not None and images.shape[2:] != tuple(self.size):
            raise ValueError(
                f"{type(self.net).__name__} takes images of {self.size[0]} x {self.size[1]} pixels; got "
                f"{images.shape[2]} x {images.shape[3]} (load_image(path, size) sets the shorter side; crop the "
                "longer side)"
            )
        check_pool(self.pool, self.tokens)
        features = layer_output(self.net, self.layer, images)
        size = images.shape[2:]
        tokens = self.tokens
        if tokens is None:
            tokens = layout(self.net, self.layer, features.shape, size)
        if tokens == 0 and features.ndim == 3 and self.pool is None:
            features = in_raster_order(self.net, self.layer, features)
        features = arrange(features, self.pool, tokens, size)
        if self.normalize:
            features = F.normalize(features, dim=1)
        return features

    def points(self, images: Tensor, batch_size: int = 32) -> Tensor:
        """Compute features as rows, without gradients, to fit a clusterer on them.

        Parameters
        ----------
        images : Tensor [N, C, H, W]
            As in `forward`.
        batch_size : int, default=32
            Number of images that go through the network at a time.

        Returns
        -------
        Tensor [n, d]
            One row per image if the features have shape [N, d]. Otherwise one row per position, image by image and
            in row-major order: n = N h w, and ``points.view(N, h, w, d)`` restores the maps of images.

        Raises
        ------
        ValueError
            If there are no images, `batch_size` is below 1 or the network varies in its training mode, and as in
            `forward`; or if the tokens of the layer, [N, T, d], are not in the order of the image, which the first
            call finds out from a few images of which a patch is changed.
        """
        self._check_images(images)
        if len(images) == 0:
            raise ValueError("images is empty; at least one image is needed")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1; got {batch_size}")
        self._check_order(images[:1])
        rows = []
        with torch.no_grad():
            for batch in progress_bar(torch.split(images, batch_size), desc="features"):
                features = evaluated(self, batch)
                rows.append(features.movedim(1, -1).flatten(0, -2))
            return torch.cat(rows)

    def preprocess(self, images: Tensor) -> Tensor:
        """Normalize images in [0, 1] to inputs of the network.

        Without `mean` and `std`, images are returned unchanged, with a warning at the first call.

        Parameters
        ----------
        images : Tensor [..., C, H, W]
            Floating-point images in [0, 1], such as the results of `load_image` and `to_tensor`.

        Returns
        -------
        Tensor [..., C, H, W]
            ``(images - mean) / std`` per channel, with the same dtype and device.

        Raises
        ------
        TypeError
            If `images` is not a tensor.
        ValueError
            If `images` is not floating point, has values outside [0, 1] or NaN, or has another number of channels.
        """
        _check_tensor(images)
        if not images.is_floating_point():
            raise ValueError(f"images must be floating point in 0..1; got {images.dtype} (divide bytes by 255)")
        scale = self._scale(images)
        if scale is None:
            if not self._warned:
                warn(
                    "images are not normalized: the mean and std of the network's inputs are unknown; pass mean= "
                    "and std= to FeatureExtractor, most often (0.485, 0.456, 0.406) and (0.229, 0.224, 0.225), or "
                    "(0, 0, 0) and (1, 1, 1) if the network takes images in 0..1",
                )
            self._warned = True
            return images
        if images.numel() and not (images.min() >= 0 and images.max() <= 1):
            raise ValueError(f"images must be in 0..1; got values from {images.min():.4g} to {images.max():.4g}")
        mean, std = scale
        return (images - mean) / std

    def deprocess(self, images: Tensor) -> Tensor:
        """Convert inputs of the network, [..., C, H, W], back to images, clamped to [0, 1].

        This is the inverse of `preprocess`, and the identity if `mean` is None. A wrong number of channels is a
        ValueError.

        Parameters
        ----------
        images : Tensor [..., C, H, W]
            Inputs of the network, as :meth:`preprocess` makes them.
        """
        scale = self._scale(images)
        if scale is None:
            return images
        mean, std = scale
        return (images * std + mean).clamp(0, 1)

    def pixel_range(self) -> tuple[Tensor, Tensor]:
        """Compute the range of the network's inputs: black and white pixels after normalization.

        Returns
        -------
        low, high : Tensor [C, 1, 1]
            The results of `preprocess` for 0 and 1, with the device and dtype of the network's parameters.

        Raises
        ------
        ValueError
            If `mean` and `std` are None.
        """
        if self.mean is None:
            raise ValueError("the range of the network's inputs is unknown, because mean and std are None")
        like = next(self.net.parameters(), torch.empty(0))
        sides = [1] * (dimensions_of(self.net) or 2)
        black = like.new_zeros(len(self.mean), *sides)
        return self.preprocess(black), self.preprocess(black + 1)

    @torch.no_grad()
    def _check_order(self, image: Tensor) -> None:
        """Raise a ValueError, at the first call, if the tokens of the layer are not in the order of the image.

        Errors of the network, and networks that are random, are left to the run that follows.
        """
        if self._ordered == (self.layer, self.tokens) or self.pool is not None or image.ndim != 4:
            return
        if may_vary(self):
            return
        image = image.clone()  # a network may begin with an operation in place
        try:
            is_sequence = layer_output(self.net, self.layer, image).ndim == 3
            in_order = not is_sequence or is_in_raster_order(self, image)
        except Exception:
            return
        if not in_order:
            raise ValueError(
                f"the tokens of layer {self.layer!r} are not in the order of the image: noise in a patch "
                'changes the token of another place most. Choose another layer, or use pool="avg"'
            )
        self._ordered = (self.layer, self.tokens)

    def extra_repr(self) -> str:
        """Describe the layer and the processing of its output (for ``print``)."""
        shown = f"layer={self.layer!r}, pool={self.pool!r}, normalize={self.normalize}"
        return shown if self.tokens is None else f"{shown}, tokens={self.tokens}"

    def _check_images(self, images: Tensor) -> None:
        _check_tensor(images)
        check_no_bytes(images, name="images")
        n_known = dimensions_of(self.net)
        n_sides = n_known or 2
        if images.ndim == n_sides + 2 or (n_known is None and 2 < images.ndim < 6):
            return

        # Convolutions also accept a single image [C, H, W], whose rows would then be taken for channels. Other
        # inputs have no channels, and the network adds them, as some do to spectrograms [N, F, T].
        if images.ndim > 1 and n_known is not None:
            first = first_layer(self.net, images[:1])
            if first is not None and first.dimensions and first.input.ndim == first.dimensions + 2:
                return
        shape, name = SHAPES[n_sides]
        hint = f" (a single {name} is {name}[None])" if images.ndim == n_sides + 1 else ""
        raise ValueError(f"images must be {shape}; got shape {list(images.shape)}{hint}")

    def _scale(self, images: Tensor) -> Tensor | None:
        """Write mean and standard deviation as a tensor [2, C, 1, 1] for images; None if they are unknown."""
        if self.mean is None or self.std is None:
            return None
        n_sides = dimensions_of(self.net) or 2
        # Without this check, a gray image would silently be broadcast to three channels.
        if images.ndim <= n_sides or images.shape[-n_sides - 1] != len(self.mean):
            sides = SHAPES[n_sides][0].removeprefix("[N, C, ")
            raise ValueError(f"images must be [..., {len(self.mean)}, {sides}; got shape {list(images.shape)}")
        ones = [1] * n_sides
        return images.new_tensor((self.mean, self.std)).view(2, -1, *ones)


def _check_tensor(images: object) -> None:
    if isinstance(images, DataLoader | Dataset):
        raise TypeError(f"images must be a tensor; {LOADED.format(kind_of(images))}")
    if not isinstance(images, Tensor):
        raise TypeError(
            f"images must be a tensor; got {type(images).__name__} (load_image reads a file, to_tensor converts a "
            "PIL image or an array of bytes, and torch.stack joins several images)"
        )

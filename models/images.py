"""Photos as tensors: [3, H, W], red, green and blue in 0..1."""

from __future__ import annotations

import io
import os
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from neonxc.common.arguments import kind_of

LONGEST = 8  # times the shorter side that a resized image may be long


def load_image(path: str | os.PathLike[str] | bytes, size: int | None = None) -> Tensor:
    """Read an image file, or the bytes of one.

    The orientation that the camera noted (EXIF) is applied; grey and palette images become RGB; what is
    transparent becomes white. Of an animation the first frame is read.

    Parameters
    ----------
    path : str, path-like or bytes
        A file in any format that Pillow reads, or its contents.
    size : int, optional
        Length of the shorter side after resizing (antialiased, bicubic; the aspect ratio is kept). None: as
        in the file.

    Returns
    -------
    Tensor [3, H, W]
        float32 in 0..1, on the CPU.

    Raises
    ------
    ValueError
        The file is missing, no image or damaged; its pixels have no known range; `size` is below 1, or the
        longer side of an image to be resized is more than 8 times the shorter one.
    """
    try:
        with Image.open(io.BytesIO(path) if isinstance(path, bytes) else path) as file:
            return to_tensor(ImageOps.exif_transpose(file), size)
    except Exception as error:  # on a damaged file Pillow's decoders raise whatever they stumble over
        unknown = "its format is unknown" if isinstance(error, UnidentifiedImageError) else error
        reason = getattr(error, "strerror", None) or unknown
        name = f"of {len(path)} bytes" if isinstance(path, bytes) else repr(os.fspath(path))
        raise ValueError(f"cannot read the image {name}: {reason}") from error


def to_tensor(image: NDArray[np.uint8] | Image.Image, size: int | None = None) -> Tensor:
    """Turn a PIL image or an array of bytes, as most image libraries give it, into a tensor in 0..1.

    Parameters
    ----------
    image : PIL image or ndarray [H, W, 3] of uint8
        An array holds red, green and blue. A PIL image may be of any kind, as in `load_image`.
    size : int, optional
        Length of the shorter side after resizing, as in `load_image`.

    Returns
    -------
    Tensor [3, H, W]
        float32 in 0..1, on the CPU; a copy.

    Raises
    ------
    ValueError
        `image` has another shape or dtype, no pixels or pixels of no known range; `size` is below 1, or the
        longer side of an image to be resized is more than 8 times the shorter one.

    Examples
    --------
    >>> import numpy as np
    >>> from neonxc.models import to_tensor
    >>> to_tensor(np.full((40, 60, 3), 255, dtype=np.uint8), size=20).shape
    torch.Size([3, 20, 30])
    """
    pixels = _rgb_pixels(image) if isinstance(image, Image.Image) else image
    dtype = getattr(pixels, "dtype", type(pixels).__name__)
    if dtype != np.uint8:
        raise ValueError(f"image must be a PIL image or a NumPy array of uint8; got {dtype}")
    if pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.size == 0:
        raise ValueError(f"image must be [H, W, 3] with at least one pixel; got shape {list(pixels.shape)}")
    # torch takes neither negative strides (a mirrored view) nor, without a warning, read-only memory.
    tensor = torch.tensor(np.ascontiguousarray(pixels)).permute(2, 0, 1).float() / 255
    if size is None:
        return tensor
    if size < 1:
        raise ValueError(f"size must be at least 1; got {size}")
    sides = pixels.shape[:2]
    if max(sides) > LONGEST * min(sides):
        raise ValueError(
            f"an image of {sides[0]} x {sides[1]} pixels is too long: its longer side may be at most {LONGEST} "
            "times the shorter one; crop it"
        )
    shape = [round(side * size / min(sides)) for side in sides]
    resized = F.interpolate(tensor[None], shape, mode="bicubic", antialias=True)[0]
    return resized.clamp(0, 1)  # bicubic interpolation overshoots at edges


def _rgb_pixels(image: Image.Image) -> NDArray[Any]:
    if image.mode.startswith("I;16"):
        # Pillow's own conversion clips 16 bits at 255: a white picture.
        image = Image.fromarray((np.asarray(image) / 257).round().astype(np.uint8))
    if image.mode in ("I", "F"):
        raise ValueError(f"pixels of mode {image.mode} have no fixed range; save it with 8 or 16 bits first")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return np.asarray(image.convert("RGB"))


def normalization(processor: Any, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Measure the mean and standard deviation, for pixels in 0..1, with which a processor normalizes photos.

    It is called on photos of one colour: what it does depends on several settings, which differ by library. The
    photos are grey if the network has one channel. Raises a ValueError if it gives no pixels or mixes channels.
    """
    processor = getattr(processor, "image_processor", processor)  # of a processor of texts and images
    colors = ((0,), (255,), (51,)) if channels == 1 else ((0, 0, 0), (255, 255, 255), (255, 128, 51))
    black, white, mixed = (_processed(processor, color) for color in colors)
    scale = white - black
    wrong = (mixed - black) / scale - torch.tensor(colors[2], dtype=torch.float64) / 255
    if not (scale > 0).all() or not (wrong.abs() < 0.01).all():  # half precision rounds
        raise ValueError(
            f"processor must keep the order of the colours and scale each of them; it turns {colors[2]} into "
            f"{mixed.tolist()} (do_flip_channel_order, gray images or a random transform?); do so with the images "
            "before preprocess, and pass mean and std instead of processor"
        )
    return tuple((0 - black / scale).tolist()), tuple((1 / scale).tolist())


def _processed(processor: Any, color: tuple[int, ...]) -> Tensor:
    """The pixel [C] in the middle of a photo of one colour, float64, as a processor gives it."""
    photo = Image.new("L" if len(color) == 1 else "RGB", (64, 64), color)
    try:
        if hasattr(processor, "model_input_names"):  # of transformers
            pixels = processor(photo, return_tensors="pt")["pixel_values"]
        else:
            pixels = processor(photo)
        height, width = pixels.shape[-2:]
        return pixels[..., height // 2, width // 2].reshape(-1, len(color))[0].double().cpu()
    except Exception as error:  # whatever a foreign object raises
        raise ValueError(
            "processor must turn a photo into a tensor [C, H, W], as an image processor of transformers or "
            f"weights.transforms() of torchvision do; {kind_of(processor)} does not ({error}); pass mean and std "
            "instead"
        ) from error

"""Photos as tensors: [3, H, W], red, green and blue in 0..1.

1. A large file that is to be resized is first reduced in bytes, to no less than twice the size.
2. Images of 16 bits become bytes; what is transparent becomes white; grey and palette images become RGB.
3. Bytes become floats in 0..1.
4. These are resized by bicubic interpolation with antialiasing, and clamped to 0..1.
"""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from neonxc.common.arguments import kind_of

LONGEST = 8  # times the shorter side that a resized image may be long
LARGE = 1 << 24
"""Pixels from which on an image that is resized is first reduced in bytes; as floats, they take 200 MB."""
UNRESIZED = 1 << 26
"""Pixels of a file that is read as it is: as floats, they take 800 MB."""
TRUST = "if you trust the file, raise PIL.Image.MAX_IMAGE_PIXELS"
TURNED = 0x0112
"""Number of the entry of EXIF that says how the camera was held."""
ROWS = 256
"""Rows of an image of 16 bits that are converted at a time."""


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
        longer side of an image to be resized is more than 8 times the shorter one; it has more pixels than
        ``PIL.Image.MAX_IMAGE_PIXELS``, or, without `size`, than 67 million.
    """
    source = io.BytesIO(path) if isinstance(path, bytes) else path
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # an error says it below
            file = Image.open(source)
        with file:
            _check_pixels(file, size)
            return to_tensor(ImageOps.exif_transpose(_reduced(file, size)), size)
    except Exception as error:  # on a damaged file Pillow's decoders raise whatever they stumble over
        reason = str(error)
        if isinstance(error, UnidentifiedImageError):
            reason = "its format is unknown"
        elif isinstance(error, Image.DecompressionBombError):
            reason = f"{error} {TRUST}"
        reason = getattr(error, "strerror", None) or reason
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
    pixels = np.ascontiguousarray(pixels)
    height, width = pixels.shape[:2]
    _check_size(size, (height, width))
    if size is None:
        return _as_floats(pixels)

    shorter = min(height, width)
    shape = (round(height * size / shorter), round(width * size / shorter))
    if height * width > LARGE:
        image = _reduced(Image.fromarray(pixels), size)
        if image.width * image.height > LARGE:
            image = image.resize(shape[::-1], Image.Resampling.BICUBIC)
        pixels = np.asarray(image)
    resized = F.interpolate(_as_floats(pixels)[None], shape, mode="bicubic", antialias=True)[0]
    return resized.clamp(0, 1)  # bicubic interpolation overshoots at edges


def _as_floats(pixels: NDArray[np.uint8]) -> Tensor:
    """Convert bytes [H, W, 3] to floats in 0..1, [3, H, W]."""
    return torch.tensor(pixels).permute(2, 0, 1).float().div_(255)


def _check_size(size: int | None, sides: tuple[int, ...]) -> None:
    """Raise a ValueError if the shorter of two sides can't be resized to this length."""
    if size is None:
        return
    if size < 1:
        raise ValueError(f"size must be at least 1; got {size}")
    if max(sides) > LONGEST * min(sides):
        raise ValueError(
            f"an image of {sides[0]} x {sides[1]} pixels is too long: its longer side may be at most {LONGEST} "
            "times the shorter one; crop it"
        )


def _check_pixels(file: Image.Image, size: int | None) -> None:
    """Raise a ValueError if an image has too many pixels to be decoded, or to be returned as it is."""
    width, height = file.size
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and width * height > limit:
        raise ValueError(
            f"{height} x {width} pixels are more than {limit:,}, so that it may be a decompression bomb; {TRUST}"
        )
    if size is None and width * height > UNRESIZED:
        raise ValueError(
            f"{height} x {width} pixels are more than {UNRESIZED:,}; pass size, to which it is then scaled"
        )
    _check_size(size, (height, width))


def _reduced(image: Image.Image, size: int | None) -> Image.Image:
    """Reduce a large image in bytes by a whole factor, to no less than twice the `size` of its shorter side."""
    if size is None:
        return image
    factor = min(image.size) // (2 * size)
    if image.width * image.height <= LARGE or factor < 2:
        return image
    width, height = image.size
    image.draft(None, (width // factor, height // factor))  # JPEG decodes an eighth, a fourth or a half
    factor = factor * image.width // width  # what remains to be done
    if factor < 2:
        return image
    orientation = image.getexif().get(TURNED)
    image = _as_bytes(image)
    if image.mode not in ("L", "LA", "RGB", "RGBA"):
        image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    smaller = image.reduce(factor)
    if orientation is not None:
        smaller.getexif()[TURNED] = orientation
    return smaller


def _as_bytes(image: Image.Image) -> Image.Image:
    """Convert an image of 16 bits to 8; Pillow's own conversion clips them at 255: a white picture."""
    if not image.mode.startswith("I;16"):
        return image
    pixels = np.asarray(image)
    converted = np.empty(pixels.shape, dtype=np.uint8)
    for start in range(0, len(pixels), ROWS):
        rows = slice(start, start + ROWS)
        converted[rows] = (pixels[rows] / 257).round()  # 257 * 255 = 2^16 - 1
    return Image.fromarray(converted)


def _rgb_pixels(image: Image.Image) -> NDArray[Any]:
    """Convert an image of any kind to bytes [H, W, 3] of red, green and blue."""
    image = _as_bytes(image)
    if image.mode in ("I", "F"):
        raise ValueError(f"pixels of mode {image.mode} have no fixed range; save it with 8 or 16 bits first")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return np.asarray(image.convert("RGB"))


def normalization(processor: Callable[..., Any], channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Measure the mean and standard deviation, for pixels in 0..1, with which a processor normalizes photos.

    It is called on photos of one colour: what it does depends on several settings, which differ by library. The
    photos are grey if the network has one channel. Raises a ValueError if it gives no pixels or mixes channels.
    """
    processor = getattr(processor, "image_processor", processor)  # of a processor of texts and images
    mixed_color = (51,) if channels == 1 else (255, 128, 51)
    n = len(mixed_color)
    black = _processed(processor, (0,) * n)
    white = _processed(processor, (255,) * n)
    mixed = _processed(processor, mixed_color)

    # A normalized pixel is (p - mean) / std: -mean / std for black, and 1 / std more for white
    scale = white - black
    error = (mixed - black) / scale - torch.tensor(mixed_color, dtype=torch.float64) / 255
    if not (scale > 0).all() or not (error.abs() < 0.01).all():  # half precision rounds
        raise ValueError(
            f"processor must keep the order of the colours and scale each of them; it turns {mixed_color} into "
            f"{mixed.tolist()} (do_flip_channel_order, gray images or a random transform?); do so with the images "
            "before preprocess, and pass mean and std instead of processor"
        )
    mean = 0 - black / scale
    std = 1 / scale
    return tuple(mean.tolist()), tuple(std.tolist())


def _processed(processor: Callable[..., Any], color: tuple[int, ...]) -> Tensor:
    """Process a photo of one colour, and return the pixel [C] in its middle, float64."""
    mode = "L" if len(color) == 1 else "RGB"
    photo = Image.new(mode, (64, 64), color)
    try:
        if hasattr(processor, "model_input_names"):  # of transformers
            pixels = processor(photo, return_tensors="pt")["pixel_values"]
        else:
            pixels = processor(photo)
        height, width = pixels.shape[-2:]
        middle = pixels[..., height // 2, width // 2].reshape(-1, len(color))[0]
        return middle.double().cpu()
    except Exception as error:  # whatever a foreign object raises
        raise ValueError(
            "processor must turn a photo into a tensor [C, H, W], as an image processor of transformers or "
            f"weights.transforms() of torchvision do; {kind_of(processor)} does not ({error}); pass mean and std "
            "instead"
        ) from error

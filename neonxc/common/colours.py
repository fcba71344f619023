"""Colours of clusters that colour-blind readers can distinguish, on light and on dark backgrounds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Okabe and Ito's palette without yellow and black, which have little contrast to one of the backgrounds
FEW = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9"]
NOISE = "#8a8f98"
# Machado, Oliveira and Fernandes (2009): protanopia and deuteranopia of severity 1, for linear RGB
BLINDNESS = [
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
]
# Ottosson (2020): from linear RGB to cone responses, and from their cube roots to OKLab
CONES = [
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
]
OKLAB = [
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
]


def colors(k: int) -> list[str]:
    """Choose colours for `k` clusters.

    The first six are Okabe and Ito's. Every further colour has the largest distance to the previous ones, as seen
    by readers with and without red-green blindness, among the colours that are neither too light for a white
    background nor too dark for a black one. Nobody can distinguish 50 colours at a glance, so the page writes the
    label of a cluster beside its colour.

    Parameters
    ----------
    k : int
        Number of clusters.

    Returns
    -------
    list of str
        Colours as ``#rrggbb``. Beyond some hundreds of clusters the colours repeat.

    Examples
    --------
    >>> from neonxc.common.colours import colors
    >>> colors(3)
    ['#0072b2', '#e69f00', '#009e73']
    """
    if k <= len(FEW):
        return FEW[:k]
    steps = np.linspace(0, 255, 12).round().astype(int)
    codes = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), -1).reshape(-1, 3)
    bright = luminance(codes)
    codes = codes[(bright > 0.1) & (bright < 0.5)]
    chosen = np.array([[int(color[at : at + 2], 16) for at in (1, 3, 5)] for color in FEW])
    seen = _seen(codes)
    apart = np.min([_distance(seen, _seen(one[None])) for one in chosen], axis=0)
    for _ in range(min(k, len(codes)) - len(chosen)):
        best = int(apart.argmax())
        chosen = np.vstack([chosen, codes[best]])
        apart = np.minimum(apart, _distance(seen, seen[:, best : best + 1]))
    names = [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in chosen]
    return [names[at % len(names)] for at in range(k)]


def ink(color: str) -> str:
    """Return black or white, whichever has more contrast to the colour."""
    code = np.array([int(color[at : at + 2], 16) for at in (1, 3, 5)])
    return "#000000" if luminance(code) > 0.179 else "#ffffff"  # luminance of equal contrast to both


def luminance(codes: NDArray[np.int_]) -> NDArray[np.float64]:
    """Relative luminance (WCAG 2) of colours [..., 3] with values from 0 to 255."""
    return _linear(codes) @ np.array([0.2126, 0.7152, 0.0722])


def _linear(codes: NDArray[np.int_]) -> NDArray[np.float64]:
    part = codes / 255
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def _seen(codes: NDArray[np.int_]) -> NDArray[np.float64]:
    """Convert colours [n, 3] to OKLab for normal vision and two kinds of colour blindness, [3, n, 3]."""
    light = _linear(codes)
    views = np.stack([light, *(np.clip(light @ np.array(matrix).T, 0, 1) for matrix in BLINDNESS)])
    return np.cbrt(views @ np.array(CONES).T) @ np.array(OKLAB).T


def _distance(seen: NDArray[np.float64], one: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distance of every colour to one colour: the smallest over the three kinds of colour vision."""
    return np.linalg.norm(seen - one, axis=-1).min(axis=0)

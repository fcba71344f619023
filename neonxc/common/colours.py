"""Colours of clusters that colour-blind readers can distinguish, on light and on dark backgrounds."""

from __future__ import annotations

NOISE = "#8a8f98"
EQUAL_CONTRAST = 0.179
"""Luminance L with equal contrast to black, (L + 0.05) / 0.05, and to white, 1.05 / (L + 0.05) (WCAG 2)."""
# Okabe and Ito's palette without yellow and black, which have little contrast to one of the backgrounds. Every
# further colour has the largest distance in OKLab to the previous ones, for normal and for red-green blind vision
# (Machado, Oliveira and Fernandes, 2009), among the colours with a luminance between 0.1 and 0.5.
PALETTE = (
    "0072b2 e69f00 009e73 cc79a7 d55e00 56b4e9 8b4646 462eff 468bff b9b9a2 b92e8b ff4674 b94617 0074e8 d117b9 "
    "ff74d1 d18b2e d1b974 46a2ff a2178b 008b5d 8b00d1 b974d1 d14646 b9a2a2 b9002e d1a25d e817a2 745d74 b917a2 "
    "8b5dd1 ff178b 5da2b9 ff748b 2ed1b9 a2b9ff a274e8 2e5dff 46b9b9 d100d1 46745d ff005d 468b8b d1b946 a28be8 "
    "5d7446 8ba2d1 ff8be8 d100e8 2eb98b 17a25d 7417e8 a274b9 8b2eb9 8b74a2 ff8b8b 5d74ff 748b00 b92e74 468b46"
)


def colors(k: int) -> list[str]:
    """Choose colours for `k` clusters.

    Nobody can distinguish 50 colours at a glance, so the page writes the label of a cluster beside its colour.

    Parameters
    ----------
    k : int
        Number of clusters.

    Returns
    -------
    list of str
        Colours as ``#rrggbb``. Beyond 60 clusters the colours repeat.

    Examples
    --------
    >>> from neonxc.common.colours import colors
    >>> colors(3)
    ['#0072b2', '#e69f00', '#009e73']
    """
    codes = PALETTE.split()
    return [f"#{codes[i % len(codes)]}" for i in range(k)]


def ink(color: str) -> str:
    """Return black or white, whichever has more contrast to the colour."""
    return "#000000" if luminance(color) > EQUAL_CONTRAST else "#ffffff"


def luminance(color: str) -> float:
    """Return the relative luminance (WCAG 2) of a colour ``#rrggbb``, 0 to 1.

    It is 0.2126 R + 0.7152 G + 0.0722 B of the linear values of sRGB.
    """
    linear = [_linear(int(color[i : i + 2], 16) / 255) for i in (1, 3, 5)]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _linear(value: float) -> float:
    """Return the linear value of a value of sRGB, both 0 to 1."""
    if value <= 0.04045:
        return value / 12.92
    return ((value + 0.055) / 1.055) ** 2.4

"""Composites that have proved themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from neonxc.lrp.composites import Composite, Place
from neonxc.lrp.gamma import Gamma
from neonxc.lrp.layer import Rule
from neonxc.lrp.rules import Epsilon, ZBox


def gamma(low: Any = None, high: Any = None) -> Composite:
    """LRP-gamma with gamma 0.25 in every layer; with the range of the pixels, z^B in the first.

    Parameters
    ----------
    low, high : float, sequence of float or Tensor, optional
        Range of the inputs; see :class:`~neonxc.lrp.ZBox`.
    """
    return Composite(Gamma(0.25), _box(low, high))


def paper(low: Any = None, high: Any = None) -> Composite:
    """LRP-gamma with gamma 0.25 in blocks 1 to 3 and 0.1 after them; with the range of the pixels, z^B there.

    A block is what stands between two halvings of the map, as in VGG, so it means the same in every convolutional
    network; what comes after the maps counts as deep.

    Parameters
    ----------
    low, high : float, sequence of float or Tensor, optional
        Range of the inputs; see :class:`~neonxc.lrp.ZBox`.

    References
    ----------
    .. [1] J. Kauffmann et al., "From clustering to cluster explanations via neural networks", VI-B.
    """
    return Composite(Gamma(0.1), {**_box(low, high), in_early_blocks: Gamma(0.25)})


def epsilon() -> Composite:
    """LRP-epsilon in every layer, which is gradient x input up to the stabilizer."""
    return Composite(Epsilon(1e-6))


def epsilon_gamma_box(low: Any, high: Any) -> Composite:
    """LRP-epsilon in fully connected layers, LRP-gamma in convolutions, z^B at the pixels.

    Parameters
    ----------
    low, high : float, sequence of float or Tensor
        Range of the inputs; see :class:`~neonxc.lrp.ZBox`.

    References
    ----------
    .. [1] G. Montavon et al., "Layer-wise relevance propagation: an overview", 2019.
    """
    return Composite(Gamma(0.25), {**_box(low, high), nn.Linear: Epsilon(1e-6)})


PRESETS: dict[str, Callable[..., Composite]] = {
    "gamma": gamma,
    "paper": paper,
    "epsilon": epsilon,
    "epsilon-gamma-box": epsilon_gamma_box,
}
"""Presets by the name that the command line gives them."""


def in_early_blocks(place: Place) -> bool:
    """Whether a layer stands in blocks 1 to 3."""
    return place.block is not None and place.block <= 3


def _box(low: Any, high: Any) -> dict[Any, Rule]:
    if (low is None) != (high is None):
        raise ValueError("low and high belong together, got only one of them")
    return {} if low is None else {0: ZBox(low, high)}

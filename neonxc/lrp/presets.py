"""Ready-made composites for common networks.

    preset               first layer           other layers
    gamma                z^B, with bounds      gamma 0.25
    paper                z^B, with bounds      gamma 0.25 in blocks 1 to 3, gamma 0.1 after them
    zero_gamma           z^B, with bounds      gamma 0.25, LRP-0 in the last six
    epsilon              epsilon               epsilon
    epsilon_gamma_box    z^B                   gamma 0.25, epsilon in fully connected layers

Without bounds, the first layer follows the rule of the others.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from neonxc.lrp.composites import Composite, Key, Place
from neonxc.lrp.layer import PropagationRule
from neonxc.lrp.rules import Bound, Epsilon, Gamma, ZBox


def gamma(low: Bound | None = None, high: Bound | None = None) -> Composite:
    """LRP-gamma with gamma 0.25 in every layer; z^B in the first layer if `low` and `high` are given.

    Parameters
    ----------
    low, high : float, sequence of float or Tensor, optional
        Bounds of the pixels; see :class:`~neonxc.lrp.ZBox`.

    Returns
    -------
    Composite
    """
    return Composite(Gamma(0.25), _box(low, high))


def paper(low: Bound | None = None, high: Bound | None = None) -> Composite:
    """LRP-gamma as in the NEON paper: gamma 0.25 in blocks 1 to 3, and 0.1 in the layers after them.

    A block consists of the layers whose feature maps have the same size, as in VGG; the layers after the last
    feature map belong to no block. If `low` and `high` are given, the first layer follows z^B.

    Parameters
    ----------
    low, high : float, sequence of float or Tensor, optional
        Bounds of the pixels; see :class:`~neonxc.lrp.ZBox`.

    Returns
    -------
    Composite

    References
    ----------
    .. [1] J. Kauffmann et al., "From clustering to cluster explanations via neural networks", VI-B.
    """
    return Composite(Gamma(0.1), {**_box(low, high), in_early_blocks: Gamma(0.25)})


def zero_gamma(low: Bound | None = None, high: Bound | None = None) -> Composite:
    """LRP-0 in the last six layers, which is gradient x input, and LRP-gamma with gamma 0.25 before them.

    Heatmaps of pooled features then depend more on the last layers; see :func:`neonxc.evaluation.sanity`. If `low`
    and `high` are given, the first layer follows z^B.

    Parameters
    ----------
    low, high : float, sequence of float or Tensor, optional
        Bounds of the pixels; see :class:`~neonxc.lrp.ZBox`.

    Returns
    -------
    Composite
    """
    return Composite(Gamma(0.25), {**_box(low, high), range(-6, 0): Gamma(0.0)})


def epsilon() -> Composite:
    """LRP-epsilon in every layer, which is gradient x input up to the stabilizer.

    Returns
    -------
    Composite
    """
    return Composite(Epsilon(1e-6))


def epsilon_gamma_box(low: Bound, high: Bound) -> Composite:
    """LRP-epsilon in fully connected layers, LRP-gamma in convolutions, and z^B in the first layer.

    Parameters
    ----------
    low, high : float, sequence of float or Tensor
        Bounds of the pixels; see :class:`~neonxc.lrp.ZBox`.

    Returns
    -------
    Composite

    References
    ----------
    .. [1] G. Montavon et al., "Layer-wise relevance propagation: an overview", 2019.
    """
    return Composite(Gamma(0.25), {**_box(low, high), nn.Linear: Epsilon(1e-6)})


PRESETS: dict[str, Callable[..., Composite]] = {
    "gamma": gamma,
    "paper": paper,
    "zero-gamma": zero_gamma,
    "epsilon": epsilon,
    "epsilon-gamma-box": epsilon_gamma_box,
}
"""Presets by their name on the command line."""


def in_early_blocks(place: Place) -> bool:
    """Whether a layer is in blocks 1 to 3."""
    return place.block is not None and place.block <= 3


def _box(low: Bound | None, high: Bound | None) -> dict[Key, PropagationRule]:
    """Return the z^B rule of the first layer, if there are bounds."""
    if low is None and high is None:
        return {}
    if low is None or high is None:
        raise ValueError("low and high need to be given together, got only one of them")
    return {0: ZBox(low, high)}

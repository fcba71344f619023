"""Curves of pixel-flipping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from neonxc.evaluation import Flipping


def flipping_curves(results: Mapping[str, Flipping], *, logits: bool = False, title: str | None = None) -> Figure:
    """Share of inputs in their cluster, by share of the features that are known; the best curve thick.

    Parameters
    ----------
    results : dict of str to Flipping
        Of :func:`neonxc.evaluation.pixel_flipping`, or ``Comparison.results``.
    logits : bool
        The mean logit instead.
    title : str, optional

    Returns
    -------
    matplotlib.figure.Figure
    """
    if not results:
        raise ValueError("results is empty; needed is at least one curve")
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    ranked = sorted(results, key=lambda name: -results[name].auc)
    colors = colormaps["tab10"].colors + colormaps["Dark2"].colors  # type: ignore[attr-defined]
    for i, name in enumerate(ranked):
        found = results[name]
        curve = found.logit_curve if logits else 100 * found.curve
        order = np.argsort(found.known)
        width, front = (2.6, 3) if i == 0 else (1.2, 2)
        label = name if logits else f"{name}  {found.auc:.1f}"
        axes.plot(
            found.known[order], curve[order], lw=width, zorder=front, color=colors[i % len(colors)], label=label
        )
    axes.set_xlabel("share of the features that are known", fontsize=9)
    axes.set_ylabel("mean logit" if logits else "% in the cluster", fontsize=9)
    axes.set_xlim(0, 1)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(
        fontsize=8, loc="outside right upper", frameon=False, title=None if logits else "area", title_fontsize=8
    )
    if title:
        axes.set_title(title, fontsize=10, parse_math=False)
    return figure

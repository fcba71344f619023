"""Curves of pixel-flipping, and of measures by the number of clusters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from neonxc.evaluation.choice import Choice
    from neonxc.evaluation.flipping import Flipping


def flipping_curves(results: Mapping[str, Flipping], *, logits: bool = False, title: str | None = None) -> Figure:
    """Draw the share of inputs in their cluster against the share of known features. The best curve is thick.

    Parameters
    ----------
    results : dict of str to Flipping
        Results of :func:`neonxc.evaluation.pixel_flipping`, or ``Comparison.results``.
    logits : bool
        Draw the mean logit instead.
    title : str, optional

    Returns
    -------
    matplotlib.figure.Figure
    """
    if not results:
        raise ValueError("results is empty: at least one curve is needed")
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.add_subplot()
    colors = colormaps["tab10"].colors + colormaps["Dark2"].colors  # type: ignore[attr-defined]
    ranked = sorted(results.items(), key=lambda item: -item[1].auc)
    for i, (name, flipping) in enumerate(ranked):
        if i == 0:
            linewidth = 2.6
            zorder = 3
        else:
            linewidth = 1.2
            zorder = 2
        order = np.argsort(flipping.known)
        if logits:
            curve = flipping.logit_curve
            label = name
        else:
            curve = 100 * flipping.curve
            label = f"{name}  {flipping.auc:.1f}"
        x = flipping.known[order]
        y = curve[order]
        color = colors[i % len(colors)]
        axes.plot(x, y, color=color, label=label, linewidth=linewidth, zorder=zorder)
    axes.set_xlabel("share of the features that are known", fontsize=9)
    if logits:
        axes.set_ylabel("mean logit", fontsize=9)
        heading = None
    else:
        axes.set_ylabel("% in the cluster", fontsize=9)
        heading = "area"
    axes.set_xlim(0, 1)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(fontsize=8, loc="outside right upper", frameon=False, title=heading, title_fontsize=8)
    if title:
        axes.set_title(title, fontsize=10, parse_math=False)
    return figure


def choice_curves(choice: Choice) -> Figure:
    """Draw each measure of k-means against the number of clusters, and mark the suggested number.

    Parameters
    ----------
    choice : Choice
        The result of :func:`neonxc.evaluation.choose_k`.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure = Figure(figsize=(9.6, 2.4), layout="constrained")
    measures = choice.to_frame()
    panels = figure.subplots(1, len(measures.columns))
    for axes, (name, values) in zip(panels, measures.items(), strict=True):
        axes.plot(values.index, values, marker="o", markersize=3, linewidth=1.2, color="0.35")
        axes.plot(choice.k, values[choice.k], marker="o", markersize=7, color="tab:red")
        axes.set_title(name.replace("_", " "), fontsize=9)
        axes.set_xlabel("k", fontsize=9)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    return figure

"""Bar charts of relevance with feature names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from neonxc.summary import ClusterSummary

FOR, AGAINST = "#b2182b", "#2166ac"


def bars(
    relevance: Any, names: Sequence[str] | None = None, *, most: int = 15, title: str | None = None
) -> Figure:
    """Relevance of one point's features, or of a cluster's on average.

    Parameters
    ----------
    relevance : array or Tensor [d]
    names : sequence of d str, optional
        Default: x0, x1, ...
    most : int
        How many features to draw, those of the largest absolute relevance; the rest is summed up in one bar.
    title : str, optional

    Returns
    -------
    matplotlib.figure.Figure
    """
    values, labels = _checked(relevance, names)
    figure = Figure(figsize=(4.2, 0.6 + 0.24 * min(len(values), most + 1)), layout="constrained")
    _draw(figure.add_subplot(), values, labels, most)
    if title:
        figure.axes[0].set_title(title, fontsize=9, parse_math=False)
    figure.axes[0].set_xlabel("relevance", fontsize=8)
    return figure


def summary_bars(summary: ClusterSummary, *, most: int = 8) -> Figure:
    """One bar chart for every cluster of a :class:`neonxc.ClusterSummary`; scales differ.

    Parameters
    ----------
    summary : ClusterSummary
    most : int
        Features per cluster.
    """
    K = len(summary.classes)
    columns = min(K, 3)
    rows = -(-K // columns)
    height = 0.55 + 0.21 * min(len(summary.feature_names), most + 1)
    figure = Figure(figsize=(3.6 * columns, height * rows + 0.2), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for k in range(K):
        _draw(grid[k], *_checked(summary.relevance[k], summary.feature_names), most)
        count = int(summary.sizes[k])
        points = "point" if count == 1 else "points"
        grid[k].set_title(f"cluster {summary.classes[k]}: {count} {points}", fontsize=9, parse_math=False)
    for axes in grid[K:]:
        axes.set_axis_off()
    figure.supxlabel("mean relevance", fontsize=8)
    return figure


def _draw(axes: Axes, values: np.ndarray, labels: list[str], most: int) -> None:
    order = np.argsort(-np.abs(values), kind="stable")
    shown = order[:most]
    heights, names = values[shown].tolist(), [labels[i] for i in shown]
    if len(order) > most:
        heights.append(float(values[order[most:]].sum()))
        names.append(f"{len(order) - most} others")
    axes.barh(range(len(heights)), heights, color=[FOR if v >= 0 else AGAINST for v in heights])
    short = [name if len(name) <= 28 else name[:27] + "…" for name in names]
    axes.set_yticks(range(len(heights)), short, parse_math=False)
    axes.invert_yaxis()
    axes.axvline(0, color="0.3", linewidth=0.8)
    axes.tick_params(labelsize=7, length=2)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _checked(relevance: Any, names: Sequence[str] | None) -> tuple[np.ndarray, list[str]]:
    values = np.asarray(relevance.detach().cpu() if hasattr(relevance, "detach") else relevance, dtype=float)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"bars need the relevance of one point, shape [d], got {list(values.shape)}")
    if not np.isfinite(values).all():
        raise ValueError("relevance has values that are not finite")
    labels = [f"x{i}" for i in range(len(values))] if names is None else [str(name) for name in names]
    if len(labels) != len(values):
        raise ValueError(f"{len(labels)} names for {len(values)} features")
    return values, labels

"""Bar charts of relevance with feature names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from neonxc.plot.shared import AGAINST, FOR, as_array, check_finite

if TYPE_CHECKING:
    from neonxc.summary import ClusterSummary


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
        How many features to draw: those of the largest absolute relevance. The others are summed up in one bar.
    title : str, optional

    Returns
    -------
    matplotlib.figure.Figure
    """
    values = as_array(relevance).astype(float)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"bars need the relevance of one point, shape [d], got {list(values.shape)}")
    check_finite(values, "relevance")
    labels = [f"x{i}" for i in range(len(values))] if names is None else list(map(str, names))
    if len(labels) != len(values):
        raise ValueError(f"{len(labels)} names for {len(values)} features")
    figure = Figure(figsize=(4.2, 0.6 + 0.24 * min(len(values), most + 1)), layout="constrained")
    _draw(figure.add_subplot(), values, labels, most, title)
    figure.axes[0].set_xlabel("relevance", fontsize=8)
    return figure


def summary_bars(summary: ClusterSummary, *, most: int = 8) -> Figure:
    """One bar chart for every cluster of a :class:`neonxc.ClusterSummary`, each on a scale of its own.

    Parameters
    ----------
    summary : ClusterSummary
    most : int
        Features per cluster.
    """
    K, names = len(summary.classes), summary.feature_names
    columns = min(K, 3)
    rows = -(-K // columns)
    height = 0.55 + 0.21 * min(len(names), most + 1)
    figure = Figure(figsize=(3.6 * columns, height * rows + 0.2), layout="constrained")
    for k, (label, size) in enumerate(zip(summary.classes, summary.sizes, strict=True)):
        title = f"cluster {label}: {size} point{'' if size == 1 else 's'}"
        _draw(figure.add_subplot(rows, columns, k + 1), summary.relevance[k], names, most, title)
    figure.supxlabel("mean relevance", fontsize=8)
    return figure


def _draw(axes: Axes, values: np.ndarray, names: Sequence[str], most: int, title: str | None) -> None:
    order = np.argsort(-np.abs(values), kind="stable")
    heights = values[order[:most]].tolist()
    labels = [name if len(name) <= 28 else name[:27] + "…" for name in (names[i] for i in order[:most])]
    if len(order) > most:
        heights.append(float(values[order[most:]].sum()))
        labels.append(f"{len(order) - most} others")
    axes.barh(range(len(heights)), heights, color=[FOR if height >= 0 else AGAINST for height in heights])
    axes.set_yticks(range(len(heights)), labels, parse_math=False)
    axes.invert_yaxis()
    axes.axvline(0, color="0.3", linewidth=0.8)
    axes.tick_params(labelsize=7, length=2)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    if title:
        axes.set_title(title, fontsize=9, parse_math=False)

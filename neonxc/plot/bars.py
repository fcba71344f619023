"""Bar charts of relevance with feature names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from neonxc.common.cluster_names import cluster_text
from neonxc.common.numbers import plural, text
from neonxc.common.shortening import shortened
from neonxc.common.types import ArrayLike, TableLike
from neonxc.plot.shared import AGAINST, FOR, as_array, check_finite

if TYPE_CHECKING:
    from neonxc.attribution.summary import ClusterSummary

LABEL = 28
"""Maximum number of characters of a label."""
MAX_NAMED = 20  # features with a bar of their own


def bars(
    relevance: ArrayLike | TableLike,
    names: Sequence[str] | None = None,
    *,
    most: int = 15,
    title: str | None = None,
) -> Figure:
    """Draw the relevance of the features of one point, or the mean relevance of a cluster.

    Parameters
    ----------
    relevance : Series, dict, frame with one row, array or Tensor [d]
        Relevance. A row of a data frame, such as ``relevance.iloc[0]``, contains the names of its features.
    names : sequence of d str, optional
        Names of the features. The default is those of the series, dict or frame, and ``x0, x1, ...`` for arrays.
    most : int
        Number of features to draw, at most 20: those with the largest absolute relevance. The others have one more
        bar, which is no longer than these and is labelled with their number and sum.
    title : str, optional
        The default is the name of the series, or the label of the frame's row, if it is a string.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If there are several points, if values are not finite, or if the numbers of names and features differ.

    Examples
    --------
    >>> import neonxc.plot
    >>> figure = neonxc.plot.bars({"age": 2.1, "income": -0.4}, title="patient 7")
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['age', 'income']
    """
    numbers, index, name = _named(relevance)
    if names is None:
        names = index
    if title is None:
        title = name
    values = as_array(numbers).astype(float)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"bars need the relevance of one point, shape [d], got {list(values.shape)}")
    check_finite(values, "relevance")
    if names is None:
        labels = [f"x{i}" for i in range(len(values))]
    else:
        labels = [*map(str, names)]
    if len(labels) != len(values):
        raise ValueError(f"{plural(len(labels), 'name')} for {plural(len(values), 'feature')}")
    height = 0.6 + 0.24 * min(len(values), most + 1)
    figure = Figure(figsize=(4.2, height), layout="constrained")
    axes = figure.add_subplot()
    draw_bars(axes, values, labels, most, title)
    axes.set_xlabel("relevance", fontsize=8)
    return figure


def _named(relevance: ArrayLike | TableLike) -> tuple[object, list[Any] | None, str | None]:
    """Return the values of a series, dict or frame with one row, the names of its features, and a title."""
    import pandas as pd  # takes long, as does PyArrow

    from neonxc.data.frames import as_pandas

    values = as_pandas(relevance, "relevance")
    if isinstance(values, pd.DataFrame) and len(values) == 1:
        values = values.iloc[0]
    if isinstance(values, Mapping):
        return [*values.values()], [*values], None
    if not isinstance(values, pd.Series):
        return values, None, None
    title = values.name if isinstance(values.name, str) else None
    if values.index.equals(pd.RangeIndex(len(values))):  # numbers of rows are not names
        return values, None, title
    return values, [*values.index], title


def summary_bars(summary: ClusterSummary, *, most: int = 8) -> Figure:
    """Draw one bar chart per cluster of a :class:`neonxc.ClusterSummary`, each with its own scale.

    The direction is printed beside each bar: an arrow with the mean of the feature in the cluster and over all
    other points, or the category that is more frequent in the cluster.

    Parameters
    ----------
    summary : ClusterSummary
    most : int
        Number of features per cluster, at most 20: those with the largest absolute relevance. The others have one
        more bar, which is no longer than these and is labelled with their number and sum.

    Returns
    -------
    matplotlib.figure.Figure
    """
    if not hasattr(summary, "classes"):
        raise TypeError(f"summary needs what NEON.summary returns, a ClusterSummary; got {type(summary).__name__}")
    K = len(summary.classes)
    names = summary.feature_names
    columns = min(K, 3)
    rows = -(-K // columns)
    height = rows * (0.55 + 0.21 * min(len(names), most + 1)) + 0.2
    figure = Figure(figsize=(4.6 * columns, height), layout="constrained")
    for k, (label, size) in enumerate(zip(summary.classes, summary.sizes, strict=True)):
        title = f"{cluster_text(label)}: {plural(size, 'point')}"
        axes = figure.add_subplot(rows, columns, k + 1)
        features = draw_bars(axes, summary.relevance[k], names, most, title)
        comparisons = [summary.values.comparison(k, i) for i in features]
        write_beside(axes, [shortened(comparison, 40) for comparison in comparisons])
    figure.supxlabel("mean relevance; beside it the mean, or share, in the cluster vs in all others", fontsize=8)
    return figure


def draw_bars(
    axes: Axes, values: np.ndarray, names: Sequence[str], max_features: int, title: str | None
) -> list[int]:
    """Draw one bar for each feature with large values, at most 20, and one for the rest; return the former.

    The bar of the rest is hatched and no longer than the others; its label has the sum.
    """
    order = np.argsort(-np.abs(values), kind="stable")
    features, rest = np.split(order, [min(max_features, MAX_NAMED)])
    widths = values[features]
    labels = [shortened(names[i], LABEL) for i in features]
    if len(rest):
        total = float(values[rest].sum())
        labels.append(f"{plural(len(rest), 'further column')}: {text(total, 3, signed=True)}")
        # the sum of many columns would dwarf those that are named: its bar ends where their largest one does
        largest = float(np.abs(widths).max(initial=0.0)) or abs(total)
        widths = np.append(widths, np.clip(total, -largest, largest))

    colors = np.where(widths >= 0, FOR, AGAINST)
    shapes = axes.barh(range(len(widths)), widths, color=colors)
    if len(rest):
        shapes[-1].set(alpha=0.45, hatch="///", edgecolor="white")
    axes.set_yticks(range(len(widths)), labels, parse_math=False)
    axes.invert_yaxis()
    axes.axvline(0, color="0.3", linewidth=0.8)
    axes.tick_params(labelsize=7, length=2)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    if title:
        axes.set_title(title, fontsize=9, parse_math=False)
    return features.tolist()


def write_beside(axes: Axes, texts: Iterable[str]) -> None:
    """Write a text beside each of the first bars."""
    style: dict[str, Any] = {"fontsize": 7, "color": "0.35", "va": "center", "parse_math": False}
    for y, words in enumerate(texts):
        axes.text(1.02, y, words, transform=axes.get_yaxis_transform(), **style)

"""Confusions of names: which name the rows of each cluster choose."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from neonxc.naming.cluster_names import ClusterNames

MAX_PRINTED = 20  # number of clusters up to which the shares are written into the cells
WIDTH = 28  # letters of a line of a name


def confusions(named: ClusterNames, *, title: str | None = None) -> Figure:
    """Draw which name the rows of each cluster choose, in percent; names that fail are marked by a cross.

    Parameters
    ----------
    named : ClusterNames
        Result of :func:`neonxc.name_clusters` or :func:`neonxc.evaluation.validate_names`.
    title : str, optional

    Returns
    -------
    matplotlib.figure.Figure
        A row per cluster, and a column per name; the last column has the rows that choose no name.
    """
    shares = 100 * named.test.shares
    k = len(shares)
    size = 1.6 + 0.55 * k
    figure = Figure(figsize=(size + 3.0, size + 0.4), layout="constrained")
    axes = figure.add_subplot()
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=100, aspect="auto")
    if k <= MAX_PRINTED:
        for row in range(k):
            for column in range(k + 1):
                share = shares[row, column]
                color = "white" if share > 55 else "#333333"
                axes.text(column, row, f"{share:.0f}", ha="center", va="center", fontsize=8, color=color)
    else:
        figure.colorbar(image, ax=axes, label="% of the rows")

    labels = []
    for label, name in named.names.items():
        mark = "✗ " if named.passed[label] is False else ""
        labels.append(fill(f"{mark}{label}: {name or 'no name'}", WIDTH, break_long_words=False))
    axes.set_yticks(range(k), labels, fontsize=8, parse_math=False)
    axes.set_xticks(range(k + 1), [*map(str, named.clusters), "none"], fontsize=8, parse_math=False)
    axes.set_xlabel("name that is chosen", fontsize=9)
    axes.set_ylabel("rows of cluster", fontsize=9)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    if title:
        axes.set_title(title, fontsize=10, parse_math=False)
    return figure

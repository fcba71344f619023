"""Drawings of threshold trees: boxes side by side, or a list if the boxes do not fit on a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

from neonxc.trees.drawing.boxes import Boxes
from neonxc.trees.drawing.outline import Outline
from neonxc.trees.fitted.tree import ThresholdTree, as_tree
from neonxc.trees.rules.wording import node_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from neonxc.trees.estimator import TreeExplainer

WIDEST, HIGHEST = 1000.0, 760.0  # of boxes, in points: on a landscape page their text has at least 6 points


@overload
def plot_tree(
    tree: ThresholdTree | TreeExplainer,
    feature_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    precision: int | None = None,
    ax: Axes | None = None,
    X: Any = None,
    pages: Literal[False] = False,
) -> Axes: ...
@overload
def plot_tree(
    tree: ThresholdTree | TreeExplainer,
    feature_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    precision: int | None = None,
    ax: None = None,
    X: Any = None,
    *,
    pages: Literal[True],
) -> list[Axes]: ...
def plot_tree(
    tree: ThresholdTree | TreeExplainer,
    feature_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    precision: int | None = None,
    ax: Axes | None = None,
    X: Any = None,
    pages: bool = False,
) -> Axes | list[Axes]:
    """Draw a tree for the screen and for paper.

    A small tree has a box for every node: white boxes for tests, and below them the leaves in the colours of their
    clusters. The width of an edge is the share of training points that take it.

    A tree that is too wide or too high for a landscape page is drawn as a list with a line per leaf, which reads
    like "if, else if, else". The side of a test with fewer leaves comes first.

    Leaves are paler the more of their training points belong to other clusters.

    Parameters
    ----------
    tree : ThresholdTree or fitted tree explainer
    feature_names : sequence of str, one per column, optional
        Default: the tree's own, or x[0], x[1], ...
    class_names : sequence of str, one per cluster, optional
        Names of the clusters in the order of ``tree.classes``, which are the default.
    precision : int, optional
        Significant digits of thresholds; more where two thresholds of one column would look the same. Default: as
        many as tell the training values of the column apart.
    ax : matplotlib.axes.Axes, optional
        Axes to draw into; the text shrinks until the tree fits. Default: a new pyplot figure of the size of the
        tree.
    X : array-like, data frame, sparse matrix or tensor [n, features], optional
        Points, such as the training data. Every test then has a histogram of its column over the points that reach
        it, in the colours of the clusters that the tree predicts, with a mark at the threshold.
    pages : bool
        Whether a long list is continued on further pages of 7.5 × 10 inches, which fit on A4 and letter paper. By
        default, there is a single figure of the height of the list.

    Returns
    -------
    matplotlib.axes.Axes, or a list of them with ``pages=True``
        ``ax.figure.savefig(path)`` writes the figure, which is also pyplot's current one unless `ax` was given.

    Raises
    ------
    ValueError
        If the number of names is wrong, if both `ax` and `pages` are given, or if X is invalid as in
        :meth:`ThresholdTree.predict`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from neonxc.trees import IMM, plot_tree
    >>> X = load_iris(as_frame=True).data
    >>> plot_tree(IMM(3, random_state=0).fit(X), X=X).figure.savefig("tree.pdf")  # doctest: +SKIP
    """
    tree = as_tree(tree)
    if pages and ax is not None:
        raise ValueError("ax is a single page; leave it out with pages=True")
    words, charts = node_words(tree, feature_names, class_names, precision), {}
    if X is not None:
        from neonxc.trees.drawing.histograms import histograms

        charts = histograms(tree, X)
    boxes = Boxes(tree, words, charts)
    if boxes.width <= WIDEST and boxes.height <= HIGHEST:
        drawn = [boxes.draw(ax)]
    else:
        outline = Outline(tree, words, charts)
        parts = outline.pages() if pages else [list(range(len(outline.rows)))]
        drawn = [outline.draw(ax, part, number, len(parts)) for number, part in enumerate(parts, start=1)]
    return drawn if pages else drawn[0]

"""Trade-off between cost and explanation length: several explainers of one clustering, and their Pareto front."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from neonxc.common.progress import progress_bar
from neonxc.common.result import Result, escape_markdown, markdown_table, rounded_text
from neonxc.common.searches import awaits_search, unwrapped
from neonxc.common.types import ArrayLike, TableLike
from neonxc.common.warnings import warn
from neonxc.data.frames import in_order_of, is_path, reads_tables
from neonxc.data.labels import are_labels, label_array
from neonxc.data.table import Table
from neonxc.rules.rendering import PRICE
from neonxc.trees.estimator import TreeExplainer
from neonxc.trees.explainers.center_based import EMN, IMM, ExGreedy, ExShallow
from neonxc.trees.fit.reference import FittedLabels, fitted_labels, is_clusterer
from neonxc.trees.fit.training_data import check_sample_weight

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Candidate:
    """A fitted explainer and the measures of its tree.

    Attributes
    ----------
    name : str
    explainer : TreeExplainer
        The fitted explainer.
    cost_ratio : float
        K-means cost of the tree's clusters divided by that of the reference clustering.
    waes, wad : float
        Weighted average explanation size and weighted average depth, in tests.
    leaves : int
    on_front : bool
        Whether the candidate is on the Pareto front: no other one is at least as good in both cost and WAES and
        better in one of them.
    """

    name: str
    explainer: TreeExplainer
    cost_ratio: float
    waes: float
    wad: float
    leaves: int
    on_front: bool


class TradeOff(Result, list[Candidate]):
    """Candidates in ascending order of cost."""

    @property
    def front(self) -> list[Candidate]:
        """The candidates on the Pareto front of cost and WAES."""
        return [candidate for candidate in self if candidate.on_front]

    def to_frame(self) -> pd.DataFrame:
        """Return one row per candidate.

        Returns
        -------
        DataFrame
            Index: "tree", the name of the candidate. Columns: "cost ratio", "WAES", "WAD", "leaves" and "front",
            as in :class:`Candidate`.
        """
        rows = [(each.cost_ratio, each.waes, each.wad, each.leaves, each.on_front) for each in self]
        index = pd.Index([candidate.name for candidate in self], name="tree")
        return pd.DataFrame(rows, index, ["cost ratio", "WAES", "WAD", "leaves", "front"])

    def to_markdown(self, precision: int | None = None) -> str:
        """Write a table with one row per candidate, in which those on the front are marked.

        Parameters
        ----------
        precision : int, optional
            Number of significant digits; default: four decimals of the cost ratio, and two of WAES and WAD.

        Returns
        -------
        str
        """
        cells = []
        for candidate in self:
            mark = "●" if candidate.on_front else ""
            row = [
                escape_markdown(candidate.name),
                rounded_text(candidate.cost_ratio, 4, precision),
                rounded_text(candidate.waes, 2, precision),
                rounded_text(candidate.wad, 2, precision),
                str(candidate.leaves),
                mark,
            ]
            cells.append(row)
        return markdown_table(["tree", "cost ratio", "WAES", "WAD", "leaves", "front"], cells)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw cost against WAES: a coloured marker for every tree on the front, grey ones for the others.

        Trees on the front are named in the legend, to the right of the axes, from the shortest explanations to the
        longest. Trees with the same cost and WAES share a marker.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to draw into; default: a new figure.

        Returns
        -------
        matplotlib.axes.Axes
        """
        if ax is None:
            from matplotlib import pyplot  # takes long

            ax = pyplot.figure(figsize=(8, 4), layout="constrained").add_subplot()
        # the names of the trees at every point (WAES, cost ratio) of the front
        names_at: dict[tuple[float, float], list[str]] = {}
        for candidate in sorted(self.front, key=lambda candidate: candidate.waes):
            point = (candidate.waes, candidate.cost_ratio)
            names_at.setdefault(point, []).append(candidate.name)
        sizes, ratios = zip(*names_at, strict=True)
        ax.step(sizes, ratios, where="post", color="0.6", linewidth=1, zorder=1)
        for i, ((size, ratio), names) in enumerate(names_at.items()):
            label = "\n".join(names)
            ax.scatter(size, ratio, color=f"C{i % 10}", s=60, edgecolor="white", zorder=3, label=label)

        dominated = [(candidate.waes, candidate.cost_ratio) for candidate in self if not candidate.on_front]
        if dominated:
            sizes, ratios = zip(*dominated, strict=True)
            ax.scatter(sizes, ratios, color="0.75", s=24, label="not on the front", zorder=2)

        points = np.array([(candidate.waes, candidate.cost_ratio) for candidate in self])
        middle = (points.min(0) + points.max(0)) / 2
        extent = np.maximum(np.ptp(points, 0), [0.5, 0.02])  # smaller differences do not fill the axes
        half = extent * [0.58, 0.6]  # with a margin
        left, bottom = middle - half
        right, top = middle + half
        ax.set(xlim=(left, right), ylim=(bottom, top))
        ax.set(xlabel="weighted average explanation size (tests)", ylabel="k-means cost / reference's cost")
        ax.ticklabel_format(useOffset=False)
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
        return ax


def explainers(n_clusters: int) -> dict[str, TreeExplainer]:
    """Return the default candidates, with one leaf per cluster, plain and refined."""
    plain: dict[str, Any] = {"IMM": IMM(n_clusters), "EMN": EMN(n_clusters), "ExGreedy": ExGreedy(n_clusters)}
    for factor in (0.01, 0.03, 0.1, 0.3):
        plain[f"ExShallow, λ = {factor}"] = ExShallow(n_clusters, depth_factor=factor)
    refined = {}
    for name, tree in plain.items():
        refined[f"{name}, refined"] = clone(tree).set_params(refine=True)
    return plain | refined


@reads_tables
def trade_off(
    X: TableLike,
    *,
    labels: ArrayLike | None = None,
    centers: TableLike | None = None,
    reference: object = None,
    candidates: Mapping[str, TreeExplainer] | None = None,
    sample_weight: ArrayLike | None = None,
    progress: bool = False,
) -> TradeOff:
    """Fit several explainers to one reference clustering, and compare cost and length of their explanations.

    Parameters
    ----------
    X : array-like, data frame or tensor [n, d]
        As for :meth:`neonxc.trees.IMM.fit`; a data frame may have categories and missing values.
    labels : array-like [n], optional
        The reference clustering; points of label -1 (noise) are left out. One of `labels`, `centers` and
        `reference` is needed.
    centers : array-like [k, d], optional
        Centers of the reference clustering, to the nearest of which every point belongs.
    reference : clusterer or pipeline that ends in one, optional
        The reference clustering. It is fitted to X, once for all candidates, unless it is fitted. Costs are
        measured in its own space, after the other steps of a pipeline.
    candidates : mapping of names to tree explainers, optional
        Default: IMM, EMN, ExGreedy and ExShallow with four depth factors, each plain and refined.
    sample_weight : array-like [n], optional
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    TradeOff
        A list of candidates, with ``.front``, ``.to_frame()``, ``.to_markdown()`` and ``.plot()``.

    Raises
    ------
    ValueError
        If none or several of `labels`, `centers` and `reference` are given.

    Warns
    -----
    UserWarning
        If a tree costs clearly less than the reference, whose clusters then are not those of k-means on the
        columns of X; they may have been found after scaling.

    Examples
    --------
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from neonxc.trees import trade_off
    >>> X = load_wine(as_frame=True).data
    >>> trees = trade_off(X, reference=make_pipeline(StandardScaler(), KMeans(3, n_init=10, random_state=0)))
    >>> 1 <= trees.front[0].cost_ratio <= trees[-1].cost_ratio
    True
    """
    if sum(argument is not None for argument in (labels, centers, reference)) != 1:
        raise ValueError("trade_off needs one of labels, centers and reference: the clustering that is explained")
    X = Table.read(X).data if is_path(X) else X
    labels = in_order_of(labels, X)
    weight = in_order_of(sample_weight, X, "sample_weight")

    # the clustering that is explained, by the centers or by the labels of the points
    clustering: Any = centers
    n_clusters = None if centers is None else len(clustering)
    if reference is not None:
        reference, clustering = _fitted(reference, X, weight)
    elif labels is not None:
        clustering = label_array(labels)
    if n_clusters is None:
        is_labelled = are_labels(clustering)
        n_clusters = len(np.unique(clustering[is_labelled]))
        if not is_labelled.all():  # noise is not part of the cost
            weight_of_labelled = 1.0 if weight is None else np.asarray(weight)
            weight = np.where(is_labelled, weight_of_labelled, 0.0)

    if candidates is None:
        candidates = explainers(n_clusters)
    measured: list[Candidate] = []
    for name, explainer in progress_bar(candidates.items(), desc="trees", disable=not progress):
        explainer = clone(explainer)
        if reference is not None:
            explainer.set_params(reference=reference)
        fitted = explainer.fit(X, labels=labels, centers=centers, sample_weight=sample_weight)
        measured.append(_measured(name, fitted, X, clustering, weight))
    measured.sort(key=lambda candidate: (candidate.cost_ratio, candidate.waes))
    if measured and measured[0].cost_ratio < PRICE:
        warn(
            f"a tree costs {measured[0].cost_ratio:.2f} times as much as the reference, whose clusters are not "
            "those of k-means on the columns of X. If they were found behind a scaler, pass that pipeline as "
            "reference="
        )
    marked = [replace(candidate, on_front=not _is_dominated(candidate, measured)) for candidate in measured]
    return TradeOff(marked)


def _fitted(reference: object, X: TableLike, weight: ArrayLike | None) -> FittedLabels:
    """Fit a reference clustering unless it is fitted, once for all candidates."""
    if not awaits_search(reference):
        reference = unwrapped(reference)
    if not is_clusterer(reference):
        raise ValueError(f"reference needs a clusterer or a pipeline that ends in one, got {reference!r}")
    table = Table.read(X)
    checked_weight = check_sample_weight(weight, np.empty(len(table)))
    return fitted_labels(reference, table.for_sklearn, checked_weight)


def _measured(
    name: str, fitted: TreeExplainer, X: TableLike, clustering: ArrayLike, weight: ArrayLike | None
) -> Candidate:
    """Measure a fitted explainer in the space of its reference clustering, which is given by labels or centers."""
    from neonxc.evaluation import cost_ratio, wad, waes  # loads captum

    space = X
    if fitted._steps is not None:
        space = fitted._steps.transform(Table.read(X).for_sklearn)
    ratio = cost_ratio(space, fitted.labels_, clustering, weight)
    tree = fitted.tree_
    return Candidate(
        name,
        fitted,
        # rounded, so that equal trees tie
        cost_ratio=round(ratio, 9),
        waes=round(waes(tree), 9),
        wad=round(wad(tree), 9),
        leaves=tree.n_leaves,
        on_front=False,
    )


def _is_dominated(candidate: Candidate, candidates: list[Candidate]) -> bool:
    """Whether one of the candidates is at least as good in cost and WAES, and better in one of them."""
    measures = np.array([candidate.cost_ratio, candidate.waes])
    of_others = np.array([(each.cost_ratio, each.waes) for each in candidates])  # itself does not dominate itself
    is_as_good = (of_others <= measures).all(1)
    is_better = (of_others < measures).any(1)
    return bool((is_as_good & is_better).any())

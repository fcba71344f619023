"""Cost against length of explanations: which of several trees nobody could wish to trade for another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from tqdm import tqdm

from neonxc.inputs import label_array
from neonxc.trees.estimator import TreeExplainer
from neonxc.trees.explainers import EMN, IMM, ExGreedy, ExShallow

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Candidate:
    """A fitted explainer and what counts about its tree.

    Attributes
    ----------
    name : str
    explainer : TreeExplainer
        Fitted.
    cost_ratio : float
        Its k-means cost over the reference clustering's.
    waes, wad : float
        Weighted average explanation size and depth, in tests.
    leaves : int
    on_front : bool
        Whether no other candidate is at least as good in cost and in WAES, and better in one.
    """

    name: str
    explainer: TreeExplainer
    cost_ratio: float
    waes: float
    wad: float
    leaves: int
    on_front: bool


class TradeOff(list[Candidate]):
    """Candidates, the cheapest first."""

    @property
    def front(self) -> list[Candidate]:
        """The candidates worth choosing from."""
        return [candidate for candidate in self if candidate.on_front]

    def to_markdown(self) -> str:
        """A table, one row per candidate; those on the front are marked."""
        lines = ["| tree | cost ratio | WAES | WAD | leaves | front |", "|---|---|---|---|---|---|"]
        lines += [
            f"| {c.name} | {c.cost_ratio:.4f} | {c.waes:.2f} | {c.wad:.2f} | {c.leaves} | {'●' * c.on_front} |"
            for c in self
        ]
        return "\n".join(lines)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw cost against WAES, with a step line through the front and the names of the trees on it."""
        if ax is None:
            from matplotlib.figure import Figure

            ax = Figure(figsize=(7, 4.5), layout="constrained").add_subplot()
        front = sorted(self.front, key=lambda c: c.waes)
        others = [c for c in self if not c.on_front]
        ax.scatter([c.waes for c in others], [c.cost_ratio for c in others], color="0.65", label="others")
        ax.step([c.waes for c in front], [c.cost_ratio for c in front], where="post", color="C0", linewidth=1)
        ax.scatter([c.waes for c in front], [c.cost_ratio for c in front], color="C0", label="front", zorder=3)
        for c in front:
            ax.annotate(c.name, (c.waes, c.cost_ratio), xytext=(6, 5), textcoords="offset points", fontsize=8)
        ax.margins(x=0.15, y=0.12)
        ax.set_xlabel("weighted average explanation size, tests")
        ax.set_ylabel("k-means cost / reference")
        ax.legend(frameon=False)
        return ax


def explainers(n_clusters: int) -> dict[str, TreeExplainer]:
    """The trees with one leaf per cluster, plain and refined."""
    plain: dict[str, Any] = {"IMM": IMM(n_clusters), "EMN": EMN(n_clusters), "ExGreedy": ExGreedy(n_clusters)}
    for factor in (0.01, 0.03, 0.1, 0.3):
        plain[f"ExShallow, λ = {factor}"] = ExShallow(n_clusters, depth_factor=factor)
    refined = {f"{name}, refined": clone(tree).set_params(refine=True) for name, tree in plain.items()}
    return plain | refined


def trade_off(
    X: Any,
    *,
    labels: Any = None,
    centers: Any = None,
    candidates: Mapping[str, TreeExplainer] | None = None,
    sample_weight: Any = None,
    progress: bool = False,
) -> TradeOff:
    """Fit several explainers to one reference clustering, and compare cost and length of explanations.

    Parameters
    ----------
    X : array-like, data frame or tensor [n, d]
    labels, centers : array-like [n] or [k, d]
        The reference clustering: one of the two.
    candidates : mapping of names to tree explainers, optional
        Default: IMM, EMN, ExGreedy and ExShallow with four depth factors, each plain and refined.
    sample_weight : array-like [n], optional
    progress : bool
        Show a progress bar.

    Returns
    -------
    TradeOff
        A list of candidates, with ``.front``, ``.to_markdown()`` and ``.plot()``.

    Examples
    --------
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_iris
    >>> from neonxc.trees import trade_off
    >>> X = load_iris(as_frame=True).data
    >>> trees = trade_off(X, centers=KMeans(3, n_init=10, random_state=0).fit(X).cluster_centers_)
    >>> trees.front[0].cost_ratio <= trees[-1].cost_ratio
    True
    """
    from neonxc.evaluation import cost_ratio, wad, waes

    if (labels is None) == (centers is None):
        raise ValueError("trade_off needs labels or centers: the reference clustering that all trees explain")
    reference, weight = centers, sample_weight
    if labels is not None:
        reference = label_array(labels)
        noise = reference == -1 if reference.dtype.kind in "if" else np.zeros(len(reference), dtype=bool)
        if noise.any():  # noise has no part in the cost
            weight = np.ones(len(reference)) if weight is None else np.array(weight, dtype=float)
            weight[noise] = 0
    if candidates is None:
        candidates = explainers(len(centers) if labels is None else len(np.unique(reference[~noise])))
    found = []
    for name, explainer in tqdm(candidates.items(), desc="trees", disable=not progress):
        fitted = clone(explainer).fit(X, labels=labels, centers=centers, sample_weight=sample_weight)
        tree, ratio = fitted.tree_, cost_ratio(X, fitted.labels_, reference, weight)
        found.append((name, fitted, ratio, waes(tree), wad(tree), tree.n_leaves))
    return TradeOff(
        Candidate(*one, on_front=not any(_better(other, one) for other in found))
        for one in sorted(found, key=lambda entry: entry[2:4])
    )


def _better(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return one[2] <= other[2] and one[3] <= other[3] and (one[2] < other[2] or one[3] < other[3])

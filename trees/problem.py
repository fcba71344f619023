"""A reference clustering that a tree shall explain, and the nodes of the tree while it grows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from neonxc.trees.columns import Columns
from neonxc.trees.table import Table


@dataclass
class Node:
    """A node of a growing tree.

    Attributes
    ----------
    id : int
        Its number in the :class:`~neonxc.trees.builder.TreeBuilder`.
    rows : Tensor [points] of int64
        The points that reach it.
    centers : Tensor [centers] of int64
        The reference centers that do; empty where centers play no part.
    sides : frozenset of (feature, whether to the left)
        The tests on its path, each direction once.
    memory : Any
        What the criterion keeps for it.
    """

    id: int
    rows: Tensor
    centers: Tensor
    sides: frozenset[tuple[int, bool]] = frozenset()
    memory: Any = None


@dataclass(frozen=True)
class Cut:
    """A test on codes and on values, and whom it sends to the left: of a node's points, and of its centers."""

    feature: int
    code: int
    threshold: float
    left: Tensor
    centers_left: Tensor


@dataclass
class Problem:
    """Points, the columns that are cut, and the reference clustering.

    Attributes
    ----------
    table : Table
    columns : Columns
    centers : Tensor [k, d] of float64
        Reference centers, in the units of the columns.
    labels : Tensor [n] of int64
        Reference clusters.
    weight : Tensor [n] of float64 or None
    space, space_centers
        Points and centers in the space in which costs are measured, where that is not the columns' own.
    metric : {"l2", "l1"}
        Costs are squared Euclidean or Manhattan distances.
    given_distances : Tensor [n, k] or None
        Distances to `space_centers`, where they are known already.
    """

    table: Table
    columns: Columns
    centers: Tensor
    labels: Tensor
    weight: Tensor | None
    space: Table
    space_centers: Tensor
    metric: str = "l2"
    given_distances: Tensor | None = None

    @property
    def k(self) -> int:
        """Reference clusters."""
        return len(self.centers)

    @property
    def device(self) -> torch.device:
        """Where the computation takes place."""
        return self.labels.device

    @cached_property
    def distances(self) -> Tensor:
        """Distance of every point to every reference center, as its cost counts it, [n, k] of float64."""
        if self.given_distances is not None:
            return self.given_distances
        return self.space.distances(self.space_centers, self.metric)

    def cost(self, labels: Tensor) -> float:
        """What the points cost at the reference centers of some clusters [n]."""
        cost = self.distances.gather(1, labels[:, None])[:, 0]
        return float((cost if self.weight is None else cost * self.weight).sum())

    def weights(self, rows: Tensor) -> Tensor | None:
        """Weights of some points."""
        return None if self.weight is None else self.weight.index_select(0, rows)

    def mass(self, rows: Tensor) -> float:
        """Number of some points, or the sum of their weights."""
        return float(len(rows) if self.weight is None else self.weight[rows].sum())

    def positions(self, rows: Tensor, clusters: Tensor) -> Tensor:
        """Labels of some points as positions in a list of clusters."""
        place = torch.zeros(self.k, dtype=torch.int64, device=self.device)
        place[clusters] = torch.arange(len(clusters), device=self.device)
        return place.index_select(0, self.labels.index_select(0, rows))

    def majority(self, rows: Tensor) -> int:
        """The most frequent reference cluster of some points."""
        return int(
            torch.bincount(self.labels.index_select(0, rows), self.weights(rows), minlength=self.k).argmax()
        )

    def root(self) -> Node:
        """The node of all points and centers."""
        return Node(0, torch.arange(self.table.n, device=self.device), torch.arange(self.k, device=self.device))

    def cut(self, node: Node, feature: int, code: int) -> Cut:
        """The test between two codes of a column, with its threshold midway between the values in the node."""
        # Not the values of the codes next to the cut: a code stands for several values where there is `max_bins`
        values = torch.cat(
            [
                self.table.column(feature).index_select(0, node.rows).to(torch.float64),
                self.centers[:, feature].index_select(0, node.centers),
            ]
        )
        codes = self.columns.codes[feature].index_select(0, node.rows)
        left = torch.cat([codes <= code, self.columns.centers[feature].index_select(0, node.centers) <= code])
        low, high = float("-inf"), float("inf")
        if len(values):
            low = float(torch.where(left, values, low).max())
            high = float(values.masked_fill(left, high).min())
        if low == float("-inf"):  # nobody goes left, or nobody at all is here
            low = high - 1 if high < float("inf") else 0.0
        if high == float("inf"):
            high = low + 1
        n = len(node.rows)
        return Cut(feature, code, between(low, high, self.table.dtype), left[:n], left[n:])

    def cut_at(self, node: Node, feature: int, threshold: float) -> Cut:
        """The test of a threshold that need not be one between codes."""
        left = self.table.column(feature, node.rows).to(torch.float64) <= threshold
        return Cut(feature, -1, threshold, left, self.centers[node.centers, feature] <= threshold)

    def children(self, node: Node, cut: Cut, ids: tuple[int, int]) -> tuple[Node, Node]:
        """The nodes on the two sides of a cut."""

        def child(id: int, left: bool) -> Node:
            points, centers = (side if left else ~side for side in (cut.left, cut.centers_left))
            return Node(
                id,
                node.rows.masked_select(points),
                node.centers.masked_select(centers),
                node.sides | {(cut.feature, left)},
            )

        return child(ids[0], True), child(ids[1], False)


def between(low: float, high: float, dtype: Any = None, share: float = 0.5) -> float:
    """A number between two, such that ``low <= number < high`` also as a number of the data's type."""
    middle = low * (1 - share) + high * share
    if not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        return middle if low <= middle < high else low
    if dtype != torch.float64:
        middle = torch.tensor(middle, dtype=dtype).item()
    if low <= middle < high:
        return middle
    below = torch.tensor(high, dtype=dtype)  # the greatest number of the type below `high`: no point is in between
    if below.item() >= high:
        below = below.nextafter(torch.tensor(-torch.inf, dtype=dtype))
    return below.item()

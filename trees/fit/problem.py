"""The problem that a tree explainer solves: points, the columns that are cut, and the reference clustering."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from neonxc.common.processes import ALONE, Ranks
from neonxc.data.labels import class_order
from neonxc.trees.cuts.codes import CodedColumns, code_columns
from neonxc.trees.cuts.entries import SparseColumns
from neonxc.trees.cuts.exact_sums import counts_by_label, exact_total, rounded
from neonxc.trees.cuts.snapping import EPS, relative_mass
from neonxc.trees.fit.batches import Batches
from neonxc.trees.fit.given import Given
from neonxc.trees.fit.mixed import MixedTable, centers_in_columns
from neonxc.trees.fit.reference import Reference, filled, from_centers, from_labels
from neonxc.trees.fit.sparse_points import Points
from neonxc.trees.tree import canonical_columns

if TYPE_CHECKING:
    from neonxc.trees.cuts.nodes import Node


@dataclass
class Problem:
    """Points, the columns that are cut, and the reference clustering.

    Attributes
    ----------
    table : Points
        The columns that are cut.
    columns : CodedColumns or SparseColumns
        The codes of the columns.
    reference : Reference
        The reference clustering, with the space in which costs are measured: the table itself unless the reference
        is a pipeline or the table has categories or missing values.
    weight : Tensor [n] of float64 or None
        Weights of the points, rounded so that sums are exact.
    metric : {"l2", "l1"}
        Costs are squared Euclidean ("l2") or Manhattan ("l1") distances.
    mixed : MixedTable or None
        The data frame from which the table was made, if that has categories or missing values.
    ranks : Ranks
        The processes that share the rows; all use the same codes.
    """

    table: Points
    columns: CodedColumns | SparseColumns
    reference: Reference
    weight: Tensor | None
    metric: str = "l2"
    mixed: MixedTable | None = None
    ranks: Ranks = ALONE

    def __post_init__(self) -> None:
        self._distances: Tensor | None = None
        if self.weight is not None:
            self.weight = rounded(self.weight, exact_total(self.weight, self.ranks))

    @property
    def n(self) -> int:
        """Number of points of this process."""
        return self.table.n

    @property
    def labels(self) -> Tensor:
        """Reference cluster of every point, 0 to k - 1, [n] of int64."""
        return self.reference.labels

    @property
    def centers(self) -> Tensor:
        """Reference centers, in the units of the columns, [k, d] of float64."""
        return self.reference.centers

    @property
    def sharded(self) -> bool:
        """Whether the rows are distributed over several processes."""
        return not self.ranks.alone

    def reduce(self, values: Tensor, operation: str = "sum") -> Tensor:
        """Add values (or take their maximum, with "max") over all processes."""
        return self.ranks.sum(values) if operation == "sum" else self.ranks.max(values)

    def least(self, values: Tensor) -> float:
        """Minimum of one value per point over all processes."""
        none = values.new_full((1,), -torch.inf)
        return -float(self.reduce(torch.cat([-values, none]).amax(0, keepdim=True), "max"))

    @property
    def k(self) -> int:
        """Number of reference clusters."""
        return len(self.centers)

    @property
    def device(self) -> torch.device:
        """Device of the computation."""
        return self.labels.device

    @property
    def filled(self) -> Points:
        """The table with missing values filled in; centers are means of its points."""
        return self.table if self.mixed is None else self.mixed.filled

    @cached_property
    def canonical_columns(self) -> Sequence[int]:
        """For every column, the first column with the same tests up to the side of missing numbers."""
        return range(self.table.d) if self.mixed is None else canonical_columns(self.mixed.encoding)

    @cached_property
    def variances(self) -> Tensor:
        """Factors by which variances of columns are divided before they are compared, [d].

        They are 1 if costs are measured in the columns themselves, and for categories. Otherwise they are the
        variances of the columns over all points.
        """
        if self.reference.space is self.table:
            return torch.ones(self.table.d, dtype=torch.float64, device=self.device)
        every = torch.arange(self.n, device=self.device)
        variances = self.table.variances(every, self.weight, self.ranks)
        return variances if self.mixed is None else variances.where(self.mixed.encoding.is_number, 1)

    @property
    def distances(self) -> Tensor:
        """Cost of every point at every reference center, [n, k] of float64.

        The costs are rounded to multiples of a tiny power of 2, so that sums of them and of their differences are
        exact.
        """
        if self._distances is None:  # no cached_property, whose lock several shards in one process would wait for
            found = self.reference.distances
            own = self.reference
            if found is None:
                found = own.space.distances(own.space_centers, self.metric)
            self._distances = rounded(found, exact_total(found.amax(1), self.ranks), found)
        return self._distances

    def exact(self, values: Tensor) -> Tensor:
        """Round values [..., points] so that their sums over all processes are exact."""
        return rounded(values, exact_total(values, self.ranks)[..., None])

    def weighted(self, costs: Tensor, rows: Tensor, total: float | None = None) -> Tensor:
        """Multiply costs [m, points] by the weights of the points, and round them so that sums are exact.

        Parameters
        ----------
        costs : Tensor [m, points]
        rows : Tensor [points] of int64
            Indices of the points.
        total : float, optional
            Upper bound of the total cost. Default: the sum of the largest cost of every point.
        """
        weight = self.weights(rows)
        if weight is None:
            return costs
        costs = costs * weight
        most = exact_total(costs.abs().amax(0), self.ranks) if total is None else costs.new_tensor(total)
        return rounded(costs, most, costs)

    def cost(self, labels: Tensor) -> float:
        """Total cost of the points at the reference centers of the clusters `labels` [n]."""
        costs = self.distances.gather(1, labels[:, None]).T
        return float(self.reduce(self.weighted(costs, torch.arange(self.n, device=self.device)).sum()))

    def inertia(self, labels: Tensor, means: Tensor) -> float:
        """k-means cost of clusters with the given means; known distances to the reference centers are reused."""
        found = self.reference
        weight = self.weight
        ranks = self.ranks
        distances = found.distances
        if distances is not None and self.metric == "l2" and means.shape == found.space_centers.shape:
            mass = ranks.sum(counts_by_label(labels, len(means), weight))
            costs = torch.stack([distances.gather(1, labels[:, None])[:, 0], distances.amax(1)])
            cost, farthest = exact_total(costs if weight is None else costs * weight, ranks)
            squared_shift = (means - found.space_centers).square().sum(1)
            result = float(cost - (mass * squared_shift).sum())  # rounds alike in all processes, unlike a product
            if result > 1e-4 * float(farthest):  # otherwise the difference is inaccurate
                return result
        return found.space.cost(means, labels, weight, ranks)

    @cached_property
    def reference_cost(self) -> float | None:
        """k-means cost of the reference, to the means of its clusters; None for batches and "l1"."""
        if self.metric != "l2" or isinstance(self.table, Batches):
            return None
        found = self.reference
        means = found.space_centers
        clusters = (found.labels, self.k, self.weight)
        if not found.by_means:
            means = filled(found.space.means(*clusters, self.ranks), means)
        cost = self.inertia(found.labels, means)
        low, high = found.space.ends(self.ranks)
        off = EPS * (relative_mass(*clusters, self.ranks)[:, None] * (high - low) + 2 * means.abs())
        mass = self.reduce(counts_by_label(*clusters))
        return cost if cost > float(mass @ off.square().sum(1)) else 0.0  # else only the means' rounding

    def weights(self, rows: Tensor) -> Tensor | None:
        """Weights of a subset of the points; None if there are no weights."""
        return None if self.weight is None else self.weight.index_select(0, rows)

    def clusters(self, node: Node) -> tuple[Tensor, Tensor]:
        """The reference clusters of a node's points, and the mass of each."""
        if node.clusters is None:
            own = self.labels.index_select(0, node.rows)
            mass = self.reduce(counts_by_label(own, self.k, self.weights(node.rows)))
            present = mass.nonzero()[:, 0]
            node.clusters = present, mass[present]
        return node.clusters

    def points(self, rows: Tensor) -> Tensor:
        """Points in the space of the costs, relative to the first center, [points, p] of float64."""
        table = self.reference.space.take(rows)
        return table.columns(0, table.d).T.to(torch.float64) - self.reference.space_centers[0]

    def positions(self, rows: Tensor, clusters: Tensor) -> Tensor:
        """Positions of the labels of a subset of the points in a list of clusters."""
        place = torch.zeros(self.k, dtype=torch.int64, device=self.device)
        place[clusters] = torch.arange(len(clusters), device=self.device)
        return place.index_select(0, self.labels.index_select(0, rows))


def explained(given: Given, centers: Any, metric: str, ranks: Ranks) -> Reference | None:
    """The reference clustering of the labels or centers that `fit` was handed; None if it was handed neither."""
    if given.labels is not None:
        return from_labels(given.space, given.labels, metric, given.weight, ranks)
    if centers is None:
        return None
    with ranks.agreed():
        if given.mixed is not None:
            raise ValueError("centers needs an X without categories and missing values; pass labels instead")
        return from_centers(given.space, centers, metric, given.names)


def problem_in_memory(given: Given, found: Reference, model: Any, ranks: Ranks) -> Problem:
    """The problem of a table in memory, or of the rows of one process of a group.

    Parameters
    ----------
    given : Given
    found : Reference
        The clustering of ``given.space``.
    model : TreeExplainer
        Its parameters `metric` and `max_bins` are used.
    ranks : Ranks
    """
    if given.mixed is not None:
        found = centers_in_columns(found, given.mixed, model.metric, given.weight)
    if ranks.alone:
        found.reorder(class_order(given.order, found.classes))
    n = relative_mass(found.labels, len(found.classes), given.weight, ranks)
    columns, centers = code_columns(given.table, found.centers, model.max_bins, given.weight, ranks, n)
    found = replace(found, centers=centers)
    return Problem(given.table, columns, found, given.weight, model.metric, given.mixed, ranks)


def problem_in_batches(given: Given, found: Reference, model: Any, measured: bool, ranks: Ranks) -> Problem:
    """The problem of a table that is read batch by batch, once more for its codes.

    Parameters
    ----------
    given : Given
    found : Reference
    model : TreeExplainer
        Its parameter `metric` is used.
    measured : bool
        Whether the distances of all points to the centers are kept.
    ranks : Ranks
    """
    table: Any = given.table
    space: Any = found.space
    labels = None if found.of_sample else found.labels
    near = measured and space is table
    columns, centers, labels, far = table.code(found.centers, labels, model.metric, near)
    if measured and space is not table:
        *_, far = space.code(found.space_centers, labels, model.metric, True)
    found = replace(found, centers=centers, labels=labels, distances=far)
    return Problem(table, columns, found, None, model.metric, ranks=ranks)

"""Step 3 of a fit: the problem that is solved by growing, with every column as integer codes.

    code of a value     its rank among the distinct values of the column, or the number of its bin (`max_bins`)
    cost of a point     squared Euclidean ("l2") or Manhattan ("l1") distance to a reference center, in `space`

Costs and weights are rounded to multiples of a power of 2, so that sums of them are exact: they do not depend on
the order of the points, nor on how the rows are distributed over processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from neonxc.common.processes import ALONE, Ranks
from neonxc.data.labels import class_order
from neonxc.trees.cuts.codes import CodedColumns, SharedCodes, code_columns
from neonxc.trees.cuts.entries import SparseColumns
from neonxc.trees.cuts.exact_sums import counts_by_label, exact_total, relative_mass, rounded
from neonxc.trees.cuts.ranks import EPS
from neonxc.trees.fit.batches import Batches
from neonxc.trees.fit.mixed import MixedTable, centers_in_columns
from neonxc.trees.fit.points import filled
from neonxc.trees.fit.reference import Reference
from neonxc.trees.fit.sparse_points import Points
from neonxc.trees.fit.training_data import TrainingData
from neonxc.trees.tree import canonical_columns

if TYPE_CHECKING:
    from neonxc.trees.cuts.growth import Node
    from neonxc.trees.estimator import TreeExplainer


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
    n, k : int
        Number of points of this process, and of reference clusters.
    labels : Tensor [n] of int64
        Reference cluster of every point, 0 to k - 1.
    centers : Tensor [k, d] of float64
        Reference centers, in the units of the columns.
    sharded : bool
        Whether the rows are distributed over several processes.
    device : torch.device
        Device of the computation.
    """

    table: Points
    columns: CodedColumns | SparseColumns
    reference: Reference
    weight: Tensor | None
    metric: str = "l2"
    mixed: MixedTable | None = None
    ranks: Ranks = ALONE
    n: int = field(init=False)
    k: int = field(init=False)
    labels: Tensor = field(init=False, repr=False)
    centers: Tensor = field(init=False, repr=False)
    sharded: bool = field(init=False)
    device: torch.device = field(init=False)
    _distances: Tensor | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        self.n = self.table.n
        self.k = len(self.reference.centers)
        self.labels = self.reference.labels
        self.centers = self.reference.centers
        self.sharded = not self.ranks.alone
        self.device = self.labels.device
        if self.weight is not None:
            self.weight = rounded(self.weight, exact_total(self.weight, self.ranks))

    def reduce(self, values: Tensor, operation: str = "sum") -> Tensor:
        """Add values (or take their maximum, with "max") over all processes."""
        if not self.sharded:
            return values
        if operation == "sum":
            return self.ranks.sum(values)
        return self.ranks.max(values)

    def least(self, values: Tensor) -> float:
        """Compute the minimum of one value per point over all processes."""
        nothing = values.new_full((1,), -torch.inf)  # so that a process without points has a maximum
        largest = torch.cat([-values, nothing]).amax(0, keepdim=True)
        return -float(self.reduce(largest, "max"))

    @property
    def filled(self) -> Points:
        """The table with missing values filled in; centers are means of its points."""
        if self.mixed is None:
            return self.table
        return self.mixed.filled

    @cached_property
    def canonical_columns(self) -> Sequence[int]:
        """For every column, the first column with the same tests up to the side of missing numbers."""
        if self.mixed is None:
            return range(self.table.d)
        return canonical_columns(self.mixed.encoding)

    @cached_property
    def variances(self) -> Tensor:
        """Factors by which variances of columns are divided before they are compared, [d].

        They are 1 if costs are measured in the columns themselves, and for categories. Otherwise they are the
        variances of the columns over all points.
        """
        if self.reference.space is self.table:
            return torch.ones(self.table.d, dtype=torch.float64, device=self.device)
        variances = self.table.variances(self.weight, self.ranks)
        if self.mixed is None:
            return variances
        return variances.where(self.mixed.encoding.is_number, 1)

    @property
    def distances(self) -> Tensor:
        """Cost of every point at every reference center, [n, k] of float64.

        The costs are rounded to multiples of a tiny power of 2, so that sums of them and of their differences are
        exact.
        """
        if self._distances is None:  # no cached_property, whose lock several shards in one process would wait for
            reference = self.reference
            costs = reference.distances
            if costs is None:
                costs = reference.space.distances(reference.space_centers, self.metric)
            largest = exact_total(costs.amax(1), self.ranks)
            self._distances = rounded(costs, largest, costs)
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
        if total is None:
            bound = exact_total(costs.abs().amax(0), self.ranks)
        else:
            bound = costs.new_tensor(total)
        return rounded(costs, bound, costs)

    def cost(self, labels: Tensor) -> float:
        """Compute the total cost of the points at the reference centers of the clusters `labels` [n]."""
        costs = self.distances.gather(1, labels[:, None]).T
        all_rows = torch.arange(self.n, device=self.device)
        return float(self.reduce(self.weighted(costs, all_rows).sum()))

    def inertia(self, labels: Tensor, means: Tensor) -> float:
        """Compute the k-means cost of clusters with the given means, from known distances if there are any.

        For a cluster of mass m with mean mu, and its reference center c, the cost follows from the parallel axis
        theorem: ``sum_i w_i |x_i - mu|^2 = sum_i w_i |x_i - c|^2 - m |mu - c|^2``.
        """
        reference = self.reference
        weight = self.weight
        distances = reference.distances
        if distances is not None and self.metric == "l2" and means.shape == reference.space_centers.shape:
            mass = counts_by_label(labels, len(means), weight, self.ranks)
            costs = torch.stack([distances.gather(1, labels[:, None])[:, 0], distances.amax(1)])
            if weight is not None:
                costs = costs * weight
            cost, farthest = exact_total(costs, self.ranks)
            squared_shift = (means - reference.space_centers).square().sum(1)
            result = float(cost - (mass * squared_shift).sum())  # rounds alike in all processes, unlike a product
            if result > 1e-4 * float(farthest):  # otherwise the difference is inaccurate
                return result
        return reference.space.cost(means, labels, weight, self.ranks)

    @cached_property
    def reference_cost(self) -> float | None:
        """k-means cost of the reference, to the means of its clusters; None for batches and "l1"."""
        if self.metric != "l2" or isinstance(self.table, Batches):
            return None
        space = self.reference.space
        low, high = space.ends(self.ranks)
        means = self.reference.space_centers
        if not self.reference.by_means:
            means = filled(space.means(self.labels, self.k, self.weight, self.ranks), means)
        cost = self.inertia(self.labels, means)

        # a cost that is no larger than what the rounding of the means explains is 0
        n = relative_mass(self.labels, self.k, self.weight, self.ranks)
        rounding = EPS * (n[:, None] * (high - low) + 2 * means.abs())
        mass = counts_by_label(self.labels, self.k, self.weight, self.ranks)
        if cost > float(mass @ rounding.square().sum(1)):
            return cost
        return 0.0

    def weights(self, rows: Tensor) -> Tensor | None:
        """Return the weights of a subset of the points; None if there are no weights."""
        if self.weight is None:
            return None
        return self.weight.index_select(0, rows)

    def clusters(self, node: Node) -> tuple[Tensor, Tensor]:
        """Return the reference clusters of a node's points, and the mass of each."""
        if node.clusters is None:
            labels = self.labels.index_select(0, node.rows)
            mass = counts_by_label(labels, self.k, self.weights(node.rows), self.ranks)
            present = mass.nonzero()[:, 0]
            node.clusters = present, mass[present]
        return node.clusters

    def points(self, rows: Tensor) -> Tensor:
        """Return the points in the space of the costs, relative to the first center, [points, p] of float64."""
        table = self.reference.space.take(rows)
        return table.columns(0, table.d).T.to(torch.float64) - self.reference.space_centers[0]

    def positions(self, rows: Tensor, clusters: Tensor) -> Tensor:
        """Return the positions of the labels of a subset of the points among clusters in ascending order."""
        labels = self.labels.index_select(0, rows)
        if len(clusters) == self.k:  # these are all clusters
            return labels
        position = torch.zeros(self.k, dtype=torch.int64, device=self.device)
        position[clusters] = torch.arange(len(clusters), device=self.device)
        return position.index_select(0, labels)


def coded(
    data: TrainingData,
    reference: Reference,
    explainer: TreeExplainer,
    ranks: Ranks,
    shared: SharedCodes | None = None,
) -> Problem:
    """Code the columns of the training data, and snap the reference centers to values that they equal.

    Parameters
    ----------
    data : TrainingData
    reference : Reference
        The clustering of ``data.space``.
    explainer : TreeExplainer
        Its parameters `metric` and `max_bins` are used.
    ranks : Ranks
    shared : SharedCodes, optional
        The codes of earlier problems with the same points; for a single process.
    """
    if isinstance(data.table, Batches):
        return _coded_in_batches(data, data.table, reference, explainer, ranks)
    if data.mixed is not None:
        reference = centers_in_columns(reference, data.mixed, explainer.metric, data.weight)
    if ranks.alone and data.passed_labels is not None:
        reference = reference.reordered(class_order(data.passed_labels, reference.classes))
    n = relative_mass(reference.labels, len(reference.classes), data.weight, ranks)
    if shared is None:
        columns, centers = code_columns(data.table, reference.centers, explainer.max_bins, data.weight, ranks, n)
    else:
        columns, centers = shared.code_columns(data.table, reference.centers, explainer.max_bins, data.weight, n)
    reference = replace(reference, centers=centers)
    return Problem(data.table, columns, reference, data.weight, explainer.metric, data.mixed, ranks)


def _coded_in_batches(
    data: TrainingData, table: Batches, reference: Reference, explainer: TreeExplainer, ranks: Ranks
) -> Problem:
    """Read a table batch by batch once more, for its codes and, if growing needs them, for distances."""
    space = cast("Points | Batches", reference.space)
    metric = explainer.metric
    needs_distances = explainer._needs_distances()
    labels = None if reference.of_sample else reference.labels
    of_table = needs_distances and space is table
    columns, centers, labels, distances = table.code(reference.centers, labels, metric, of_table)
    if needs_distances and isinstance(space, Batches) and space is not table:
        *_, distances = space.code(reference.space_centers, labels, metric, True)
    reference = replace(reference, centers=centers, labels=labels, distances=distances)
    return Problem(cast("Points", table), columns, reference, None, metric, ranks=ranks)

"""Base class of explainers that find clusters themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from neonxc.common.processes import ALONE, Ranks
from neonxc.trees.coding.matrix import DataMatrix
from neonxc.trees.estimator import TreeExplainer
from neonxc.trees.fitted.builder import TreeBuilder
from neonxc.trees.problem import Node
from neonxc.trees.reading import reference as references
from neonxc.trees.reading.mixed import centers_in_columns
from neonxc.trees.reading.preparation import PreparedData
from neonxc.trees.reading.reference import Reference


class OwnClusters(TreeExplainer):
    """Base class of trees that need no reference clustering; if one is given, it only labels the leaves."""

    _no_group_reason = "finding its own clusters takes all points"
    _has_price = False
    n_clusters: int | None  # type: ignore[assignment]

    def _reference(
        self, table: DataMatrix, X: Any, labels: Any, centers: Any, weight: Tensor | None, ranks: Ranks = ALONE
    ) -> Reference:
        if self._given:
            return super()._reference(table, X, labels, centers, weight, ranks)
        if self.n_clusters is not None and table.n < self.n_clusters:
            raise ValueError(f"X has n_samples={table.n}, fewer than n_clusters={self.n_clusters}")
        return references.from_labels(table, np.zeros(table.n, dtype=np.int64), self.metric, weight)

    def _finish(
        self, data: PreparedData, builder: TreeBuilder, leaves: list[Node], clusters: dict[int, int] | None
    ) -> None:
        if not self._given and clusters is not None:  # the tree's own clusters become the reference
            label = np.empty(data.problem.table.n, dtype=np.int64)
            for leaf in leaves:
                label[leaf.rows.cpu().numpy()] = clusters[leaf.id]
            own = references.from_labels(data.problem.space, label, self.metric, data.problem.weight)
            data = replace(
                data, reference=centers_in_columns(own, data.problem.mixed, self.metric, data.problem.weight)
            )
        super()._finish(data, builder, leaves, clusters)

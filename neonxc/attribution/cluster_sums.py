"""Relevance of many points summed by cluster, for :meth:`neonxc.NEON.summary`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from neonxc.attribution.cluster_values import ValueSums
from neonxc.attribution.decisions import Decisions
from neonxc.carriers import Carrier, rows
from neonxc.common.processes import Ranks
from neonxc.data.distributed import without_rows


def summed_by_cluster(
    carrier: Carrier, decisions: Decisions, X: Any, values: ValueSums, ranks: Ranks
) -> tuple[Tensor, Tensor, Tensor, torch.dtype]:
    """Explain the own cluster of every point of one process, and sum relevance and values by cluster.

    The sums of the features' values are added to `values`.

    Returns
    -------
    logit : Tensor [n] of float64
    column : Tensor [n] of int64
        The cluster of each point; K for noise.
    total : Tensor [K + 1, units] of float64
        Sums of the relevance over the points of each cluster, and over noise.
    dtype : torch.dtype
        The type of the inputs.
    """
    net, K = decisions.net, decisions.net.head.n_clusters
    total = torch.zeros(K + 1, len(carrier.units), dtype=torch.float64)
    table = None if without_rows(X, ranks) else carrier.table(X)
    logits, columns = [torch.zeros(0, dtype=torch.float64)], [torch.zeros(0, dtype=torch.int64)]
    dtype = torch.float32
    for x in () if without_rows(X, ranks) else carrier.parts(X):
        a, dtype = carrier.features(x), x.dtype
        points = rows(a)
        own = decisions.columns(a, None)[0]
        column = torch.where(net.is_noise(points), K, own)
        carrier.tally(x, points, decisions.of_columns(points, own), column, total)
        if table is None:
            values.add(carrier.values(x, points), column)
        columns.append(column.cpu())
        logits.append(decisions.logit(points, own).cpu().double())
    if table is not None:
        values.add_table(*table, torch.cat(columns))
    return torch.cat(logits), torch.cat(columns), total, dtype

"""The map of a report: coordinates, values and relevance of a sample of the points."""

from __future__ import annotations

import numpy as np

from neonxc.common.numbers import rounded
from neonxc.report.changes import smallest_changes
from neonxc.report.clustered import ClusteredData, stratified
from neonxc.report.description import Example, PointMap
from neonxc.report.projection import Projection, projected
from neonxc.report.relevance import Relevance
from neonxc.report.statements import printed
from neonxc.report.tree import FittedTree

MOST = 4000  # maximum number of points on the map, which keep the page small
VALUES = 40_000  # approximate number of values of all points together
LEAST = 15  # minimum number of points of a cluster, if it has that many
SIDE = 1000  # of the map


def map_points(
    clustering: ClusteredData,
    relevance: Relevance,
    examples: list[Example],
    tree: FittedTree,
    projection: Projection,
    n_changes: int,
) -> PointMap:
    """Take a stratified sample of the points, which includes the `examples` that the report shows.

    The smallest changes to another cluster are searched for `n_changes` of them.
    """
    n_max = max(500, min(MOST, VALUES // (len(relevance.shown) + 6)))
    needed = np.flatnonzero(np.isin(relevance.index, [example.row for example in examples]))
    spread = stratified(relevance.positions, n_max - min(n_max // 2, len(needed)), LEAST)
    sample = np.union1d(spread, needed)
    index = relevance.index[sample]

    plane, axes = projected(clustering.space(index), projection, clustering.weights_at(index))
    lowest = plane.min(0)
    extent = np.ptp(plane, 0)
    extent = np.where(extent > 0, extent, 1)
    x, up = np.round(SIDE * (plane - lowest) / extent).astype(int).T
    names = clustering.point_names
    return PointMap(
        rows=index.tolist(),
        names=names and [names[row] for row in index.tolist()],
        x=x.tolist(),
        y=(SIDE - up).tolist(),
        cluster=relevance.positions[sample].tolist(),
        competitor=relevance.competitor[sample].tolist(),
        leaf=tree.leaf[index].tolist(),
        logit=rounded(relevance.logit[sample]),
        values=[printed(values) for _, values in relevance.table.iloc[sample].items()],
        relevance=[rounded(shares, 3) for shares in relevance.shares[sample].T],
        total=rounded(relevance.total[sample]),
        changes=smallest_changes(clustering, relevance, index, np.searchsorted(sample, needed), n_changes),
        axes=axes,
    )

"""Dendrograms as forks: linkage matrices of SciPy, `children_` of scikit-learn, and the trees of both HDBSCANs.

A linkage Z [N - 1, 4] merges the clusters Z[k, 0] and Z[k, 1] at height Z[k, 2] to cluster N + k of Z[k, 3] rows;
clusters below N are single rows. Walking down from the root,

    a merge of two sides of at least `least` rows each      is a fork
    a side of fewer rows                                    falls off, and the larger side goes on
    two such sides                                          end the cluster

With `min_cluster_size` as `least` these are the clusters of HDBSCAN's condensed tree, which is its single-linkage
tree without smaller sides. The highest forks come first.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import is_valid_linkage

from neonxc.hierarchy.forks import ROOT, Fork, Hierarchy, Integers, Origin, part_name

ROUNDING = 1e-9
"""By how much of the largest height a merge may be lower than one inside it."""


class Dendrogram:
    """A linkage whose clusters are runs of one order of the rows.

    Parameters
    ----------
    Z : ndarray [N - 1, 4]
        A linkage matrix.

    Raises
    ------
    ValueError
        Z is no linkage matrix, or not monotone.
    """

    def __init__(self, Z: NDArray[np.float64]) -> None:
        _check(Z)
        self.n = len(Z) + 1
        self.sides = Z[:, :2].astype(np.int64)
        self.heights = Z[:, 2]
        self.sizes = np.concatenate([np.ones(self.n, np.int64), Z[:, 3].astype(np.int64)])
        starts = np.zeros(2 * self.n - 1, np.int64)
        # from the root, which is the last cluster, down: every cluster comes before its sides
        for merge in reversed(range(self.n - 1)):
            left, right = self.sides[merge]
            starts[left] = starts[self.n + merge]
            starts[right] = starts[left] + self.sizes[left]
        self.starts = starts
        self.order = np.argsort(starts[: self.n])

    @property
    def root(self) -> int:
        """The cluster of all rows."""
        return 2 * self.n - 2

    def rows(self, cluster: int) -> Integers:
        """Return the sorted rows of a cluster."""
        start = self.starts[cluster]
        return np.sort(self.order[start : start + self.sizes[cluster]])

    def merge_below(self, cluster: int, least: int) -> int | None:
        """Return the first merge of two sides of at least `least` rows in a cluster; None without one."""
        while cluster >= self.n:
            merge = cluster - self.n
            smaller, larger = sorted(self.sides[merge].tolist(), key=lambda side: self.sizes[side])
            if self.sizes[smaller] >= least:
                return merge
            cluster = larger
        return None

    def forks(self, n_forks: int, least: int, origin: Origin) -> Hierarchy:
        """Return the highest forks."""
        forks: list[Fork] = []
        waiting: list[
            tuple[float, int, str, int]
        ] = []  # minus the height, a merge, and the cluster that it divides

        def wait(cluster: int, name: str) -> None:
            merge = self.merge_below(cluster, least)
            if merge is not None:
                heappush(waiting, (-self.heights[merge], merge, name, cluster))

        wait(self.root, ROOT)
        n_further = 0
        while waiting:
            _, merge, name, cluster = heappop(waiting)
            sides = self.sides[merge].tolist()
            if len(forks) < n_forks:
                forks.append(self._fork(name, cluster, sides, least, origin))
            else:
                n_further += 1
            for number, side in enumerate(sides):
                wait(side, part_name(name, str(number)))
        return Hierarchy(forks, n_further)

    def _fork(self, name: str, cluster: int, sides: list[int], least: int, origin: Origin) -> Fork:
        """Return a fork of a cluster into the two sides of a merge."""
        rows = self.rows(cluster)
        codes = np.full(len(rows), -1)
        for number, side in enumerate(sides):
            codes[np.searchsorted(rows, self.rows(side))] = number
        elsewhere = {}
        n_left = int((codes < 0).sum())
        if n_left:
            elsewhere[f"sides of fewer than {least} rows"] = n_left
        children = [part_name(name, str(number)) for number in range(2)]
        return Fork(name, children, rows, codes, elsewhere, origin, [0, 1])


def _check(Z: NDArray[np.float64]) -> None:
    """Raise a ValueError unless Z is a linkage matrix whose merges rise."""
    # heights of HDBSCAN may be infinite, which SciPy does not look at
    try:
        is_valid_linkage(Z, throw=True, name="linkage")
    except (TypeError, ValueError) as error:
        raise ValueError(f"linkage needs a linkage matrix [rows - 1, 4] of SciPy: {error}") from None
    n = len(Z) + 1
    heights = np.concatenate([np.full(n, -np.inf), Z[:, 2]])
    inside = heights[Z[:, :2].astype(np.int64)].max(axis=1)
    finite = Z[np.isfinite(Z[:, 2]), 2]
    slack = ROUNDING * np.abs(finite).max(initial=0.0)
    is_lower = Z[:, 2] < inside - slack
    if is_lower.any():
        merge = int(np.argmax(is_lower))
        raise ValueError(
            f"the linkage is not monotone: merge {merge} at {Z[merge, 2]:.4g} is lower than one inside it, at "
            f"{inside[merge]:.4g}, so that its clusters are no layers; centroid and median linkages, and trees "
            "with connectivity constraints, may be so: use ward, average, complete or single"
        )


def linkage_of_children(children: Integers, heights: NDArray[np.float64] | None, n: int) -> NDArray[np.float64]:
    """Return the linkage of merges [N - 1, 2] of N rows; without heights, later merges are higher.

    Raises
    ------
    ValueError
        There are fewer merges, so that they are no tree of all rows.
    """
    if len(children) != n - 1:
        raise ValueError(
            f"children_ has {len(children)} merges of {n} rows, which are no tree of all of them: fit with "
            "compute_full_tree=True"
        )
    if heights is None:
        heights = np.arange(n - 1, dtype=np.float64)
    sizes = np.ones(2 * n - 1)
    for merge, (left, right) in enumerate(children):
        sizes[n + merge] = sizes[left] + sizes[right]
    return np.column_stack([children, heights, sizes[n:]]).astype(np.float64)

"""Detection layers whose neurons depend on the rows that are nearest to a point: those of every cluster.

Rows u and points are compared in the space of the clusterer, where a point with the coordinates y is at ``A y``
(:mod:`neonxc.head.preprocessing`)::

    squared distance     d(x, u)^2   = |A y - u|^2
    shares of columns    d_i(x, u)^2 = delta_i (A' (A y - u))_i    with delta = y - v and A v = u

The shares sum to the squared distance. Without preprocessing they are ``(x_i - u_i)^2``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from itertools import accumulate
from typing import Any, NamedTuple, Self

import torch
from scipy.spatial import cKDTree
from sklearn.neighbors import NearestNeighbors
from torch import Tensor
from torch.nn.functional import pad

from neonxc.common.memory import at_once
from neonxc.data.inputs import check_range, compute_dtype
from neonxc.data.sparse import SparseRows, dense
from neonxc.head.detection import CoordinateDetection, full_precision
from neonxc.head.preprocessing import Preprocessing, mapped, pulled_back

DENSE = 1 << 19
"""Number of distances that are computed at once, without a search; on other devices than the CPU, all are.

With 14,000 rows of 6 columns, or 6,000 rows of 2 to 64 columns, searches take 0.2 to 1 times as long beyond it."""
SMALL = 1 << 17
"""Number of differences up to which few operations on all of them take less time than many on one column each."""
TREE_COLUMNS = 5
"""Number of columns up to which k-d trees save time for points of other clusters."""
TREE_COLUMNS_SELF = 15
"""Number of columns up to which k-d trees save time for points of their own cluster."""

Search = Callable[[Tensor, int], tuple[Tensor, Tensor]]
"""Finds the distances [N, k] of the k nearest rows to points [N, p], and the numbers of these rows."""


class QueryPoints(NamedTuple):
    """Points in the space of the clusterer; in float64, as its distances are."""

    z: Tensor  # [N, p], A y
    y: Tensor  # [N, d], the coordinates
    norm: Tensor | float  # [N, 1], n(x)
    dtype: torch.dtype  # of the results


class MemberDetection(CoordinateDetection):
    """Base class of detection layers that know the rows of every cluster.

    Parameters
    ----------
    points : Tensor [M, p]
        The rows in the space of the clusterer, relative to where the coordinates are zero. That is its origin, so
        that differences are rounded as the clusterer rounds them.
    groups : Tensor [M] of int64
        Cluster of each, in ascending order.
    weight : Tensor [d] or [p, d]
        Map from the coordinates to that space.
    back : Tensor [d] or [d, p]
        Map from that space to the coordinates.
    rank : int
        Number of nearest rows of every cluster that are looked at.
    **parts
        The coordinates, see :class:`~neonxc.head.detection.CoordinateDetection`, and what else a layer needs.

    Notes
    -----
    The columns' shares of a squared distance are defined in the module's docstring. The contrast of two clusters
    is then measured from the point half-way between their rows (NEON paper, Eq. 4).
    """

    PLAIN = ("diagonal", "norm", "rank")
    searches = True
    rank = 1
    points: Tensor
    groups: Tensor
    weight: Tensor
    back: Tensor

    @classmethod
    def of(cls, points: Tensor, groups: Tensor, preprocessing: Preprocessing, **parts: Any) -> Self:
        """Make a layer of points [M, p] in the space that a preprocessing leads to."""
        points = points.double() - preprocessing.offset
        weight = preprocessing.weight
        if preprocessing.diagonal:
            back = 1 / weight
        else:
            unit_vectors = torch.eye(points.shape[1]).to(points)
            back = preprocessing.preimage(unit_vectors).T
        frame = preprocessing.coordinates(torch.zeros_like(points[0])).parts()
        return cls(points=points, groups=groups, weight=weight, back=back, **parts, **frame)

    @property
    def n_features(self) -> int:
        """Number of raw columns d."""
        return self.weight.shape[-1]

    @property
    def width(self) -> int:
        """The number of values computed per point: one difference per cluster and column."""
        return self.n_neurons * max(self.n_features, self.points.shape[1])

    @property
    def references(self) -> Tensor:
        """The rows in raw columns."""
        return self.unmapped(self.points)

    def unmapped(self, points: Tensor) -> Tensor:
        """Map points [M, p] of the space of the clusterer to raw columns [M, d]."""
        return self.root + self.origin + mapped(self.back, points)

    def check(self, x: Tensor, names: Sequence[str] | None = None) -> None:
        """Raise a ValueError if squared distances overflow."""
        root = (torch.finfo(x.dtype).max / (16 * self.n_features)) ** 0.5
        largest = self.kept("largest", lambda: float(self.weight.abs().amax()))
        check_range(x, root / max(largest, 1.0), names=names)

    def query(self, x: Tensor | SparseRows) -> QueryPoints:
        """Map points [N, d] to the space of the clusterer."""
        with full_precision(x):
            y, norm = self.coordinates(dense(x).double())
            return QueryPoints(mapped(self.weight.to(y), y), y, norm, compute_dtype(x.dtype))

    def nearest(self, z: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Search the k nearest rows of every cluster.

        Parameters
        ----------
        z : Tensor [N, p] of float64
        k : int

        Returns
        -------
        distances : Tensor [N, G, k]
            In ascending order; infinite where a cluster has less than k rows.
        rows : Tensor [N, G, k] of int64
            Their numbers.
        """
        on_cpu = z.device.type == "cpu"
        batch_size = at_once(16 * len(self.points), z.device)
        if not on_cpu and len(z) > batch_size:
            batches = [self.nearest(batch, k) for batch in z.split(batch_size)]
            return torch.cat([distances for distances, _ in batches]), torch.cat([rows for _, rows in batches])

        if on_cpu and len(z) * len(self.points) > DENSE:
            searches = zip(self._searches, self.sizes, strict=True)
            by_cluster = [search(z, min(k, size)) for search, size in searches]
        else:
            squared = _squared_distances(z, self.points.to(z))
            by_cluster = [_smallest(of_cluster, k) for of_cluster in squared.split(self.sizes, dim=1)]
        all_distances = []
        all_rows = []
        for (distances, rows), first_row in zip(by_cluster, self._starts, strict=True):
            all_distances.append(_padded(distances, k, torch.inf))
            all_rows.append(_padded(rows, k, 0) + first_row)
        return torch.stack(all_distances, dim=1), torch.stack(all_rows, dim=1)

    def squares(self, at: QueryPoints, rows: Tensor) -> Tensor:
        """Divide the squared distances to rows [N, G] among the columns, [N, G, d]."""
        differences = self.differences(at.z, rows)
        if self.diagonal:
            return differences.square()
        preimages = mapped(self.back.to(at.y), self.points[rows].to(at.y))
        delta = at.y[:, None] - preimages
        return delta * self.pulled(differences)

    def differences(self, z: Tensor, rows: Tensor) -> Tensor:
        """Differences [N, G, p] of points [N, p] to rows [N, G]."""
        return z[:, None] - self.points[rows].to(z)

    def pulled(self, delta: Tensor) -> Tensor:
        """Compute ``A' delta`` [N, G, d] of differences [N, G, p]."""
        return pulled_back(self.weight.to(delta), delta)

    @property
    def plain(self) -> bool:
        """Whether the space of the clusterer is that of the raw columns."""
        return self.weight.ndim == 1 and not self.root.any() and bool((self.weight == 1).all())

    @cached_property
    def precision(self) -> float:
        """Bound of the rounding in the space of the clusterer, in units of a dtype's relative precision."""
        raw = mapped(self.back, self.points).abs().amax(dim=0) + self.root.abs()
        size = float(mapped(self.weight.abs(), raw).norm())
        if self.weight.ndim == 1:
            return size
        n_summands = self.weight.shape[1]
        return n_summands * size

    @cached_property
    def sizes(self) -> list[int]:
        """Number of rows of every cluster."""
        return torch.bincount(self.groups).tolist()

    @cached_property
    def _starts(self) -> list[int]:
        """Number of the first row of every cluster."""
        return [0, *accumulate(self.sizes[:-1])]

    @cached_property
    def _searches(self) -> list[Search]:
        """The search among the rows of every cluster."""
        clusters = self.points.double().cpu().split(self.sizes)
        return [search_among(points, self.rank, TREE_COLUMNS) for points in clusters]


def _padded(values: Tensor, k: int, value: float) -> Tensor:
    """Append columns of a value up to k columns, [N, k]."""
    n_missing = k - values.shape[1]
    return pad(values, (0, n_missing), value=value) if n_missing else values


def _squared_distances(z: Tensor, points: Tensor) -> Tensor:
    """Squared distances [N, M]; of few columns added up as by a k-d tree, for ties at a radius."""
    if z.shape[1] > TREE_COLUMNS_SELF:
        return torch.cdist(z, points, compute_mode="donot_use_mm_for_euclid_dist").square_()
    if len(z) * points.numel() <= SMALL:
        return (z[:, None] - points).square_().cumsum(dim=2)[:, :, -1]
    squared = z.new_zeros(len(z), len(points))
    for z_column, points_column in zip(z.T, points.T, strict=True):
        squared += (z_column[:, None] - points_column).square_()
    return squared


def _smallest(squared: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Find the k smallest distances [N, k] of squared ones [N, M], and their columns.

    Of equal ones, the first is taken if k = 1.
    """
    if k == 1:
        smallest, rows = squared.min(dim=1, keepdim=True)
    else:
        smallest, rows = squared.topk(min(k, squared.shape[1]), dim=1, largest=False)
    return smallest.sqrt(), rows


def search_among(points: Tensor, rank: int, max_columns: int = TREE_COLUMNS_SELF) -> Search:
    """Return a function that finds the distances [N, k] of the k nearest points to rows [N, p], and their numbers.

    SciPy's k-d tree takes half the time of scikit-learn's. That one adds up squares as DBSCAN does, for ties at a
    radius, and is used where the nearest point alone is looked at.
    """
    array = points.numpy()
    find: Callable[..., Any]
    if rank > 1 and points.shape[1] <= max_columns:
        find = partial(cKDTree(array).query, workers=torch.get_num_threads())
    else:
        algorithm = "brute" if rank > 1 else "auto"
        find = NearestNeighbors(algorithm=algorithm).fit(array).kneighbors
    return partial(_as_tensors, find)  # which can be pickled


def _as_tensors(find: Callable[..., Any], z: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Call a search of NumPy arrays; its distances and row numbers are [N, k] also for k = 1."""
    distances, rows = find(z.numpy(), k)
    return torch.from_numpy(distances).view(len(z), k), torch.from_numpy(rows).view(len(z), k)

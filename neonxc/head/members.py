"""Detection layers whose neurons depend on the rows that are nearest to a point: those of every cluster."""

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
from neonxc.head.detection import Framed, Preprocessing, full_precision, mapped

DENSE = 1 << 21
"""Number of distances that are computed at once, without a search; on other devices than the CPU, all are."""
SMALL = 1 << 17
"""Number of differences up to which few operations on all of them take less time than many on one column each."""
FEW = 5
OWN = 15
"""Number of columns up to which k-d trees save time: for points of other clusters, and for their own ones."""

Search = Callable[[Tensor, int], tuple[Tensor, Tensor]]


class QueryPoints(NamedTuple):
    """Points in the space of the clusterer; in float64, as its distances are."""

    z: Tensor  # [N, p], in the space of the clusterer
    y: Tensor  # [N, d], the coordinates
    norm: Tensor | float  # [N, 1]
    dtype: torch.dtype  # of the results


class MemberDetection(Framed):
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
        The coordinates, see :class:`~neonxc.head.detection.Framed`, and what else a layer needs.

    Notes
    -----
    With ``delta = y - u`` for a row u, column i gets ``delta_i (A'A delta)_i`` of its squared distance, where A is
    the map to the space of the clusterer: ``(x_i - u_i)^2`` without preprocessing. The contrast of two clusters is
    then measured from the point half-way between their rows (NEON paper, Eq. 4).
    """

    PLAIN = ("diagonal", "norm", "rank")
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
        eye = torch.eye(points.shape[1]).to(points)
        back = 1 / weight if preprocessing.diagonal else preprocessing.preimage(eye).T
        frame = preprocessing.frame(torch.zeros_like(points[0]))
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
        check_range(x, root / max(float(self.weight.abs().amax()), 1.0), names=names)

    def placed(self, x: Tensor | SparseRows) -> QueryPoints:
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
        far : Tensor [N, G, k]
            Their distances in ascending order; infinite where a cluster has less than k rows.
        rows : Tensor [N, G, k] of int64
            Their numbers.
        """
        on_cpu = z.device.type == "cpu"
        room = at_once(16 * len(self.points), z.device)
        if not on_cpu and len(z) > room:
            parts = [self.nearest(part, k) for part in z.split(room)]
            return torch.cat([far for far, _ in parts]), torch.cat([rows for _, rows in parts])
        if on_cpu and len(z) * len(self.points) > DENSE:
            found = [search(z, min(k, size)) for search, size in zip(self._searches, self.sizes, strict=True)]
        else:
            found = [_least(part, k) for part in _distances(z, self.points.to(z)).split(self.sizes, dim=1)]
        far = [_padded(own, k, torch.inf) for own, _ in found]
        rows = [_padded(row, k, 0) + first for (_, row), first in zip(found, self._starts, strict=True)]
        return torch.stack(far, dim=1), torch.stack(rows, dim=1)

    def squares(self, at: QueryPoints, rows: Tensor) -> Tensor:
        """The columns' shares [N, G, d] of the squared distances to rows [N, G]."""
        if self.diagonal:
            return self.differences(at.z, rows).square()
        away = at.y[:, None] - mapped(self.back.to(at.y), self.points[rows].to(at.y))
        return away * self.pulled(self.differences(at.z, rows))

    def differences(self, z: Tensor, rows: Tensor) -> Tensor:
        """Differences [N, G, p] of points [N, p] to rows [N, G]."""
        return z[:, None] - self.points[rows].to(z)

    def pulled(self, delta: Tensor) -> Tensor:
        """Map differences [N, G, p] to directions of the coordinates [N, G, d]."""
        weight = self.weight.to(delta)
        return delta * weight if weight.ndim == 1 else delta @ weight

    @property
    def plain(self) -> bool:
        """Whether the space of the clusterer is that of the raw columns."""
        return self.weight.ndim == 1 and not self.root.any() and bool((self.weight == 1).all())

    @cached_property
    def precision(self) -> float:
        """Bound of the rounding in the space of the clusterer, in units of a dtype's relative precision."""
        raw = mapped(self.back, self.points).abs().amax(dim=0) + self.root.abs()
        summands = 1 if self.weight.ndim == 1 else self.weight.shape[1]
        return summands * float(mapped(self.weight.abs(), raw).norm())

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
        return [search_among(own, self.rank, FEW) for own in self.points.double().cpu().split(self.sizes)]


def _padded(values: Tensor, k: int, value: float) -> Tensor:
    """Values [N, k] where there are less."""
    return values if values.shape[1] == k else pad(values, (0, k - values.shape[1]), value=value)


def _distances(z: Tensor, points: Tensor) -> Tensor:
    """Squared distances [N, M]; of few columns added up as by a k-d tree, for ties at a radius."""
    if z.shape[1] > OWN:
        return torch.cdist(z, points, compute_mode="donot_use_mm_for_euclid_dist").square_()
    if len(z) * points.numel() <= SMALL:
        return (z[:, None] - points).square_().cumsum(dim=2)[:, :, -1]
    far = z.new_zeros(len(z), len(points))
    for ours, theirs in zip(z.T, points.T, strict=True):
        far += (ours[:, None] - theirs).square_()
    return far


def _least(squared: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k least distances [N, k] of squared ones [N, M], and their columns: the first of equal ones if k = 1."""
    if k == 1:
        least, rows = squared.min(dim=1, keepdim=True)
    else:
        least, rows = squared.topk(min(k, squared.shape[1]), dim=1, largest=False)
    return least.sqrt(), rows


def search_among(points: Tensor, rank: int, few: int = OWN) -> Search:
    """Return a function that finds the distances [N, k] of the k nearest points to rows [N, p], and their numbers.

    SciPy's k-d tree takes half the time of scikit-learn's. That one adds up squares as DBSCAN does, for ties at a
    radius, and is used where the nearest point alone is looked at.
    """
    array = points.numpy()
    find: Callable[..., Any]
    if rank > 1 and points.shape[1] <= few:
        find = partial(cKDTree(array).query, workers=torch.get_num_threads())
    else:
        find = NearestNeighbors(algorithm="brute" if rank > 1 else "auto").fit(array).kneighbors
    return partial(_searched, find)  # which can be pickled


def _searched(find: Callable[..., Any], z: Tensor, k: int) -> tuple[Tensor, Tensor]:
    far, rows = find(z.numpy(), k)
    return torch.from_numpy(far).view(len(z), k), torch.from_numpy(rows).view(len(z), k)

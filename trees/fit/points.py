"""A dense table of points, with means, distances and variances that are bitwise reproducible.

Differences from the middle of a column's range are rounded so that sums of them are exact:

    mean of label c        m + sum over the points i of c of w_i (x_i - m) / sum of their w_i,  m = (min + max) / 2
    variance of a column   sum over i of w_i (x_i - mean)^2 / sum of the w_i

Sums are added up by ranges of rows and over processes; as they are exact, any division of the rows gives the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from neonxc.common.processes import ALONE, Ranks
from neonxc.data.table import Table
from neonxc.trees.cuts.exact_sums import counts_by_label, exact_total, rounding_shift
from neonxc.trees.tree import ThresholdTree

if TYPE_CHECKING:
    from neonxc.trees.fit.sparse_points import Points

CHUNK = 1 << 21  # entries of the columns that are processed at a time
SMALL = 1 << 15  # number of 8-bit differences whose sum is exact in float32
ROWS = 1 << 17  # entries of the rows that are processed at a time, so that they fit into a core's cache
# A matrix product rounds a row by its position among the others, in ways that differ between processors
PAIR_BY_PAIR = "donot_use_mm_for_euclid_dist"
WIDER = {"bool": "uint8", "uint16": "int32", "uint32": "int64", "uint64": "float64", "float128": "float64"}
"""Types of NumPy that torch lacks or can't compute with, and the types in which it holds their values."""


class Dense:
    """The n points of a fit, with d columns of numbers: the table without names, categories and missing values.

    Parameters
    ----------
    data : Tensor [n, d]
        Finite numbers of any type; integers are not converted.
    """

    few_entries = False

    def __init__(self, data: Tensor) -> None:
        self.data = data
        self.dtype = data.dtype
        self.device = data.device
        self.n, self.d = data.shape

    def columns(self, first: int, last: int) -> Tensor:
        """Return the columns `first` to `last` (exclusive), [last - first, n]."""
        return self.data[:, first:last].T.contiguous()

    def column(self, feature: int, rows: Tensor | None = None) -> Tensor:
        """Return one column, [n], or its entries at `rows`."""
        column = self.data[:, feature]
        if rows is None:
            return column
        return column[rows]

    def at(self, features: Tensor, rows: Tensor) -> Tensor:
        """Return the given columns of the given points, [features, rows]."""
        return self.data.index_select(1, features).index_select(0, rows).T

    def rows(self, chunk: slice) -> Tensor:
        """Return a range of the points, [points, d]."""
        return self.data[chunk]

    def take(self, rows: Tensor) -> Dense:
        """Return the table of a subset of the points."""
        return Dense(self.data[rows])

    def chunks(self, ranks: Ranks = ALONE) -> list[tuple[int, int]]:
        """Return the ranges of columns that are processed together, the same in all processes."""
        n = self.n
        if not ranks.alone:
            n = int(ranks.max(torch.tensor(n)))
        return column_ranges(self.d, n)

    def distinct(self) -> tuple[Any, np.ndarray, np.ndarray]:
        """Return distinct rows for scikit-learn, the index of every row among them, and how often each occurs.

        They are sorted by a random projection, so that k-means has the same start for sparse and dense tables.
        """
        values = self.data.cpu().numpy()
        rows, inverse, counts = np.unique(values, axis=0, return_inverse=True, return_counts=True)
        order = np.argsort(rows @ projection(self.d)[:, 0])
        rank = np.argsort(order)
        stays_single = rows.dtype == np.float32 and 1e-12 < np.abs(rows).max() < 1e12  # squares do not overflow
        if not stays_single:
            rows = rows.astype(np.float64)
        return rows[order], rank[inverse.reshape(-1)], counts[order]

    def _rows(self, dtype: torch.dtype = torch.float64) -> Iterator[tuple[slice, Tensor]]:
        """Yield ranges of points with a copy of their values, in a buffer that the next range overwrites."""
        step = max(1, ROWS // self.d)
        # stored by column if the data are: copying would take five times longer otherwise
        buffer = torch.empty_like(self.data[:step], dtype=dtype)
        for first in range(0, self.n, step):
            chunk = slice(first, first + step)
            values = self.data[chunk]
            yield chunk, buffer[: len(values)].copy_(values)

    def distances(self, centers: Tensor, metric: str = "l2") -> Tensor:
        """Compute squared Euclidean ("l2") or Manhattan ("l1") distances to centers [k, d], [n, k] of float64."""
        result = torch.empty(self.n, len(centers), dtype=torch.float64, device=self.device)
        step = max(1, ROWS // self.d)
        for values, costs in zip(self.data.split(step), result.split(step), strict=True):
            values = values.to(torch.float64)
            if metric == "l1":
                costs.copy_(torch.cdist(values, centers, 1))
            else:
                distances = torch.cdist(values, centers, 2, compute_mode=PAIR_BY_PAIR)
                torch.square(distances, out=costs)
        return result

    def ends(self, ranks: Ranks = ALONE) -> tuple[Tensor, Tensor]:
        """Compute the minimum and maximum of every column over all processes, [d] of float64 each."""
        low, high = self._ends
        if ranks.alone:
            return low, high
        minus_low, high = ranks.max(torch.stack([-low, high]))
        return -minus_low, high

    @cached_property
    def _ends(self) -> Tensor:
        """The minimum and maximum of every column in this process, [2, d]."""
        if not self.n:  # the neutral elements of minimum and maximum
            ends = torch.tensor([[torch.inf], [-torch.inf]], dtype=torch.float64, device=self.device)
            return ends.expand(2, self.d)
        rows = self.data
        # torch compares 128 bytes of a row at a time, but what is left of it number by number: with all rows of
        # a block side by side, nothing is left, and 20,000 x 16 numbers take 0.2 instead of 1 ms
        size = 128 // rows.itemsize
        if rows.is_contiguous() and self.n > size:
            n_blocks = self.n // size
            blocks = rows[: n_blocks * size].unflatten(0, (n_blocks, size))
            rows = torch.cat([blocks.amin(0), blocks.amax(0), rows[n_blocks * size :]])
        return torch.stack([rows.amin(0), rows.amax(0)]).to(torch.float64)

    def means(self, labels: Tensor, k: int, weight: Tensor | None = None, ranks: Ranks = ALONE) -> Tensor:
        """Compute the mean of the points of every label, [k, d] of float64; NaN for a label without points.

        The result does not depend on the distribution of rows to processes.
        """
        low, high = self.ends(ranks)
        middle = (low + high) / 2
        extent = (high - low) / 2
        mass = counts_by_label(labels, k, weight, ranks)
        shift = rounding_shift(mass.sum() * extent)
        sums = self.sums(labels, k, weight, middle, shift, ranks)
        return sums / mass[:, None] + middle

    def sums(
        self,
        labels: Tensor,
        k: int,
        weight: Tensor | None,
        middle: Tensor,
        shift: Tensor,
        ranks: Ranks,
        square: bool = False,
    ) -> Tensor:
        """Compute the exact sums by label, [k, d], of the differences from `middle` [d], or of their squares.

        They are rounded by `shift` [d], the :func:`rounding_shift` of an upper bound of their sums.
        """
        # Sums of blocks of small integers are exact in float32
        is_small = self.dtype in (torch.uint8, torch.int8) and weight is None and not square
        dtype = torch.float32 if is_small and ROWS // self.d < SMALL else torch.float64
        middle = middle.to(dtype)  # half an integer if the differences are small
        result = torch.zeros(k, self.d, dtype=torch.float64, device=self.device)
        for chunk, values in self._rows(dtype):
            values.sub_(middle)
            if square:
                values.square_()
            if weight is not None:
                values.mul_(weight[chunk, None])
            if dtype == torch.float64:
                values.add_(shift).sub_(shift)
            if k == 1:
                sums = values.sum(0)
            else:
                sums = torch.zeros(k, self.d, dtype=dtype, device=self.device).index_add_(0, labels[chunk], values)
            result += sums.to(torch.float64)
        if ranks.alone:
            return result
        return ranks.sum(result)

    def cost(self, centers: Tensor, labels: Tensor, weight: Tensor | None = None, ranks: Ranks = ALONE) -> float:
        """Compute the sum of squared distances of all points to the centers of their labels."""
        squares = torch.empty(self.n, dtype=torch.float64, device=self.device)
        for chunk, values in self._rows():
            differences = values.sub_(centers.index_select(0, labels[chunk]))
            torch.sum(differences.square_(), 1, out=squares[chunk])
        if weight is not None:
            squares = squares * weight
        return float(exact_total(squares, ranks))

    def variances(self, weight: Tensor | None = None, ranks: Ranks = ALONE) -> Tensor:
        """Compute the variance of every column, [d] of float64."""
        one_label = torch.zeros(self.n, dtype=torch.int64, device=self.device)
        low, high = self.ends(ranks)
        middle = (low + high) / 2
        extent = (high - low) / 2
        mass = counts_by_label(one_label, 1, weight, ranks)
        sums = self.sums(one_label, 1, weight, middle, rounding_shift(mass * extent), ranks)
        mean = sums[0] / mass + middle

        squared_extent = torch.maximum(high - mean, mean - low).square()
        shift = rounding_shift(mass * squared_extent)
        squares = self.sums(one_label, 1, weight, mean, shift, ranks, square=True)
        return squares[0] / mass


def filled(means: Tensor, centers: Tensor) -> Tensor:
    """Replace the means of clusters without points by their reference centers."""
    if means.shape == centers.shape:
        return torch.where(means.isnan(), centers, means)
    return means


def column_ranges(d: int, n: int) -> list[tuple[int, int]]:
    """Return the ranges of columns of n points that are processed together."""
    step = max(1, CHUNK // max(1, n))
    return [(first, min(first + step, d)) for first in range(0, d, step)]


def projection(d: int) -> np.ndarray:
    """Draw two directions at random, [d, 2], which are always the same."""
    return np.random.default_rng(0).standard_normal((d, 2))


def nearest_values(tree: ThresholdTree, columns: Tensor, values: Tensor) -> Tensor:
    """Find the values next to the bounds of a tree.

    A row is (column, bound, minus the nearest value below, nearest value above, whether all values are integers).

    There is a row for every finite threshold and interval bound that the tree has in `columns` [c], in ascending
    order. Their values [c, n] are reordered.
    """
    bounds = tree.threshold[:, None]
    if tree.intervals is not None:
        bounds = torch.cat([bounds, tree.intervals.flatten(1)], 1)
    distinct: dict[int, set[float]] = {column: set() for column in columns.tolist()}
    for column, bounds_of_node in zip(tree.feature.tolist(), bounds.tolist(), strict=True):
        if column in distinct:
            distinct[column].update(filter(isfinite, bounds_of_node))
    bounds_of = {column: sorted(bounds) for column, bounds in distinct.items()}

    if not values.shape[1]:  # as if the only value was infinite
        values = torch.full((len(values), 1), inf, dtype=torch.float64, device=values.device)
    if values.device.type == "cpu":
        values.numpy().sort()  # several times faster than torch
    else:
        values = values.sort().values
    are_integers = (values == values.round()).all(dim=1).double().tolist()

    # all bounds are searched at once: those of a column are a row, which ends with -inf if others have more
    n_bounds = max(map(len, bounds_of.values()), default=0)
    padded = [[*bounds, *[-inf] * (n_bounds - len(bounds))] for bounds in bounds_of.values()]
    searched = torch.tensor(padded, dtype=torch.float64, device=values.device).view(-1, n_bounds)
    n = values.shape[1]
    n_below = torch.searchsorted(values, searched, right=True)
    below = values.gather(1, (n_below - 1).clamp(min=0)).where(n_below > 0, -inf).tolist()
    above = values.gather(1, n_below.clamp(max=n - 1)).where(n_below < n, inf).tolist()
    rows = [
        (column, bound, -below[i][j], above[i][j], are_integers[i])
        for i, column in enumerate(bounds_of)
        for j, bound in enumerate(bounds_of[column])
    ]
    return torch.tensor(rows, dtype=torch.float64).view(-1, 5)


def check_size(points: Points, names: Sequence[str] | None) -> None:
    """Raise a ValueError if values are so large that costs would overflow."""
    if points.dtype != torch.float64 or not points.n:  # other types have no values of this size
        return
    # 4 d (n v)^2, which bounds the total cost of n points with values up to v, must not overflow
    limit = (torch.finfo(torch.float64).max / (4 * points.d)) ** 0.5 / points.n
    low, high = points.ends()
    largest = torch.maximum(-low, high)
    too_large = (largest > limit).nonzero()[:, 0].tolist()
    if too_large:
        column = too_large[0]
        name = column if names is None else repr(names[column])
        raise ValueError(
            f"X has values as large as {largest[column]:.3g} in column {name}, too large for squared "
            "distances in float64; scale the column"
        )


def check_finite(distances: Tensor) -> None:
    """Raise a ValueError if a distance is infinite or NaN."""
    # a maximum is ten times faster than `isfinite`; it is NaN if a distance is
    if distances.numel() and not bool(distances.amax().isfinite()):
        raise ValueError("centers are too far from X for squared distances in float64; scale both")


def native(dtype: np.dtype) -> np.dtype | str:
    """Return the NumPy type in which torch computes with numbers of a type."""
    native_order = dtype.newbyteorder("=")
    return WIDER.get(native_order.name, native_order)


def to_tensor(values: object) -> Tensor:
    """Convert an array, a data frame or a sparse matrix to a tensor of a data type that torch supports."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        array = values
    else:
        array = np.asarray(Table.read(values).dense())
    return torch.from_numpy(np.require(array, dtype=native(array.dtype), requirements=["C", "W"]))
